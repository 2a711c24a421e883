"""A table of requests as a capture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import InputError
from tokenpath.core.request_ids import plain_request_id
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.csv_requests.names import (
    ALLOWED,
    STAMPS,
    Field,
    delimiter,
    known_fields,
    mapped,
    names_of,
    recognise,
    split,
)
from tokenpath.ingest.csv_requests.stamps import has_zone
from tokenpath.ingest.formats import read_head
from tokenpath.ingest.json_lines import lines, parse
from tokenpath.ingest.load_tables import RequestRows
from tokenpath.ingest.load_times import is_epoch
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options, Reader

_STAMPS = frozenset(STAMPS.values())
_PUBLIC_TRACES = ("azure", "burstgpt", "mooncake", "lengths")
_FROM_ARRIVAL = {"stated_ttft_ns": "first_token_ns", "stated_e2e_ns": "finished_ns"}
"""Lengths that give a stamp once the arrival is known."""


def read_table(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of a file. InputError when its columns are not known and no map names them."""
    builder = CaptureBuilder(reader, path, options)
    names = names_of(read_head(path)) or []
    writer, fields = _fields(path, names, options)
    rows = RequestRows(builder)
    losses = builder.losses
    if writer != "plain":
        builder.origin.profiler = writer
    unread = [name for name in names if name not in {field.theirs for field in fields}]
    dates = [field for field in fields if _is_date(field)]
    num_rows = num_without_id = num_without_zone = 0
    for offset, cells in _rows(path, names, options, losses):
        num_rows += 1
        numbers, texts = _values(fields, cells, losses, offset)
        losses.add("stamp on another clock", _follow(numbers), offset=offset, dropped=False)
        if writer == "burstgpt" and numbers.get("output_tokens") == 0:
            texts["finish_reason"], numbers["output_tokens"] = "error", None
        given = texts.pop("request_id", None)
        num_without_id += given is None
        for field in dates:
            num_without_zone += field.ours in numbers and not has_zone(cells.get(field.theirs))
        name = f"#{rows.num_requests}" if given is None else plain_request_id(given)[0]
        rows.add(name, numbers, **texts)
    rows.finish()
    for name in unread:
        losses.add("column that is not read", num_rows, offset=0, what=name[:60], dropped=False)
    _note(builder, writer, num_without_id, num_without_zone)
    builder.num_events = rows.num_requests + losses.num_dropped()
    return builder.finish()


def _fields(path: Path, names: list[str], options: Options) -> tuple[str, list[Field]]:
    known = recognise(names)
    if options.columns and set(options.columns.values()) <= set(names):
        own = mapped(options.columns)
        taken = {field.ours for field in own} | {field.theirs for field in own}
        others = list(known_fields(names).values()) if known is None else known[1]
        return "plain", own + [f for f in others if f.ours not in taken and f.theirs not in taken]
    if known is None:
        raise InputError(
            "the columns do not say which is which: " + ", ".join(names)[:300],
            where=str(path),
            allowed=ALLOWED,
            next_step="--columns arrival_s=THEIR_NAME,output_tokens=THEIR_NAME",
        )
    return known


def _rows(
    path: Path, names: list[str], options: Options, losses: Losses
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The cells of each row by name, with its byte offset."""
    stream = lines(
        open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress), losses
    )
    sign: str | None = None
    for offset, line in stream:
        text = line.decode("utf-8", "replace").strip("\r\ufeff")
        if sign is None:
            # The first line: names of columns, or the first of many objects.
            is_json = text.lstrip()[:1] == "{"
            sign = "" if is_json else delimiter(text)
            if not is_json:
                continue
        if not sign:
            record = parse(line)
            if isinstance(record, dict):
                yield offset, record
            else:
                losses.add("damaged row", offset=offset)
        else:
            cells = split(text.replace("\0", ""), sign)
            if cells is None or len(cells) != len(names):
                losses.add("damaged row", offset=offset)
            else:
                yield offset, dict(zip(names, cells, strict=True))


def _values(
    fields: list[Field], cells: dict[str, Any], losses: Losses, offset: int
) -> tuple[dict[str, int | None], dict[str, str | None]]:
    numbers: dict[str, int | None] = {}
    texts: dict[str, str | None] = {}
    for field in fields:
        cell = cells.get(field.theirs)
        value = None if cell is None or cell == "" else field.value(cell)
        if value is None and cell not in (None, ""):
            what = f"{field.theirs}: {_shape(cell)}"[:80]
            losses.add(f"{field.kind} that is none", offset=offset, what=what, dropped=False)
        if isinstance(value, str):
            texts[field.ours] = value
        elif field.kind != "text":
            numbers[field.ours] = value
    return numbers, texts


def _follow(numbers: dict[str, int | None]) -> int:
    """Turn lengths into stamps where the arrival is known: then they are no statement of their own.

    Two clocks in one row cannot be one: stamps that are not on the arrival's are left out and counted.
    """
    arrival = numbers.get("arrival_ns")
    for length, stamp in _FROM_ARRIVAL.items():
        value = numbers.get(length)
        if arrival is not None and value is not None:
            if numbers.get(stamp) is None:
                numbers[stamp] = arrival + value
            if numbers[stamp] == arrival + value:
                numbers[length] = None
    if arrival is None:
        return 0
    epoch = is_epoch(arrival)
    others = [
        stamp
        for stamp, value in numbers.items()
        if value is not None and stamp in _STAMPS and is_epoch(value) != epoch
    ]
    for stamp in others:
        numbers[stamp] = None
    return len(others)


def _note(builder: CaptureBuilder, writer: str, without_id: int, without_zone: int) -> None:
    if writer in _PUBLIC_TRACES:
        builder.note(
            "workload-without-latencies",
            "the file is a workload: it says when requests came and how large they were, and nothing "
            "of how long they took",
        )
    elif without_id:
        builder.note(
            "no-request-ids",
            f"{without_id:,} rows have no request id: `#7` is the eighth request of the file, and a join "
            "with the engine goes by time and size",
        )
    if without_zone:
        builder.note(
            "time-zone-assumed",
            f"{without_zone:,} dates name no time zone and are read as UTC",
        )


def _is_date(field: Field) -> bool:
    return field.kind == "stamp" and field.unit_ns is None


def _shape(cell: object) -> str:
    """What a cell looks like, without its text."""
    if isinstance(cell, str):
        return f"{len(cell)} characters"
    return type(cell).__name__ if not isinstance(cell, int | float) else json.dumps(cell)[:40]
