"""Trace and span ids as lower-case hexadecimal digits, however they were written."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TRACE_BYTES, SPAN_BYTES = 16, 8
_SHORT_TRACE = re.compile(r"[0-9a-f]{16}")
"""Zipkin and old Jaeger clients write 64-bit trace ids; padded with zeros, as W3C Trace Context asks."""


@dataclass(frozen=True)
class Ids:
    """A column of ids."""

    values: pa.Array
    """Hexadecimal digits; NULL for none (empty, all zero) and for what is no id."""
    num_base64: int
    """Converted from base64, as protobuf's own JSON mapping writes bytes."""
    num_damaged: int
    """Neither hexadecimal nor base64 of the right length."""


def hexadecimal(column: pa.Array, num_bytes: int) -> Ids:
    """OTLP/JSON writes ids as hexadecimal digits; protobuf's JSON mapping writes base64. Both are read.

    A text of 32 (16) hexadecimal digits is never taken for base64: that has 24 (12) characters.
    """
    num_base64 = num_damaged = 0
    if pc.min_max(pc.binary_length(column)).as_py()["min"] == 0:
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    odd = None if _are_usual(column, num_bytes) else _odd(column, num_bytes)
    if odd is not None and pc.any(odd).as_py():
        replaced = []
        for text in column.filter(odd).to_pylist():
            value, is_base64 = _convert(text, num_bytes)
            num_base64 += is_base64
            num_damaged += value is None and text.strip("0=A") != ""
            replaced.append(value)
        column = pc.replace_with_mask(column, odd, pa.array(replaced, pa.string()))
    zero = pc.equal(column, "0" * (2 * num_bytes)).fill_null(False)
    if pc.any(zero).as_py():
        column = pc.if_else(zero, pa.scalar(None, pa.string()), column)
    return Ids(column, num_base64, num_damaged)


def _are_usual(column: pa.Array, num_bytes: int) -> bool:
    """Whether all that is there has the right number of lower-case digits, told without a look at each."""
    sizes = pc.min_max(pc.binary_length(column)).as_py()
    if not {sizes["min"], sizes["max"]} <= {2 * num_bytes, None}:
        return False
    first, end = column.offset, column.offset + len(column)
    _, offsets, data = column.buffers()
    if data is None:
        return True
    ends = np.frombuffer(offsets, np.int32)
    # Bytes behind a NULL are no digits in the worst case; then each is looked at.
    return not bytes(memoryview(data)[ends[first] : ends[end]]).translate(None, b"0123456789abcdef")


def _odd(column: pa.Array, num_bytes: int) -> pa.Array:
    known = pc.match_substring_regex(column, f"^[0-9a-f]{{{2 * num_bytes}}}$")
    return pc.and_(column.is_valid(), pc.invert(known)).fill_null(False)


def _convert(text: str, num_bytes: int) -> tuple[str | None, bool]:
    lower = text.lower()
    if re.fullmatch(f"[0-9a-f]{{{2 * num_bytes}}}", lower):
        return lower, False
    if num_bytes == TRACE_BYTES and _SHORT_TRACE.fullmatch(lower):
        return lower.rjust(2 * num_bytes, "0"), False
    try:
        # Some writers leave the padding off or use the alphabet for URLs.
        plain = text.rstrip("=").replace("-", "+").replace("_", "/")
        value = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None, False
    return (value.hex(), True) if len(value) == num_bytes else (None, False)
