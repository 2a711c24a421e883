"""The list of events cut into pieces that scanners may read side by side, by guesses to be checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tokenpath.ingest.kineto.window import Bytes, Window

SLACK_BYTES = 2**16
"""Bytes behind a piece that its scanner may look at: more than the slow one reads for one event at first."""
_MAX_REACH_BYTES = 16 * 2**20
"""Where nothing like an event is found this far on, cutting ends."""
_SEARCHED_BYTES = 2**18
_EVENT = re.compile(
    rb'\}[ \t\r\n]*,[ \t\r\n]*(?P<event>\{[ \t\r\n]*"(?:ph|name|cat|pid|args|attr)"[ \t\r\n]*:)'
)


class OutOfPiece(Exception):
    """A scanner asked for bytes that its piece does not have."""


class Piece(Window):
    """The bytes of some events in a row, and a few more so that their scanner can look ahead."""

    def __init__(self, data: Bytes, base: int, stop: int | None) -> None:
        """`stop` is where the next piece begins; None for the last one, which ends with the input."""
        super().__init__(iter(()), lambda _: None)
        self.data, self.base, self.stop = data, base, stop
        self.at_end = stop is None

    def pull_to(self, _end: int, _keep_from: int) -> bool:
        """There is no more: False at the end of the input, else OutOfPiece."""
        if self.at_end:
            return False
        raise OutOfPiece


def cut(window: Window, start: int, size: int) -> Iterator[Piece]:
    """Pieces of about `size` bytes from offset `start` on; without a last one if no place to cut was found.

    Every piece but the last ends where an event seems to begin. The window moves on to the last piece cut.
    """
    while True:
        stop, found = _find_stop(window, start, size)
        first = start - window.base
        if stop is None:
            if found:
                yield Piece(window.data[first:], start, None)
            return
        yield Piece(window.data[first : stop + SLACK_BYTES - window.base], start, stop)
        start = stop


def _find_stop(window: Window, start: int, size: int) -> tuple[int | None, bool]:
    """(where the piece from `start` on ends, None at the end of the input; whether an end was found)."""
    reach = size
    while reach <= max(size, _MAX_REACH_BYTES):
        needed = start + reach + _SEARCHED_BYTES + SLACK_BYTES
        window.pull_to(needed, start)
        at = start + reach - window.base
        match = _EVENT.search(window.view, at, at + _SEARCHED_BYTES)
        if match is not None and match.start("event") + SLACK_BYTES <= len(window.data):
            return window.base + match.start("event"), True
        if window.at_end and window.end <= needed:
            return None, True
        reach += _SEARCHED_BYTES
    return None, False


def rewind(window: Window, pieces: Sequence[Piece]) -> None:
    """Give the window back the bytes of pieces that followed one another, the last one cut last of all."""
    if pieces[0].base < window.base:
        whole = [piece.data[: piece.stop - piece.base] for piece in pieces[:-1] if piece.stop]
        window.rewind(pieces[0].base, whole, pieces[-1].base)
