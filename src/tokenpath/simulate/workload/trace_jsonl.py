"""Workload files of JSON lines: Mooncake's traces and LLMServingSim's workloads."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokenpath.simulate.workload.rows import (
    MAX_LINE_BYTES,
    ReadWorkload,
    RequestRows,
    Skips,
    lines,
    nanoseconds,
    whole,
)

MOONCAKE_GRANULE_TOKENS = 512
TOKEN_ID_GRANULE_TOKENS = 16
_NS_PER_MS = 1_000_000
MAX_BYTES_AT_ONCE = 2**30
"""Larger files are read row by row."""
_BLOCK_HASHES = re.compile(r"block_hashes_(\d{1,6})")
JSON_ERRORS = (ValueError, RecursionError)
"""What json raises for text that is none, for numbers of more than 4,300 digits, for deep nesting."""


def first_record(head: bytes) -> dict[str, Any] | None:
    """The JSON object on the first line that is not blank; None if there is none."""
    for line in head.splitlines()[:20]:
        if line.strip():
            try:
                record = json.loads(line)
            except JSON_ERRORS:
                return _names_of_cut_record(line)
            return record if isinstance(record, dict) else None
    return None


def _names_of_cut_record(line: bytes) -> dict[str, Any] | None:
    # A first line longer than the head: its names still tell the format.
    if not line.lstrip().startswith(b"{"):
        return None
    names = re.findall(rb'"([A-Za-z_][A-Za-z0-9_]{0,40})"\s*:', line)
    return {name.decode(): None for name in names} or None


def is_mooncake(record: dict[str, Any]) -> bool:
    """Names of Mooncake's traces (FAST25-release/traces)."""
    return {"timestamp", "input_length", "output_length"} <= record.keys()


def read_mooncake(path: Path) -> ReadWorkload:
    """Mooncake: milliseconds, tokens, ids of 512-token granules, each id standing for the prefix up to it."""
    skips = Skips(path)
    if (fast := _read_mooncake_at_once(path, skips)) is not None:
        return fast
    rows = RequestRows(skips, MOONCAKE_GRANULE_TOKENS)
    names: dict[str, int] = {}
    loads = json.loads
    for number, line in lines(path, skips):
        try:
            record = loads(line)
        except JSON_ERRORS:
            skips.add("not JSON", number)
            continue
        if not isinstance(record, dict):
            skips.add("not an object", number)
            continue
        ids = id_list(record.get("hash_ids", ()), names)
        if ids is None:
            skips.add("hash_ids is no list of ids", number)
            continue
        rows.add(
            number,
            nanoseconds(record.get("timestamp"), _NS_PER_MS),
            whole(record.get("input_length")),
            whole(record.get("output_length")),
            ids,
        )
    return ReadWorkload(rows.workload(path.name), "mooncake", skips.listed())


def _read_mooncake_at_once(path: Path, skips: Skips) -> ReadWorkload | None:
    """The same by Arrow, several times as fast; None for a file in which any value is not as usual."""
    import pyarrow as pa
    from pyarrow import json as arrow_json

    names = ("timestamp", "input_length", "output_length")
    schema = pa.schema(
        [*((name, pa.int64()) for name in names), ("hash_ids", pa.list_(pa.int64()))]
    )
    parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    reading = arrow_json.ReadOptions(block_size=MAX_LINE_BYTES, use_threads=False)
    # Arrow unpacks by the name's end, without a bound.
    if path.suffix not in ("", ".json", ".jsonl") or path.stat().st_size > MAX_BYTES_AT_ONCE:
        return None
    try:
        table = arrow_json.read_json(
            path, read_options=reading, parse_options=parse
        ).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
        return None
    if not table.num_rows or any(column.null_count for column in table.columns):
        return None
    ids = table["hash_ids"].combine_chunks()
    columns = [table[name].to_numpy() for name in names]
    rows = RequestRows(skips, MOONCAKE_GRANULE_TOKENS)
    is_usual = rows.take(
        columns[0], _NS_PER_MS, columns[1], columns[2],
        np.diff(ids.offsets.to_numpy()).astype(np.int64),
        ids.flatten().to_numpy(zero_copy_only=False),
    )  # fmt: skip
    return ReadWorkload(rows.workload(path.name), "mooncake") if is_usual else None


def is_llmservingsim(record: dict[str, Any]) -> bool:
    """Names of LLMServingSim's workloads."""
    return {"input_toks", "output_toks", "arrival_time_ns"} <= record.keys()


def read_llmservingsim(path: Path) -> ReadWorkload:
    """LLMServingSim: nanoseconds, tokens, and token ids or chained block hashes (`block_hashes_16`)."""
    skips = Skips(path)
    rows = RequestRows(skips, TOKEN_ID_GRANULE_TOKENS)
    names: dict[str, int] = {}
    chains: dict[tuple[int, tuple[int, ...]], int] = {}
    granule: int | None = None
    for number, line in lines(path, skips):
        try:
            record = json.loads(line)
        except JSON_ERRORS:
            skips.add("not JSON", number)
            continue
        if not isinstance(record, dict):
            skips.add("not an object", number)
            continue
        hashes, own_granule = _block_hashes(record)
        if hashes is not None:
            granule = granule or own_granule
            if own_granule != granule:
                skips.add("block hashes of another size than before", number)
                continue
            rows.granule_tokens = own_granule
            ids = id_list(hashes, names)
        else:
            ids = _chained(record, chains)
        if ids is None:
            skips.add("ids are no list of ids", number)
            continue
        rows.add(
            number,
            nanoseconds(record.get("arrival_time_ns"), 1),
            whole(record.get("input_toks")),
            whole(record.get("output_toks")),
            ids,
        )
    return ReadWorkload(rows.workload(path.name), "llmservingsim", skips.listed())


def id_list(values: object, names: dict[str, int]) -> array[int] | None:
    """Content ids as numbers: numbers stay, texts are numbered by first appearance; None for anything else."""
    if not isinstance(values, list | tuple):
        return None
    try:
        if values and isinstance(values[0], str):
            return array("q", [names.setdefault(value, len(names)) for value in values])
        return array("q", values)
    except (TypeError, OverflowError):
        return None


def _block_hashes(record: dict[str, Any]) -> tuple[object, int]:
    for name, value in record.items():
        match = _BLOCK_HASHES.fullmatch(name)
        if match and int(match[1]):
            return value, int(match[1])
    return None, TOKEN_ID_GRANULE_TOKENS


def _chained(
    record: dict[str, Any], chains: dict[tuple[int, tuple[int, ...]], int]
) -> array[int] | None:
    """Ids of whole granules of token ids, each standing for everything up to its end."""
    prompt = record.get("input_tok_ids") or ()
    output = record.get("output_tok_ids") or ()
    for part in (prompt, output):
        if not isinstance(part, list | tuple) or not all(type(token) is int for token in part):
            return None
    is_whole = len(prompt) == record.get("input_toks")
    tokens: Sequence[int] = (*prompt, *output) if is_whole else prompt
    ids: array[int] = array("q")
    previous = -1
    for begin in range(0, len(tokens) - TOKEN_ID_GRANULE_TOKENS + 1, TOKEN_ID_GRANULE_TOKENS):
        key = (previous, tuple(tokens[begin : begin + TOKEN_ID_GRANULE_TOKENS]))
        previous = chains.setdefault(key, len(chains))
        ids.append(previous)
    return ids
