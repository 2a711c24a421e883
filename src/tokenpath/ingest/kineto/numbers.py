"""Decimal text to integers, exactly."""

from __future__ import annotations

import math
import re
import struct

from tokenpath.ingest.kineto.columns import NULL

_DECIMAL = re.compile(r"(-?)(\d{1,400})(?:\.(\d{0,400}))?(?:[eE]([+-]?\d{1,4}))?")
_NUM_DIGITS_OF_RANGE = 40
"""10**40 is far outside int64 nanoseconds: larger powers need not be computed."""


def parse_ns(text: str) -> tuple[int, bool] | None:
    """Microseconds as decimal text to (ns rounded down, whether digits were cut); None if no number.

    The result may lie outside int64; a power of ten beyond any range is returned as 2**200.
    """
    match = _DECIMAL.fullmatch(text.strip())
    if match is None:
        return None
    sign, whole, fraction, exponent = match.groups()
    digits = int(whole + (fraction or ""))
    shift = int(exponent or 0) - len(fraction or "") + 3
    if shift >= 0:
        if shift > _NUM_DIGITS_OF_RANGE and digits:
            return (-(2**200) if sign else 2**200), False
        value, rest = digits * 10 ** min(shift, _NUM_DIGITS_OF_RANGE), 0
        return (-value if sign else value), False
    value, rest = divmod(-digits if sign else digits, 10 ** min(-shift, 1000))
    return value, rest != 0


def parse_int64(value: object) -> int:
    """An int64 from a JSON value (numbers may be text); NULL when it is none."""
    if type(value) is int:
        number = value
    elif isinstance(value, str):
        try:
            number = int(value)
        except ValueError:
            return NULL
    else:
        return NULL
    return number if NULL < number < 2**63 else NULL


def parse_real_bits(value: object) -> int:
    """The bit pattern of a finite float64 from a JSON value (numbers may be text); NULL if none."""
    if type(value) is not int and not isinstance(value, str):
        return NULL
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return NULL
    if not math.isfinite(number):
        return NULL
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    # -0.0 has the bit pattern of NULL.
    return 0 if bits == NULL else bits
