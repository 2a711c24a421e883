"""One file of the Kineto format, read into rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.kineto.categories import FIRST_TEXTS
from tokenpath.ingest.kineto.document import Header, read_document
from tokenpath.ingest.kineto.rows import RowBuffer
from tokenpath.ingest.kineto.slow import SlowScanner
from tokenpath.ingest.kineto.sorting import Sorter
from tokenpath.ingest.kineto.texts import SlowTexts
from tokenpath.ingest.kineto.window import Window
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.packed import Unpacked, open_unpacked
from tokenpath.ingest.reader import Options
from tokenpath.ingest.workers import worker_count

if TYPE_CHECKING:
    from tokenpath.ingest.kineto.fast import FastScanner
    from tokenpath.ingest.kineto.fast_texts import FastTexts
    from tokenpath.ingest.kineto.parallel import ParallelScanner

FAST_FROM_BYTES = 4 * 2**20
"""Smaller files (unpacked) are read by the slow scanner."""
MAPPED_PIECE_BYTES = 16 * 2**20
"""Threads take pieces of about this size of a mapped file."""
STREAMED_PIECE_BYTES = 4 * 2**20
"""The same of a packed one, whose pieces are held in memory."""
THREADS_FROM_BYTES = 32 * 2**20
"""Several threads scan a mapped file of at least this size."""
THREADS_FROM_PACKED_BYTES = 2**21
"""Likewise a packed file, by its stored size; traces pack 10 to 40 times."""
_UNPACKED_APART_FROM_BYTES = 2**19
"""A packed file of at least this size is unpacked by a thread of its own."""
_HASHED_BYTES = 64 * 2**20
"""Larger files are not hashed: that would cost as much as reading them."""


@dataclass
class FileRows:
    """What one file holds, before tables."""

    path: Path
    """Where it was read from."""
    sorter: Sorter
    """Its rows and losses."""
    header: Header
    """What stands beside the events."""
    texts: list[str]
    """Distinct texts by code, as the file has them."""
    pairs: NDArray[np.int32]
    """(pid, tid) text codes by pair number, an array (num_pairs, 2)."""
    num_stored_bytes: int
    """Size of the stored file."""
    sha256: str | None
    """Hash of the stored file; None for one too large to hash."""


def read_file(path: Path, options: Options) -> FileRows:
    """Read one file. InputError when it cannot be opened or holds no list of events."""
    num_workers = worker_count(options.num_workers)
    unpacked = open_unpacked(
        path,
        max_bytes=options.max_bytes,
        progress=options.progress,
        in_thread=num_workers > 1 and path.stat().st_size >= _UNPACKED_APART_FROM_BYTES,
    )
    sorter, window = Sorter(), Window(unpacked.chunks, unpacked.report_scanned)
    texts, scanner = _choose_scanner(window, sorter, options, unpacked, num_workers)
    header = read_document(window, scanner.scan, sorter.losses, str(path))
    unpacked.report_done()
    _note_problems(unpacked, sorter.losses)
    return FileRows(
        path, sorter, header, texts.texts(), texts.pairs(), unpacked.num_stored_bytes, _hash(path)
    )


def _choose_scanner(
    window: Window, sorter: Sorter, options: Options, unpacked: Unpacked, num_workers: int
) -> tuple[SlowTexts | FastTexts, SlowScanner | FastScanner | ParallelScanner]:
    """The compiled scanner for large files: loading it takes as long as reading a small one without."""
    choice = options.scanner
    if choice == "auto":
        while len(window.data) < FAST_FROM_BYTES and window.pull(0):
            pass
        choice = "slow" if len(window.data) < FAST_FROM_BYTES else "fast"
    if choice == "fast":
        from tokenpath.ingest.kineto.fast import FastScanner
        from tokenpath.ingest.kineto.fast_texts import FastTexts

        fast_texts = FastTexts()
        is_plain = unpacked.container == "plain"
        threads_from = THREADS_FROM_BYTES if is_plain else THREADS_FROM_PACKED_BYTES
        if num_workers > 1 and unpacked.num_stored_bytes >= threads_from:
            from tokenpath.ingest.kineto.parallel import ParallelScanner

            piece_bytes = MAPPED_PIECE_BYTES if is_plain else STREAMED_PIECE_BYTES
            return fast_texts, ParallelScanner(fast_texts, sorter, num_workers, piece_bytes)
        return fast_texts, FastScanner(fast_texts, sorter)
    texts = SlowTexts()
    for text in FIRST_TEXTS:
        texts.code(text)
    return texts, SlowScanner(texts, RowBuffer(sorter))


def _note_problems(unpacked: Unpacked, losses: Losses) -> None:
    for problem in unpacked.problems:
        losses.add(problem.split(":")[0], dropped=False)


def _hash(path: Path) -> str | None:
    if path.stat().st_size > _HASHED_BYTES:
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
