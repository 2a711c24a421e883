"""Columns that outgrow memory: rows are appended batch by batch, and read back from a file mapped into memory.

A long run has a hundred steps a request, so its steps, kept as they are, would take ten times the memory of all
else. In a file that is mapped they are the same arrays to whoever reads them, and the system may drop their
pages whenever it needs room.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tokenpath.core.errors import UsageError

Column = NDArray[Any]

MEMORY_ROWS = 16_384
"""Rows up to which columns stay in memory."""


class Spool:
    """Columns of one length that are written once, in order, and then read.

    The file has no name, so that nothing is left behind however the process ends; it lies in the system's
    folder for temporary files (TMPDIR).
    """

    def __init__(self, dtypes: Sequence[DTypeLike], memory_rows: int | None = None) -> None:
        """`memory_rows` None: MEMORY_ROWS."""
        self._dtypes = [np.dtype(one) for one in dtypes]
        self._memory_rows = MEMORY_ROWS if memory_rows is None else memory_rows
        self._blocks: list[list[Column]] = []
        self._num_rows: list[int] = []
        self._files = ExitStack()
        self._file: IO[bytes] | None = None
        self._columns: list[Column] | None = None

    def __len__(self) -> int:
        return sum(self._num_rows)

    def append(self, columns: Sequence[Column]) -> None:
        """More rows of every column; they are copied. UsageError when the file cannot be written."""
        self._num_rows.append(len(columns[0]))
        if self._file is None and len(self) > self._memory_rows:
            self._file = self._files.enter_context(_scratch_file())
            for held in self._blocks:
                self._write(self._file, held)
            self._blocks.clear()
        if self._file is None:
            kinds = zip(columns, self._dtypes, strict=True)
            self._blocks.append([np.array(column, dtype) for column, dtype in kinds])
        else:
            self._write(self._file, columns)

    def finish(self) -> list[Column]:
        """Each column as a whole; nothing may be appended from now on."""
        if self._columns is None:
            self._columns = self._in_memory() if self._file is None else self._mapped(self._file)
        return self._columns

    def _in_memory(self) -> list[Column]:
        found: list[Column] = [
            np.concatenate([block[i] for block in self._blocks] or [np.empty(0, dtype)])
            for i, dtype in enumerate(self._dtypes)
        ]
        self._blocks.clear()
        return found

    def _mapped(self, file: IO[bytes]) -> list[Column]:
        with self._files, _scratch_file() as whole:
            self._gather(file, whole)
            mapped = mmap.mmap(whole.fileno(), 0, access=mmap.ACCESS_READ)
        columns, begin = [], 0
        for dtype in self._dtypes:
            columns.append(np.frombuffer(mapped, dtype, len(self), begin))
            begin += len(self) * dtype.itemsize
        return columns

    def _gather(self, blocks: IO[bytes], whole: IO[bytes]) -> None:
        """From one block after the other to one column after the other."""
        row_bytes = sum(dtype.itemsize for dtype in self._dtypes)
        before = 0
        for dtype in self._dtypes:
            begin = 0
            for num_rows in self._num_rows:
                blocks.seek(begin + before * num_rows)
                _write(whole, blocks.read(num_rows * dtype.itemsize))
                begin += num_rows * row_bytes
            before += dtype.itemsize
        whole.flush()

    def _write(self, file: IO[bytes], block: Sequence[Column]) -> None:
        for column, dtype in zip(block, self._dtypes, strict=True):
            _write(file, np.ascontiguousarray(column, dtype).data)


@contextmanager
def _scratch_file() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile(prefix="tokenpath-") as file:
        yield file


def _write(file: IO[bytes], data: bytes | memoryview) -> None:
    try:
        file.write(data)
    except OSError as error:
        raise UsageError(
            f"steps of the run cannot be kept: {error}",
            where=tempfile.gettempdir(),
            next_step="set TMPDIR to a folder with room",
        ) from None
