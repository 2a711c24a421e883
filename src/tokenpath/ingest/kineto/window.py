"""A view of the unpacked bytes that moves forward: all of a mapped file, or a few chunks of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


class Window:
    """Bytes from `base` on; `pull` adds more at the end and drops what is no longer needed."""

    def __init__(self, chunks: Iterator[Bytes], report: Callable[[int], None]) -> None:
        """`report` is told how far the scanner has come."""
        self._chunks = chunks
        self.report = report
        self.data: Bytes = np.empty(0, np.uint8)
        self.base = 0
        """Offset of `data[0]` in the unpacked bytes."""
        self.at_end = False
        """Whether `data` reaches to the end of the input."""

    def pull(self, keep_from: int) -> bool:
        """Drop what is before `keep_from`, add a chunk; False when there is no more."""
        return self.pull_to(self.end + 1, keep_from)

    def pull_to(self, end: int, keep_from: int) -> bool:
        """Drop what is before `keep_from`, add chunks up to `end`; False when not one was left."""
        chunks: list[Bytes] = []
        reached = self.end
        while reached < end and not self.at_end:
            chunk = next(self._chunks, None)
            if chunk is None:
                self.at_end = True
            else:
                chunks.append(chunk)
                reached += len(chunk)
        if not chunks:
            return False
        rest = self.data[max(0, keep_from - self.base) :]
        self.base += len(self.data) - len(rest)
        parts = [rest, *chunks] if len(rest) else chunks
        self.data = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return True

    def rewind(self, base: int, data: list[Bytes], rest_from: int) -> None:
        """Put dropped bytes back: `data` from offset `base` on, and what is held from `rest_from` on."""
        self.data = np.concatenate([*data, self.data[rest_from - self.base :]])
        self.base = base

    @property
    def view(self) -> memoryview:
        """`data` for a regular expression."""
        view: memoryview = self.data.data
        return view

    @property
    def end(self) -> int:
        """Offset of the end of `data`."""
        return self.base + len(self.data)

    def read(self, start: int, size: int) -> bytes:
        """Up to `size` bytes from offset `start`; fewer only at the end of the input."""
        while self.end < start + size and self.pull(start):
            pass
        at = start - self.base
        return self.data[at : at + size].tobytes()
