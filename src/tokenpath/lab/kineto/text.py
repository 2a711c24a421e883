"""Events as text: fixed pieces and numbers in turn, put together by a compiled loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.compiled import compiled

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

NOTHING = -(1 << 62)
"""A number that is not written."""
NULL = NOTHING + 1
"""A number that is written as null."""
PIECES = 6
NUMBERS = 5
"""A row is piece, ts, piece, dur, piece, number, piece, number, piece, number, piece."""
DIGITS_MAX = 24


@compiled
def fill(texts: U8, first: I64, pieces: I64, numbers: I64, digits: U8, out: U8) -> int:
    """Write all rows to `out`; the number of bytes comes back. The first two numbers are ns, written in us."""
    at = 0
    for row in range(pieces.shape[0]):
        for k in range(PIECES):
            piece = pieces[row, k]
            for place in range(first[piece], first[piece + 1]):
                out[at] = texts[place]
                at += 1
            if k >= NUMBERS:
                continue
            value = numbers[row, k]
            if value == NOTHING:
                continue
            if value == NULL:
                out[at] = 110
                out[at + 1] = 117
                out[at + 2] = 108
                out[at + 3] = 108
                at += 4
                continue
            if value < 0:
                out[at] = 45
                at += 1
                value = -value
            count = 0
            while value > 0 or count == 0 or (k < 2 and count < 4):
                digits[count] = 48 + value % 10
                value //= 10
                count += 1
            while count > 0:
                count -= 1
                out[at] = digits[count]
                at += 1
                if k < 2 and count == 3:
                    out[at] = 46
                    at += 1
    return at


class Texts:
    """Numbers of pieces."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {"": 0}

    def of(self, text: str) -> int:
        """Number of a piece."""
        return self._number.setdefault(text, len(self._number))

    def render(self, pieces: Sequence[I64], numbers: Sequence[I64]) -> bytes:
        """The text of rows, given in groups of (rows, PIECES) and (rows, NUMBERS)."""
        stored = [text.encode() for text in self._number]
        lengths = np.array([len(text) for text in stored], np.int64)
        first = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        all_pieces = np.ascontiguousarray(np.concatenate(pieces))
        all_numbers = np.ascontiguousarray(np.concatenate(numbers))
        size = int(lengths[all_pieces].sum()) + all_numbers.size * DIGITS_MAX
        out = np.empty(size, np.uint8)
        texts = np.frombuffer(b"".join(stored), np.uint8).copy()
        used = fill(1 << 30)(
            texts, first, all_pieces, all_numbers, np.empty(DIGITS_MAX, np.uint8), out
        )
        return out[:used].tobytes()
