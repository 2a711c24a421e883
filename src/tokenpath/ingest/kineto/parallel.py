"""Several threads on one file, by guesses that are checked.

The list of events is cut where an event seems to begin. A piece counts only if the one before it ended at
exactly that place, expecting an event; else it is thrown away with all behind it, and one scanner reads on
alone. So the result is that of one thread, whatever the file holds, and whichever thread was faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.kineto.fast import FastScanner
from tokenpath.ingest.kineto.fast_texts import FastTexts
from tokenpath.ingest.kineto.pieces import OutOfPiece, Piece, cut, rewind
from tokenpath.ingest.kineto.sorting import TEXT_FIELDS, Sorter, remap_rows
from tokenpath.ingest.kineto.window import Window

_PIECES_AHEAD = 2
"""So many more pieces than threads are cut and held."""


@dataclass
class _Scanned:
    """What one scanner found in one piece."""

    texts: FastTexts
    """Of the scanner; they go on growing."""
    num_texts: int
    """How many there were at the end of the piece."""
    num_pairs: int
    """Likewise."""
    sorter: Sorter
    """The rows of this piece, with the codes of `texts`."""
    at: int
    """Offset reached."""
    closed: bool
    """Whether the list of events was closed."""


class ParallelScanner:
    """Reads the list of events with several compiled scanners."""

    def __init__(
        self, texts: FastTexts, sorter: Sorter, num_workers: int, piece_bytes: int
    ) -> None:
        self._piece_bytes = piece_bytes
        self._texts = texts
        self._sorter = sorter
        self._num_workers = num_workers
        self.num_pieces = 0
        """How many pieces were read side by side."""
        self.num_discarded = 0
        """How often a guess was wrong."""

    def scan(self, window: Window, start: int) -> tuple[int, bool]:
        """Read events from the byte after `[` on; (offset after them, whether `]` was reached)."""
        done: list[_Scanned] = []
        with ThreadPoolExecutor(self._num_workers, "tokenpath-scan") as pool:
            last, left = self._scan_pieces(window, start, pool, done)
        at = done[-1].at if done else start
        closed = bool(done) and done[-1].closed
        if left:
            rewind(window, left)
        if not closed and (last is None or last.stop is not None):
            alone = FastScanner(FastTexts(), Sorter())
            at, closed = alone.scan(window, at)
            done.append(_scanned(alone, at, closed))
        self._join(done)
        return at, closed

    def _scan_pieces(
        self, window: Window, start: int, pool: ThreadPoolExecutor, done: list[_Scanned]
    ) -> tuple[Piece | None, list[Piece]]:
        """(last piece that counts, if any; pieces whose bytes must be read again or may be)."""
        free = deque(FastScanner(FastTexts(), Sorter()) for _ in range(self._num_workers))
        pieces = cut(window, start, self._piece_bytes)
        running: deque[tuple[Piece, Future[_Scanned | None]]] = deque()
        last: Piece | None = None
        while True:
            _submit(pieces, running, pool, free, self._num_workers + _PIECES_AHEAD)
            if not running:
                # Nothing was cut behind the last piece, so the window still has its bytes.
                return last, [] if last is None else [last]
            piece, future = running.popleft()
            found = future.result()
            others = [other for other, _ in running]
            if found is None or not (found.closed or piece.stop in (None, found.at)):
                self.num_discarded += 1
                return last, [piece, *others]
            done.append(found)
            self.num_pieces += 1
            last = piece
            window.report(found.at)
            if found.closed or piece.stop is None:
                return last, [piece, *others]

    def _join(self, done: list[_Scanned]) -> None:
        """All rows to the own sorter, in the order of the file; texts get the codes one scanner gives."""
        # One more at the end, so that -1 stays -1.
        codes = {id(one.texts): np.full(one.texts.num_texts + 1, -1, np.int32) for one in done}
        numbers = {id(one.texts): np.full(one.texts.num_pairs + 1, -1, np.int32) for one in done}
        known = {id(one.texts): (0, 0) for one in done}
        for one in done:
            own = id(one.texts)
            first_text, first_pair = known[own]
            self._texts.adopt(one.texts, codes[own], first_text, one.num_texts)
            pairs = codes[own][one.texts.pairs(first_pair, one.num_pairs)]
            numbers[own][first_pair : one.num_pairs] = self._texts.pair_numbers(pairs)
            known[own] = (one.num_texts, one.num_pairs)
            _append(self._sorter, one.sorter, codes[own], numbers[own])


def _submit(
    pieces: Iterator[Piece],
    running: deque[tuple[Piece, Future[_Scanned | None]]],
    pool: ThreadPoolExecutor,
    free: deque[FastScanner],
    num_wanted: int,
) -> None:
    while len(running) < num_wanted:
        piece = next(pieces, None)
        if piece is None:
            return
        running.append((piece, pool.submit(_scan_piece, piece, free)))


def _scan_piece(piece: Piece, free: deque[FastScanner]) -> _Scanned | None:
    """Read one piece with a scanner that is free; None if the piece was too short for it."""
    # There are as many scanners as threads, so one is free; each sees its pieces in the order of the file.
    scanner = free.popleft()
    try:
        at, closed = scanner.scan(piece, piece.base, piece.stop)
    except OutOfPiece:
        return None
    else:
        return _scanned(scanner, at, closed)
    finally:
        free.append(scanner)


def _scanned(scanner: FastScanner, at: int, closed: bool) -> _Scanned:
    texts = scanner.texts
    return _Scanned(texts, texts.num_texts, texts.num_pairs, scanner.take_rows(), at, closed)


def _append(one: Sorter, two: Sorter, codes: NDArray[np.int32], numbers: NDArray[np.int32]) -> None:
    """Append rows and counts to those of another sorter, with other codes."""
    for name, store in two.stores.items():
        store.remap(TEXT_FIELDS[name], codes)
        if any(field.name == "pair" for field in store.fields):
            store.remap(("pair",), numbers)
    for owner in ("op", "kernel"):
        two.stores[f"{owner}_collective"].shift("row", one.stores[owner].num_rows)
    for name, store in two.stores.items():
        one.stores[name].extend(store)
    for rows in two.begin_end:
        remap_rows(rows, codes, numbers)
    one.begin_end += two.begin_end
    one.counters += [
        (sort, start, end, int(codes[name]), int(codes[key]), value)
        for sort, start, end, name, key, value in two.counters
    ]
    one.losses.merge(two.losses)
    one.num_events += two.num_events
