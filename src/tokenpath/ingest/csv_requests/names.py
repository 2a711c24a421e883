"""Names of columns: ours with their units, those of public traces, and those that a user maps."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tokenpath.core.errors import UsageError
from tokenpath.core.units import NS_PER_MS, NS_PER_S, NS_PER_US
from tokenpath.ingest import fields
from tokenpath.ingest.csv_requests.stamps import iso_ns

UNITS = {"s": NS_PER_S, "ms": NS_PER_MS, "us": NS_PER_US, "ns": 1}
"""Nanoseconds in a unit that ends a name; `iso` is a date with a time."""

STAMPS = {
    "arrival": "arrival_ns",
    "queued": "queued_ns",
    "scheduled": "scheduled_ns",
    "first_token": "first_token_ns",
    "last_token": "last_token_ns",
    "finished": "finished_ns",
}
"""Columns of `request` by the name of a stamp, the unit cut off."""
LENGTHS = {
    "ttft": "stated_ttft_ns",
    "e2e": "stated_e2e_ns",
    "tpot": "stated_tpot_ns",
    "queue": "stated_queue_ns",
    "prefill": "stated_prefill_ns",
    "decode": "stated_decode_ns",
}
"""The same of a length of time."""
COUNTS = ("prompt_tokens", "cached_tokens", "output_tokens", "num_preemptions")
"""Columns that are counts."""
TEXTS = ("request_id", "model", "finish_reason", "trace_id")
"""Columns that are texts."""

_PUBLIC: tuple[tuple[str, Mapping[str, str]], ...] = (
    (
        "azure",
        {
            "arrival_iso": "TIMESTAMP",
            "prompt_tokens": "ContextTokens",
            "output_tokens": "GeneratedTokens",
        },
    ),
    (
        "burstgpt",
        {
            "arrival_s": "Timestamp",
            "model": "Model",
            "prompt_tokens": "Request tokens",
            "output_tokens": "Response tokens",
        },
    ),
    (
        "mooncake",
        {
            "arrival_ms": "timestamp",
            "prompt_tokens": "input_length",
            "output_tokens": "output_length",
        },
    ),
    ("lengths", {"prompt_tokens": "input_length", "output_tokens": "output_length"}),
)
"""Names of public traces, the narrower first."""
_OTHER_NAMES = {
    "request_id": ("req", "req_id", "rid", "id"),
    "num_preemptions": ("preemptions",),
    "prompt_tokens": ("input_tokens", "num_prompt_tokens"),
    "output_tokens": ("completion_tokens", "generated_tokens", "num_output_tokens"),
}
_DELIMITERS = ",;\t"
_UNIT = re.compile(r"(\w+)_(s|ms|us|ns|iso)")
_DIGITS = re.compile(r"[0-9]{1,18}")
_MAX_COLUMNS = 1000


@dataclass(frozen=True)
class Field:
    """Where the values of a column of ours come from."""

    ours: str
    """Column of `request`."""
    theirs: str
    """Column of the file."""
    kind: str
    """`stamp`, `length`, `count` or `text`."""
    unit_ns: int | None
    """Nanoseconds in the file's unit; None for a date with a time, or no time at all."""

    def value(self, cell: object) -> int | str | None:
        """The value of a cell; None for one that is none."""
        if self.kind == "count" and isinstance(cell, str) and _DIGITS.fullmatch(cell):
            return int(cell)
        if self.kind == "text":
            return fields.text(cell.strip() if isinstance(cell, str) else cell)
        if isinstance(cell, str):
            cell = cell.strip()
        if self.kind == "count":
            return fields.count(_number(cell))
        if self.kind == "length":
            return fields.duration_ns(cell, self.unit_ns or 1)
        return iso_ns(cell) if self.unit_ns is None else fields.nanoseconds(cell, self.unit_ns)


def field_of(name: str, theirs: str) -> Field | None:
    """What a name of ours means; None when it is none of ours."""
    if name in COUNTS:
        return Field(name, theirs, "count", None)
    if name in TEXTS:
        return Field(name, theirs, "text", None)
    match = _UNIT.fullmatch(name)
    if match is None:
        return None
    base, unit = match.groups()
    if base in STAMPS:
        return Field(STAMPS[base], theirs, "stamp", UNITS.get(unit))
    if base in LENGTHS and unit != "iso":
        return Field(LENGTHS[base], theirs, "length", UNITS[unit])
    return None


def mapped(columns: Mapping[str, str]) -> list[Field]:
    """The fields of a user's map. UsageError for a name that is none of ours, or one given twice."""
    found: dict[str, Field] = {}
    for name, theirs in columns.items():
        field = field_of(name, theirs)
        if field is None:
            raise UsageError(
                f"{name!r} is no column of requests", where="--columns", allowed=ALLOWED
            )
        if field.ours in found:
            raise UsageError(
                f"{name!r} and another name say the same", where="--columns", allowed="one of them"
            )
        found[field.ours] = field
    return list(found.values())


ALLOWED = (
    "arrival, queued, scheduled, first_token, last_token, finished with a unit (arrival_s, _ms, _us, _ns, "
    "_iso); ttft, e2e, tpot, queue, prefill, decode with a unit (ttft_ms); "
    + ", ".join((*COUNTS, *TEXTS))
)
"""Our names, for a person."""


def recognise(names: Sequence[str]) -> tuple[str, list[Field]] | None:
    """Who wrote a table with these columns, and its fields; None when they say too little."""
    known = set(names)
    for writer, columns in _PUBLIC:
        if set(columns.values()) <= known and not (
            writer == "mooncake" and "hash_ids" not in known
        ):
            return writer, mapped(columns)
    found = known_fields(names)
    has_time = {"arrival_ns", "stated_ttft_ns", "stated_e2e_ns", "first_token_ns"} & set(found)
    has_tokens = {"prompt_tokens", "output_tokens"} & set(found)
    return ("plain", list(found.values())) if has_time and has_tokens else None


def known_fields(names: Sequence[str]) -> dict[str, Field]:
    """The fields whose names are ours, or mean the same, by column of `request`."""
    known, found = set(names), dict[str, Field]()
    for name in names:
        field = field_of(name, name)
        if field is not None:
            found.setdefault(field.ours, field)
    for ours, others in _OTHER_NAMES.items():
        theirs = next((other for other in others if other in known), None)
        field = None if theirs is None else field_of(ours, theirs)
        if field is not None:
            found.setdefault(field.ours, field)
    return found


def names_of(head: bytes) -> list[str] | None:
    """The names of the columns of a table, or of the members of its first JSON object; None for neither."""
    line = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n \t").split(b"\n", 1)[0].rstrip(b"\r")
    if not line or b"\0" in line or len(line) > 2**16:
        return None
    text = line.decode("utf-8", "replace")
    if text[0] == "{":
        return _members(text)
    if text[0] in '[<#%"' and not text.startswith('"'):
        return None
    return split(text, delimiter(text))


def delimiter(line: str) -> str:
    """The sign that separates the cells of a line."""
    return max(_DELIMITERS, key=line.count)


def split(line: str, sign: str) -> list[str] | None:
    """The cells of a line; None for fewer than two or too many."""
    try:
        cells = next(csv.reader([line], delimiter=sign), [])
    except csv.Error:
        return None
    return [cell.strip() for cell in cells] if 2 <= len(cells) <= _MAX_COLUMNS else None


def _members(text: str) -> list[str] | None:
    pairs = partial(json.loads, object_pairs_hook=_names)
    try:
        found: Any = pairs(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def _names(pairs: list[tuple[str, Any]]) -> list[str]:
    return [name for name, _ in pairs]


def _number(cell: object) -> object:
    """A count written as text: `12`, `12.0`."""
    if not isinstance(cell, str):
        return cell
    try:
        return int(cell) if len(cell) <= 20 else None
    except ValueError:
        pass
    try:
        return float(cell) if len(cell) <= 40 else None
    except ValueError:
        return None
