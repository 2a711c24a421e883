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
        self.pull(0)

    def twin(self, report: Callable[[int], None]) -> Window:
        """The same bytes for another scanner; the input must be at its end."""
        twin = Window(iter(()), report)
        twin.data, twin.base, twin.at_end = self.data, self.base, self.at_end
        return twin

    def pull(self, keep_from: int) -> bool:
        """Drop what is before `keep_from`, add a chunk; False when there is no more."""
        if self.at_end:
            return False
        chunk = next(self._chunks, None)
        if chunk is None:
            self.at_end = True
            return False
        rest = self.data[max(0, keep_from - self.base) :]
        self.base += len(self.data) - len(rest)
        self.data = chunk if len(rest) == 0 else np.concatenate((rest, chunk))
        return True

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
