"""One decoded event to one raw row."""

from __future__ import annotations

import hashlib
import re

from tokenpath.ingest.kineto.columns import ARGUMENTS, NULL, NUM_COLUMNS, Col, Flag, Kind
from tokenpath.ingest.kineto.numbers import parse_int64, parse_ns, parse_real_bits
from tokenpath.ingest.kineto.texts import Texts, compact_json

MAX_DEPTH = 64
"""An event nested deeper than this is damage, not a trace."""

_EMPTY = [NULL] * NUM_COLUMNS


class NotAnEvent(ValueError):
    """A JSON value that cannot be an event; the message is the reason for the loss count."""


def make_row(event: dict[str, object], offset: int, texts: Texts) -> list[int]:
    """The raw row of an event; NotAnEvent when it has no usable phase."""
    row = _EMPTY[:]
    get = event.get
    phase = get("ph")
    if not isinstance(phase, str) or len(phase) != 1 or not phase.isascii():
        raise NotAnEvent("event without phase")
    row[Col.PHASE] = ord(phase)
    row[Col.OFFSET] = offset
    flags = 0
    category = get("cat")
    if category is not None:
        row[Col.CATEGORY] = texts.code(_text(category))
    name = get("name")
    if name is not None:
        row[Col.NAME] = texts.code(_text(name))
    pid, tid = texts.code(_text(get("pid"))), texts.code(_text(get("tid")))
    row[Col.PAIR] = texts.pair(pid, tid)
    for key, column, bad, out in _TIMES:
        value = get(key)
        if value is None:
            continue
        parsed = parse_ns(value if isinstance(value, str) else str(value))
        if parsed is None:
            flags |= bad
        elif not NULL < parsed[0] < 2**63:
            flags |= out
        else:
            row[column] = parsed[0]
            flags |= Flag.SUB_NS if parsed[1] else 0
    if "id" in event:
        row[Col.ID] = _flow_id(event["id"])
    args = get("args")
    if isinstance(args, dict):
        for key, value in args.items():
            spec = ARGUMENTS.get(key)
            if spec is not None:
                _set_argument(row, spec[0], spec[1], value, texts)
    attributes = get("attr")
    if isinstance(attributes, dict) and "TS1" in attributes:
        flags |= Flag.SPYRE
    row[Col.FLAGS] = flags
    return row


_TIMES = (
    ("ts", Col.TS, Flag.TS_BAD, Flag.TS_RANGE),
    ("dur", Col.DUR, Flag.DUR_BAD, Flag.DUR_RANGE),
)


def _set_argument(row: list[int], column: int, kind: Kind, value: object, texts: Texts) -> None:
    if kind is Kind.INT:
        row[column] = parse_int64(value)
    elif value is None:
        row[column] = NULL
    elif kind is Kind.REAL:
        row[column] = parse_real_bits(value)
    elif kind is Kind.DIM3:
        sizes = [parse_int64(size) for size in value] if isinstance(value, list) else []
        fits = len(sizes) == 3 and all(-(2**31) <= size < 2**31 for size in sizes)
        row[column : column + 3] = sizes if fits else [NULL, NULL, NULL]
    else:
        row[column] = texts.code(value if isinstance(value, str) else compact_json(value))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return str(value) if type(value) is int else compact_json(value)


def _flow_id(value: object) -> int:
    number = parse_int64(value)
    if number == NULL:
        digest = hashlib.blake2b(_text(value).encode("utf-8", "replace"), digest_size=8).digest()
        number = int.from_bytes(digest, "little", signed=True)
    return 0 if number == NULL else number


def depth_of(text: str) -> int:
    """How deeply the brackets of a JSON text nest; cheap when there are few of them."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return 0
    depth = deepest = 0
    for char in re.sub(r'"(?:[^"\\]|\\.)*"|[^][{}"]+', "", text, flags=re.DOTALL):
        if char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest
