"""Workload files of CSV: Azure's traces, BurstGPT, lists of lengths, and our own columns."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tokenpath.core.errors import DamagedInput, UsageError
from tokenpath.simulate.workload.chance import Purpose, stream, uniforms
from tokenpath.simulate.workload.content import GRANULE_TOKENS
from tokenpath.simulate.workload.lengths import MAX_TOKENS, LengthLaw
from tokenpath.simulate.workload.rows import (
    MAX_LINE_BYTES,
    NO_IDS,
    ReadWorkload,
    RequestRows,
    Skips,
    lines,
    nanoseconds,
    whole,
)

_NS_PER_S = 1_000_000_000
_SHARED = "sharedprefix"
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:?\d\d)?")


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """A table known by the names of its columns, lower case without blanks and underscores."""

    name: str
    """Of the format."""
    prompt: str
    """Column of prompt tokens."""
    output: str | None
    """Column of output tokens; None: the format has none."""
    time: str | None
    """Column of the arrival; None: the format has none."""
    unit_ns: int = _NS_PER_S
    """Nanoseconds of one unit of the arrival, where it is a number."""


FORMATS = (
    CsvFormat("tokenpath", "prompttokens", "outputtokens", "arrivalns", 1),
    CsvFormat("tokenpath", "prompttokens", "outputtokens", "arrivalus", 1_000),
    CsvFormat("tokenpath", "prompttokens", "outputtokens", "arrivalms", 1_000_000),
    CsvFormat("tokenpath", "prompttokens", "outputtokens", "arrivals"),
    CsvFormat("azure", "contexttokens", "generatedtokens", "timestamp"),
    CsvFormat("burstgpt", "requesttokens", "responsetokens", "timestamp"),
    CsvFormat("lengths", "inputlength", "outputlength", None),
    CsvFormat("lengths", "prompttokens", "outputtokens", None),
    CsvFormat("lengths", "inputlength", None, None),
)
"""In the order in which they are tried."""


def names_of(head: bytes) -> list[str]:
    """Names of the columns on the first line that is not blank, in their short form."""
    for line in head.removeprefix(b"\xef\xbb\xbf").splitlines()[:20]:
        if line.strip():
            try:
                row = next(csv.reader([line.decode("utf-8", "replace")]), [])
            except csv.Error:
                return []
            return [short_name(name) for name in row]
    return []


def short_name(name: str) -> str:
    """Lower case without blanks and underscores: `Request tokens` and `request_tokens` are one."""
    return name.strip().lower().replace("_", "").replace(" ", "")


def format_of(names: list[str]) -> CsvFormat | None:
    """The first format whose columns are all there."""
    for known in FORMATS:
        needed = {known.prompt, known.output, known.time} - {None}
        if needed <= set(names):
            return known
    return None


def read_csv(path: Path, known: CsvFormat, output: LengthLaw | None = None) -> ReadWorkload:
    """Requests of a table; without a column of arrivals they all come at once.

    Columns `group` and `shared_prefix` (tokens), where a table has them, say that requests of one group begin
    with the same tokens, as many as each states. A negative group or no tokens: nothing is shared.
    `output` is the law of outputs where the file has none. UsageError if it is missing then.
    """
    if known.output is None and output is None:
        raise UsageError(
            "the file has no output lengths",
            where=str(path),
            allowed="a column output_length",
            next_step="give a law of output lengths (--output-tokens)",
        )
    skips = Skips(path)
    rows = RequestRows(skips)
    table = table_rows(path, skips)
    header_line, header = next(table, (1, []))
    names = [short_name(name) for name in header]
    if not {known.prompt, known.output, known.time} - {None} <= set(names):
        raise DamagedInput("the header has changed", where=f"{path}:{header_line}")
    prompt_at = names.index(known.prompt)
    output_at = names.index(known.output) if known.output else None
    time_at = names.index(known.time) if known.time else None
    group_at = names.index("group") if {"group", _SHARED} <= set(names) else None
    shared_at = names.index(_SHARED) if group_at is not None else None
    used = (prompt_at, output_at, time_at, group_at, shared_at)
    width = max(at for at in used if at is not None) + 1
    first_ids: dict[str, int] = {}
    for number, row in table:
        if len(row) < width:
            skips.add("a row with too few columns", number)
            continue
        moment = 0 if time_at is None else stamp_ns(row[time_at], known.unit_ns)
        # A placeholder of 1 where the file has no outputs: they are drawn below.
        tokens = 1 if output_at is None else whole(row[output_at])
        ids = NO_IDS
        if group_at is not None and shared_at is not None:
            ids = _group_ids(row[group_at], whole(row[shared_at]), first_ids)
        rows.add(number, moment, whole(row[prompt_at]), tokens, ids)
    if known.output is None and output is not None:
        drawn = output.at(uniforms(stream(0, Purpose.OUTPUT), len(rows.output_tokens)))
        rows.output_tokens = type(rows.output_tokens)("q", drawn.tolist())
    notes = [] if known.time else ["no arrivals in the file: all requests come at once"]
    if known.output is None and output is not None:
        notes.append(f"no output lengths in the file: drawn from {output.label}")
    return ReadWorkload(rows.workload(path.name), known.name, skips.listed(), tuple(notes))


def _group_ids(group: str, shared_tokens: int | None, first_ids: dict[str, int]) -> array[int]:
    """Ids of the whole granules that a request shares with its group."""
    if not group.strip() or group.strip().startswith("-") or not shared_tokens or shared_tokens < 0:
        return NO_IDS
    first = first_ids.setdefault(group.strip(), len(first_ids) * MAX_TOKENS)
    num_granules = min(shared_tokens, MAX_LINE_BYTES) // GRANULE_TOKENS
    return array("q", range(first, first + num_granules))


def stamp_ns(text: str, unit_ns: int) -> int | None:
    """A number of some unit, or a date with time, in nanoseconds; None for anything else. UTC if not said."""
    number = nanoseconds(text, unit_ns)
    if number is not None:
        return number
    match = _STAMP.fullmatch(text.strip())
    if match is None:
        return None
    day, clock, fraction, zone = match.groups()
    zone = "+00:00" if zone in (None, "Z") else zone
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{zone}")
        seconds = moment - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    whole_s = seconds.days * 86_400 + seconds.seconds
    return whole_s * _NS_PER_S + int((fraction or "0").ljust(9, "0"))


def table_rows(path: Path, skips: Skips) -> Iterator[tuple[int, list[str]]]:
    """Rows of a CSV file with their line, the header first."""
    is_first = True
    for number, line in lines(path, skips):
        text = line.removeprefix(b"\xef\xbb\xbf") if is_first else line
        is_first = False
        try:
            yield number, next(csv.reader([text.decode("utf-8", "replace")]), [])
        except csv.Error:
            skips.add("not a row of CSV", number)
