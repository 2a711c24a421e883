"""Our own workload file: JSON lines, a header and a row a request; what is written is read back the same.

{"format": "tokenpath.workload", "version": 1, "name": ..., "state": ..., "hash_granule_tokens": 16,
 "concurrency": null, "num_requests": 2}
{"arrival_ns": 0, "prompt_tokens": 512, "output_tokens": 64}
{"arrival_ns": 0, "prompt_tokens": 640, "output_tokens": 32, "after": 0, "think_ns": 5000000, "session": 0,
 "hashes": [0, 1, 2]}

Left out of a row: priority 0, no predecessor, a think time of 0, a session of its own, no hashes.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tokenpath.core.errors import DamagedInput, LimitExceeded, UsageError
from tokenpath.simulate.workload.content import MAX_IDS
from tokenpath.simulate.workload.generate import MAX_REQUESTS
from tokenpath.simulate.workload.lengths import MAX_TOKENS
from tokenpath.simulate.workload.rows import MAX_LINE_BYTES, MAX_TIME_NS, ReadWorkload, Skips, lines
from tokenpath.simulate.workload.trace_jsonl import JSON_ERRORS, MAX_BYTES_AT_ONCE
from tokenpath.simulate.workload.workload import NO_REQUEST, Int64s, Workload

FORMAT = "tokenpath.workload"
VERSION = 1
_ROWS_AT_ONCE = 10_000
_PLAIN = ("arrival_ns", "prompt_tokens", "output_tokens")
_STATES = ("measured", "estimated", "synthetic")


def is_own(record: dict[str, Any]) -> bool:
    """The header of our own file."""
    return record.get("format") == FORMAT


def to_jsonl(workload: Workload) -> Iterator[str]:
    """The file's text, piece by piece."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "name": workload.name,
        "state": workload.state,
        "hash_granule_tokens": workload.hash_granule_tokens,
        "concurrency": workload.concurrency,
        "num_requests": workload.num_requests,
    }
    yield json.dumps(header) + "\n"
    own_session = np.arange(workload.num_requests)
    has_sessions = not np.array_equal(workload.session, own_session)
    for begin in range(0, workload.num_requests, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, workload.num_requests)
        yield "".join(_rows(workload, begin, end, has_sessions))


def _rows(workload: Workload, begin: int, end: int, has_sessions: bool) -> list[str]:
    usual = {"priority": 0, "after": NO_REQUEST, "think_ns": 0}
    needed = list(_PLAIN)
    for name, value in usual.items():
        if (getattr(workload, name)[begin:end] != value).any():
            needed.append(name)
    if has_sessions:
        needed.append("session")
    columns = [getattr(workload, name)[begin:end].tolist() for name in needed]
    start = workload.hash_start[begin : end + 1].tolist()
    hashes = workload.hashes[start[0] : start[-1]].tolist()
    if len(needed) == len(_PLAIN) and not hashes:
        return [
            f'{{"arrival_ns":{arrival},"prompt_tokens":{prompt},"output_tokens":{output}}}\n'
            for arrival, prompt, output in zip(*columns, strict=True)
        ]
    rows = []
    for row, values in enumerate(zip(*columns, strict=True)):
        record = {
            name: value
            for name, value in zip(needed, values, strict=True)
            if name not in usual or value != usual[name]
        }
        low, high = start[row] - start[0], start[row + 1] - start[0]
        if high > low:
            record["hashes"] = hashes[low:high]
        rows.append(json.dumps(record, separators=(",", ":")) + "\n")
    return rows


def to_csv(workload: Workload) -> Iterator[str]:
    """Arrival, prompt, output: what other tools read. UsageError where the workload holds more than fits."""
    lost = [
        what
        for what, is_there in (
            ("shared content", len(workload.hashes) > 0),
            ("turns that wait for an answer", bool((workload.after >= 0).any())),
            ("priorities", bool(workload.priority.any())),
            ("a closed loop", workload.concurrency is not None),
        )
        if is_there
    ]
    if lost:
        raise UsageError(
            f"a CSV file cannot hold {', '.join(lost)}",
            where="CSV",
            next_step="write .jsonl instead",
        )
    yield "arrival_ns,prompt_tokens,output_tokens\n"
    table = np.stack([workload.arrival_ns, workload.prompt_tokens, workload.output_tokens], axis=1)
    for begin in range(0, len(table), _ROWS_AT_ONCE):
        rows = table[begin : begin + _ROWS_AT_ONCE].tolist()
        yield "".join(f"{arrival},{prompt},{output}\n" for arrival, prompt, output in rows)


def read_own(path: Path) -> ReadWorkload:
    """A file of `to_jsonl`. DamagedInput with its line for the first row that is not as declared."""
    skips = Skips(path)
    stream = lines(path, skips)
    number, line = next(stream, (1, b""))
    header = _object(path, number, line)
    granule, concurrency = header.get("hash_granule_tokens"), header.get("concurrency")
    if header.get("version") != VERSION:
        raise DamagedInput(
            f"version {header.get('version')!r}", where=f"{path}:{number}", allowed=str(VERSION)
        )
    if type(granule) is not int or not 1 <= granule <= MAX_TOKENS:
        raise DamagedInput("hash_granule_tokens is not from 1 on", where=f"{path}:{number}")
    if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
        raise DamagedInput("concurrency is not from 1 on", where=f"{path}:{number}")
    if header.get("state") not in _STATES:
        raise DamagedInput("unknown state", where=f"{path}:{number}", allowed=", ".join(_STATES))
    fast = _read_at_once(path, header)
    if fast is not None:
        return ReadWorkload(fast, "tokenpath")
    columns = _Columns(path)
    for number, line in stream:
        columns.add(number, _object(path, number, line))
    if skips.reasons:
        raise skips.error()
    count = len(columns.arrival_ns)
    expected = header.get("num_requests", count)
    if expected != count:
        raise DamagedInput(
            f"{count:,} requests instead of {expected}", where=f"{path}:{number}",
            next_step="the file is cut off: write it again",
        )  # fmt: skip
    return ReadWorkload(columns.workload(str(header.get("name")), header, concurrency), "tokenpath")


def _read_at_once(path: Path, header: dict[str, Any]) -> Workload | None:
    """The same by Arrow, several times as fast; None for a file in which any value is not as declared."""
    import pyarrow as pa
    from pyarrow import json as arrow_json

    if path.suffix != ".jsonl" or path.stat().st_size > MAX_BYTES_AT_ONCE:
        return None
    names = _Columns.names
    schema = pa.schema([*((name, pa.int64()) for name in names), ("hashes", pa.list_(pa.int64()))])
    parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    reading = arrow_json.ReadOptions(block_size=MAX_LINE_BYTES, use_threads=False)
    try:
        with path.open("rb") as stream:
            stream.readline(MAX_LINE_BYTES)
            table = arrow_json.read_json(stream, read_options=reading, parse_options=parse)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
        return None
    count = table.num_rows
    if count != header.get("num_requests") or count > MAX_REQUESTS:
        return None
    table = table.combine_chunks()
    usual = {"priority": 0, "after": NO_REQUEST, "think_ns": 0}
    columns: dict[str, Int64s] = {}
    for name in names:
        column = table[name]
        if name == "session" and column.null_count == count:
            columns[name] = np.arange(count)
            continue
        if name in usual:
            column = column.fill_null(usual[name])
        if column.null_count:
            return None
        columns[name] = column.to_numpy().astype(np.int64)
    index = np.arange(count)
    for name, (low, high) in _Columns.bounds.items():
        if (columns[name] < low).any() or (columns[name] > high).any():
            return None
    first = columns["arrival_ns"][columns["after"] == NO_REQUEST]
    if (columns["after"] >= index).any() or (np.diff(first) < 0).any():
        return None
    lists = table["hashes"].combine_chunks()
    sizes = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    ids = lists.flatten()
    if ids.null_count or len(ids) > MAX_IDS:
        return None
    return Workload(
        name=str(header.get("name")),
        state=header["state"],
        hash_start=np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes))),
        hashes=ids.to_numpy(zero_copy_only=False).astype(np.int64),
        hash_granule_tokens=header["hash_granule_tokens"],
        concurrency=header["concurrency"],
        request_ids=None,
        **columns,
    )


class _Columns:
    """Rows as they are read."""

    bounds: ClassVar = {
        "arrival_ns": (0, MAX_TIME_NS),
        "prompt_tokens": (1, MAX_TOKENS),
        "output_tokens": (1, MAX_TOKENS),
        "priority": (-(2**31), 2**31),
        "after": (NO_REQUEST, MAX_REQUESTS),
        "think_ns": (0, MAX_TIME_NS),
        "session": (0, MAX_TIME_NS),
    }
    names = tuple(bounds)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = {name: array("q") for name in self.names}
        self.num_ids = array("q")
        self.ids = array("q")
        self.last_first = -MAX_TIME_NS

    @property
    def arrival_ns(self) -> array[int]:
        """Arrivals so far."""
        return self.columns["arrival_ns"]

    def add(self, line: int, record: dict[str, Any]) -> None:
        """Append a row. DamagedInput for one that is not as declared."""
        index = len(self.arrival_ns)
        usual = {"priority": 0, "after": NO_REQUEST, "think_ns": 0, "session": index}
        for name in self.names:
            value = record.get(name, usual.get(name))
            low, high = self.bounds[name]
            high = index - 1 if name == "after" else high
            if type(value) is not int or not low <= value <= high:
                raise DamagedInput(
                    f"{name} is {value!r}"[:200],
                    where=f"{self.path}:{line}",
                    allowed=f"a whole number from {low} to {high}",
                )
            self.columns[name].append(value)
        if record.get("after", NO_REQUEST) == NO_REQUEST:
            if record["arrival_ns"] < self.last_first:
                raise DamagedInput(
                    "arrivals go back", where=f"{self.path}:{line}", allowed="ascending arrival_ns"
                )
            self.last_first = record["arrival_ns"]
        try:
            hashes = array("q", record.get("hashes", ()))
        except (TypeError, OverflowError):
            raise DamagedInput("hashes are no whole numbers", where=f"{self.path}:{line}") from None
        self.ids.extend(hashes)
        self.num_ids.append(len(hashes))
        if index >= MAX_REQUESTS or len(self.ids) > MAX_IDS:
            raise LimitExceeded(
                "too many rows or content ids", where=f"{self.path}:{line}",
                allowed=f"{MAX_REQUESTS:,} requests and {MAX_IDS:,} ids",
            )  # fmt: skip

    def workload(self, name: str, header: dict[str, Any], concurrency: int | None) -> Workload:
        """The rows in their order."""
        ends = np.cumsum(np.array(self.num_ids, np.int64))
        columns = {key: np.array(values, np.int64) for key, values in self.columns.items()}
        return Workload(
            name=name,
            state=header["state"],
            hash_start=np.concatenate((np.zeros(1, np.int64), ends)),
            hashes=np.array(self.ids, np.int64),
            hash_granule_tokens=header["hash_granule_tokens"],
            concurrency=concurrency,
            request_ids=None,
            **columns,
        )


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except JSON_ERRORS:
        record = None
    if not isinstance(record, dict):
        raise DamagedInput(
            "not a JSON object",
            where=f"{path}:{number}",
            next_step="the file is damaged: write it again",
        )
    return record
