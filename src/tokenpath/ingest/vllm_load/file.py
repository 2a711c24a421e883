"""Requests and tokens as the client saw them, to a capture."""

from __future__ import annotations

import csv
import itertools
from collections import Counter
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.core.request_ids import plain_request_id
from tokenpath.core.units import NS_PER_US
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.json_lines import lines, parse
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options, Reader
from tokenpath.ingest.run_list import find_run, place_on_epoch

_TIMES = (
    ("arrival_ns", "arrival_us"),
    ("first_token_ns", "first_token_us"),
    ("last_token_ns", "last_token_us"),
    ("finished_ns", "end_us"),
)
_COUNTS = (
    ("prompt_tokens", "prompt_tokens"),
    ("cached_tokens", "cached_tokens"),
    ("output_tokens", "output_tokens"),
    ("num_preemptions", "preemptions"),
)
_OF_THE_ENGINE = ("engine_add_us", "first_sched_us", "steps")
_OF_THE_LOAD = ("server", "rate_rps", "n", "seed")
_MAX_US = 4 * 10**15
_BATCH = 4096


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of one file. DamagedInput when no row of it can be read."""
    builder = CaptureBuilder(reader, path, options)
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    stream = lines(unpacked, builder.losses)
    run = path.name.split(".")[0]
    t0_ns = place_on_epoch(builder, path, run)
    _describe(builder, find_run(path, run))
    first = next(stream, None)
    if first is not None and first[1].lstrip()[:1] == b"{":
        _read_tokens(builder, first, stream, t0_ns)
    elif first is not None:
        _read_requests(builder, first[1], stream, t0_ns)
    if not builder.num_events or builder.num_events == builder.losses.num_dropped():
        raise DamagedInput("no row can be read", where=str(path))
    return builder.finish()


def _read_tokens(
    builder: CaptureBuilder,
    first: tuple[int, bytes],
    rest: Iterator[tuple[int, bytes]],
    t0_ns: int,
) -> None:
    ids: list[str] = []
    index: list[int] = []
    at_ns: list[int] = []

    def flush() -> None:
        observer = ["client"] * len(ids)
        columns: dict[str, Sized] = {
            "request_id": ids,
            "observer": observer,
            "index": index,
            "at_ns": at_ns,
        }
        builder.add("token", columns)
        for values in (ids, index, at_ns):
            values.clear()

    for offset, line in itertools.chain((first,), rest):
        builder.num_events += 1
        record = fields.mapping(parse(line))
        text, times = fields.text(record.get("req")), record.get("token_us")
        if text is None or not isinstance(times, list):
            builder.losses.add("damaged record", offset=offset)
            continue
        name = plain_request_id(text)[0]
        for number, value in enumerate(times):
            at = fields.count(value)
            if at is None or at > _MAX_US:
                builder.losses.add("token without a time", offset=offset, dropped=False)
                continue
            ids.append(name)
            index.append(number)
            at_ns.append(at * NS_PER_US + t0_ns)
        if len(ids) >= _BATCH:
            flush()
    flush()


def _read_requests(
    builder: CaptureBuilder, header: bytes, rest: Iterator[tuple[int, bytes]], t0_ns: int
) -> None:
    names = _split(header)
    rows: list[dict[str, Any]] = []
    shared: Counter[int] = Counter()
    groups: set[str] = set()
    for offset, line in rest:
        builder.num_events += 1
        values = _split(line)
        row = dict(zip(names, values, strict=False))
        text = fields.text(row.get("req"))
        if text is None or len(values) != len(names):
            builder.losses.add("damaged record", offset=offset)
            continue
        rows.append(_request(builder, text, row, t0_ns))
        if prefix := _whole(row.get("shared_prefix")):
            shared[prefix] += 1
            groups.add(row.get("group", ""))
        if len(rows) >= _BATCH:
            builder.add_rows("request", rows)
            rows.clear()
        if any(row.get(name) for name in _OF_THE_ENGINE):
            # They are there for people; the step log has them, of the observer who knows.
            builder.losses.add("times of the engine", lost=False, dropped=False, offset=offset)
    builder.add_rows("request", rows)
    if shared and 2 * max(shared.values()) > builder.num_events:
        # Turns of a conversation share more each time: no one length would be true of them.
        builder.setting("load.shared_prefix_tokens", str(shared.most_common(1)[0][0]))
        builder.setting("load.num_groups", str(len(groups)))


def _request(builder: CaptureBuilder, text: str, row: dict[str, str], t0_ns: int) -> dict[str, Any]:
    name, choice = plain_request_id(text)
    trace = row.get("trace_id", "")
    result: dict[str, Any] = {
        "request_id": name,
        "choice": choice,
        "observer": "client",
        "trace_id": trace if len(trace) == 32 and trace.isalnum() else None,
    }
    for column, field in _TIMES:
        at = _whole(row.get(field))
        if at is not None and at > _MAX_US:
            builder.losses.add("timestamp out of range", dropped=False)
            at = None
        result[column] = None if at is None else at * NS_PER_US + t0_ns
    for column, field in _COUNTS:
        result[column] = _whole(row.get(field))
    return result


def _split(line: bytes) -> list[str]:
    """The fields of a CSV line; none for one that is no CSV."""
    text = line.decode("utf-8", "replace").rstrip("\r")
    try:
        return next(csv.reader([text], strict=True), [])
    except csv.Error:
        return []


def _whole(text: str | None) -> int | None:
    if not text or not text.isascii() or not text.isdigit() or len(text) > 18:
        return None
    return int(text)


def _describe(builder: CaptureBuilder, run: dict[str, Any]) -> None:
    """What the list of runs says of the load, as settings."""
    for name in _OF_THE_LOAD:
        builder.setting(f"load.{name}", fields.text(run.get(name)) or fields.real(run.get(name)))
    for part in ("workload", "server_config"):
        for name, value in list(fields.mapping(run.get(part)).items())[:100]:
            if isinstance(value, str | int | float):
                label = "load" if part == "workload" else "server"
                builder.setting(f"{label}.{fields.text(name)}", fields.text(value) or value)
