"""Drives the compiled scanner over a window; what that one gives up on is read slowly."""

from __future__ import annotations

from tokenpath.ingest.kineto.fast_rows import GroupSink
from tokenpath.ingest.kineto.fast_texts import FastTexts, address
from tokenpath.ingest.kineto.slow import SlowScanner
from tokenpath.ingest.kineto.sorting import Sorter
from tokenpath.ingest.kineto.state import PADDING, Op, S, Status
from tokenpath.ingest.kineto.window import Window

_NEVER = 2**62


class FastScanner:
    """Reads the list of events with the compiled scanner; what that one gives up on, slowly."""

    def __init__(self, texts: FastTexts, sorter: Sorter) -> None:
        self.texts = texts
        self._sink = GroupSink(texts, sorter)
        self._slow = SlowScanner(texts, self._sink)
        self.num_slow_events = 0
        """Events that went through the slow scanner."""

    def take_rows(self) -> Sorter:
        """What was read so far, which leaves the scanner; codes and numbers go on."""
        sorter = self._sink.sorter
        self._sink.restart(Sorter())
        return sorter

    def scan(self, window: Window, start: int, stop: int | None = None) -> tuple[int, bool]:
        """Read events from the byte after `[` on; (offset after them, whether `]` was reached).

        With `stop`, no event that begins there or later is read.
        """
        state, sink, at = self.texts.state, self._sink, start
        while True:
            if stop is not None and at > stop:
                sink.flush()
                return at, False
            origin = address(window.data) - window.base
            state[S.POSITION] = origin + at
            state[S.LIMIT] = max(origin + window.end - PADDING, origin + at)
            state[S.BASE] = -origin
            state[S.STOP] = _NEVER if stop is None else origin + stop
            status = self.texts.run(Op.SCAN)
            at = int(state[S.POSITION]) - origin
            window.report(at)
            if status == Status.GROW:
                self.texts.grow()
            elif status == Status.GROUP_FULL:
                sink.make_room()
            elif status in (Status.END, Status.STOPPED):
                sink.flush()
                return at, status == Status.END
            elif status == Status.FALLBACK:
                at, ended = self._slow.scan_one(window, at)
                self.num_slow_events += 1
                if ended:
                    sink.flush()
                    return at, False
            elif window.at_end or not window.pull(at):
                # The last bytes: too few for the compiled scanner to look ahead.
                return self._slow.scan(window, at)
