"""Perfetto's protobuf traces."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

from ingest.protobuf import field
from ingest.samples import Sample

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
REALTIME, BOOTTIME = 1, 6
SEQUENCE = 5


def packet(*parts: bytes, at: int | None = None, flags: int = 0, sequence: int = SEQUENCE) -> bytes:
    """A packet of a writer, framed as in a trace."""
    time = b"" if at is None else field(8, at)
    state = field(13, flags) if flags else b""
    return field(1, time + field(10, sequence) + state + b"".join(parts))


def event(kind: int, track: int | None, *more: bytes) -> bytes:
    where = b"" if track is None else field(11, track)
    return field(11, field(9, kind) + where + b"".join(more))


def track(uuid: int, *more: bytes, name: str = "") -> bytes:
    named = field(2, name) if name else b""
    return field(60, field(1, uuid) + named + b"".join(more))


def process(pid: int, name: str, command: str = "") -> bytes:
    return field(3, field(1, pid) + field(2, command) + field(6, name))


def thread(pid: int, tid: int, name: str) -> bytes:
    return field(4, field(1, pid) + field(2, tid) + field(5, name))


def interned(key: int, name: str) -> bytes:
    return field(12, field(2, field(1, key) + field(2, name)))


def snapshot(**clocks: int) -> bytes:
    ids = {"realtime": REALTIME, "monotonic": 3, "boottime": BOOTTIME}
    pairs = (field(1, field(1, ids[name]) + field(2, value)) for name, value in clocks.items())
    return field(6, b"".join(pairs))


def small() -> bytes:
    descriptors = [
        packet(snapshot(realtime=1_700_000_000_000_000_000, boottime=1_000, monotonic=400)),
        packet(track(1, process(42, "server", "python --secret"))),
        packet(track(2, thread(42, 43, "worker"), field(5, 1))),
        packet(track(3, field(5, 1), name="requests")),
        packet(track(4, field(5, 1), field(8, field(3, 3) + field(4, 1024)), name="memory")),
    ]
    events = [
        packet(interned(9, "outer"), event(BEGIN, 2, field(10, 9)), at=2_000, flags=1),
        packet(event(BEGIN, 2, field(23, "inner"), field(4, b"")), at=2_100),
        packet(event(END, 2), at=2_200),
        packet(field(58, 3), event(END, 2, field(47, b"\0" * 8)), at=1_700),
        packet(event(END, 2), at=2_400),
        packet(event(INSTANT, 3, field(23, "mark")), at=2_050),
        packet(event(BEGIN, 3, field(10, 77)), at=2_060),
        packet(event(COUNTER, 4, field(30, -3)), at=2_070),
        packet(field(1, b""), at=1),
        packet(field(33, b"")),
        packet(event(BEGIN, 2, field(10, 1)), at=2_500, flags=2, sequence=6),
    ]
    # Packed packets are read like the others.
    packed = field(1, field(50, zlib.compress(b"".join(events[4:]))))
    return b"".join([*descriptors, *events[:4], packed])


def write(folder: Path, data: bytes) -> Path:
    path = folder / "t.pftrace"
    path.write_bytes(data)
    return path


def planted(folder: Path, secret: str) -> Path:
    packets = [
        packet(track(1, process(42, secret, secret))),
        packet(track(2, thread(42, 43, secret), field(5, 1))),
        packet(track(3, field(8, field(6, secret)), name=secret)),
        packet(interned(9, secret), event(BEGIN, 2, field(10, 9)), at=1, flags=1),
        packet(event(END, 2), at=2),
        packet(
            event(INSTANT, 2, field(23, secret), field(22, secret), field(4, field(10, secret)))
        ),
        packet(event(INSTANT, 2, field(23, secret)), at=3),
        packet(event(COUNTER, 3, field(30, 1)), at=3),
    ]
    return write(folder, b"".join(packets))


def many(folder: Path, num_events: int) -> Path:
    packets: Sequence[bytes] = [
        packet(event(INSTANT, 2, field(23, "mark")), at=at) for at in range(num_events)
    ]
    return write(folder, b"".join(packets))


EPOCH = 1_700_000_000_000_000_000 - 1_000

SAMPLES = [
    Sample(
        "perfetto",
        "perfetto",
        lambda folder: write(folder, small()),
        {
            ("range", "name", "start_ns", "end_ns", "side"): [
                ("outer", EPOCH + 2_000, EPOCH + 2_300, "host"),
                ("inner", EPOCH + 2_100, EPOCH + 2_200, "host"),
                ("mark", EPOCH + 2_050, EPOCH + 2_050, "host"),
            ],
            ("thread", "pid", "tid", "name"): [
                ("42", "43", "worker"),
                ("42", "track 3", "requests"),
            ],
            ("counter_sample", "at_ns", "name", "value", "unit", "labels"): [
                (EPOCH + 2_070, "memory", -3072.0, "byte", '{"pid": "42"}')
            ],
            ("source", "clock", "clock_offset_ns"): [("epoch", EPOCH)],
        },
        {
            "description": 6,
            "arguments of a slice": 1,
            "flow arrow": 1,
            "end without begin": 1,
            "begin without end": 1,
            "name that is not in the file": 1,
            "ftrace event bundle": 1,
            "packet without the state it builds on": 1,
        },
        planted,
        many,
    )
]
