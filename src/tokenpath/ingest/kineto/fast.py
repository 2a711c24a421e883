"""Drives the compiled scanner: chunks in, sorted rows out, single events through the slow scanner."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.kineto.columns import NULL, NUM_COLUMNS, Col
from tokenpath.ingest.kineto.fast_texts import FastTexts, address
from tokenpath.ingest.kineto.machine import PADDING
from tokenpath.ingest.kineto.numbers import parse_real_bits
from tokenpath.ingest.kineto.scan import scan
from tokenpath.ingest.kineto.slow import SlowScanner
from tokenpath.ingest.kineto.sorting import Sorter
from tokenpath.ingest.kineto.state import LONG_REAL, S, Status
from tokenpath.ingest.kineto.window import Window

ROWS_PER_CHUNK = 8192
"""Rows between two visits to the sorter: few enough for the caches, many enough for NumPy."""
_LONG_REAL_MASK = -(2**48)


class FastScanner:
    """Reads the list of events with the compiled scanner; what that one gives up on, slowly."""

    def __init__(self, texts: FastTexts, sorter: Sorter) -> None:
        self._texts = texts
        self._sorter = sorter
        self._slow = SlowScanner(texts, sorter)
        self._rows = np.empty((ROWS_PER_CHUNK, NUM_COLUMNS), np.int64)
        self.num_slow_events = 0
        """Events that went through the slow scanner."""
        texts.state[S.ROWS] = address(self._rows)
        texts.state[S.MAX_ROWS] = ROWS_PER_CHUNK

    def scan(self, window: Window, start: int) -> tuple[int, bool]:
        """Read events from the byte after `[` on; (offset after them, whether `]` was reached)."""
        state, at = self._texts.state, start
        while True:
            origin = address(window.data) - window.base
            state[S.POSITION] = origin + at
            state[S.LIMIT] = max(origin + window.end - PADDING, origin + at)
            state[S.BASE] = -origin
            status = scan(address(state))
            at = int(state[S.POSITION]) - origin
            if status == Status.GROW:
                # The text that did not fit may be as long as what is left of the window.
                self._texts.grow(min(window.end - at, 2**20))
            elif status == Status.ROWS_FULL:
                self._flush()
            elif status == Status.END:
                self._flush()
                return at, True
            elif status == Status.MORE and not window.at_end:
                if not window.pull(at):
                    continue
            elif status == Status.MORE:
                # The last bytes, too few for the scanner to look ahead.
                self._flush()
                return self._slow.scan(window, at)
            else:
                self._flush()
                at, ended = self._slow.scan_one(window, at)
                self._slow.flush()
                self.num_slow_events += 1
                if ended:
                    return at, False

    def _flush(self) -> None:
        state = self._texts.state
        rows = self._rows[: state[S.NUM_ROWS]]
        if state[S.HAS_LONG_REALS]:
            self._resolve_long_reals(rows)
            state[S.HAS_LONG_REALS] = 0
        self._sorter.add(rows)
        state[S.NUM_ROWS] = 0

    def _resolve_long_reals(self, rows: NDArray[np.int64]) -> None:
        for column in (Col.BLOCKS_PER_SM, Col.WARPS_PER_SM, Col.OCCUPANCY):
            values = rows[:, column]
            for row in np.flatnonzero((values & _LONG_REAL_MASK) == LONG_REAL).tolist():
                if values[row] != NULL:
                    values[row] = parse_real_bits(self._texts.text(int(values[row]) & 0xFFFFFFFF))
