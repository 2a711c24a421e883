"""A typed msgspec decode of the fields that an analysis needs: decoding alone, no columns, no links."""

import sys
from pathlib import Path

import msgspec


class Args(msgspec.Struct, gc=False):
    correlation: int | None = None
    stream: int | str | None = None
    device: int | str | None = None
    external_id: int | None = msgspec.field(default=None, name="External id")


class Event(msgspec.Struct, gc=False):
    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: Args | None = None


class Trace(msgspec.Struct):
    events: list[Event] = msgspec.field(name="traceEvents")


with Path(sys.argv[1]).open("rb") as file:
    msgspec.json.decode(file.read(), type=Trace)
