"""The slow scanner: any valid JSON, one event at a time, with the decoder of the standard library."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tokenpath.ingest.kineto.event import MAX_DEPTH, NotAnEvent, depth_of, make_row
from tokenpath.ingest.kineto.rows import Sink
from tokenpath.ingest.kineto.special import keep_special
from tokenpath.ingest.kineto.texts import Texts, make_decoder
from tokenpath.ingest.kineto.window import Window

MAX_VALUE_BYTES = 64 * 2**20
"""One JSON value (an event, a header entry) larger than this is damage, not a trace."""
_SEGMENT_BYTES = 2**20
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_RESYNC = re.compile(rb'[,}\]][ \t\r\n]*(?=\{[ \t\r\n]*")|\}[ \t\r\n]*(?=\][ \t\r\n]*(?:[,}]|\Z))')
"""Where an event may begin or the list of events end, after a damaged one."""
_CUT_MARGIN = 12
"""A decoder error this close to the end of the text may come from the cut, not from the text."""


class Damaged(ValueError):
    """A value that is no JSON, or not one that a trace may hold; the message is the reason."""


class Truncated(Exception):
    """The input ends within a value."""


@dataclass(frozen=True)
class Value:
    """A decoded JSON value and where it lies."""

    value: object
    """Decoded; floats are text."""
    end: int
    """Offset after its last byte."""


def decode(data: bytes) -> str:
    """Text whose length in bytes can be recovered, whatever the bytes are."""
    return data.decode("utf-8", "surrogateescape")


def num_bytes_of(text: str) -> int:
    """How many bytes `decode` made this text of."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


_scan = make_decoder()


def decode_value(window: Window, start: int) -> Value:
    """The JSON value that begins at an offset; raises Damaged or Truncated."""
    size = 2**12
    while True:
        data = window.read(start, size)
        is_whole = len(data) < size
        text = decode(data)
        try:
            value, end = _scan(text, 0)
        except (ValueError, StopIteration) as error:
            if not may_be_cut(error, text):
                raise Damaged("malformed event") from None
            if is_whole:
                raise Truncated from None
        except RecursionError:
            raise Damaged("nested too deeply") from None
        else:
            # A number at the very end may go on in the bytes that follow.
            if end < len(text) or is_whole:
                if depth_of(text[:end]) > MAX_DEPTH:
                    raise Damaged("nested too deeply")
                return Value(value, start + num_bytes_of(text[:end]))
        if size >= MAX_VALUE_BYTES:
            raise Damaged("value too large")
        size *= 8


def may_be_cut(error: Exception, text: str) -> bool:
    """Whether more text could turn a decoder error into a value."""
    if isinstance(error, StopIteration):
        position = error.value
    elif isinstance(error, json.JSONDecodeError):
        if error.msg.startswith("Unterminated string"):
            return True
        position = error.pos
    else:
        return False
    return bool(position >= len(text) - _CUT_MARGIN)


def find_next_event(window: Window, start: int) -> int:
    """Offset at which reading can go on after a damaged event at `start`; the end of the input if none."""
    at = start + 1
    while True:
        match = _RESYNC.search(window.view, at - window.base)
        # The pattern looks ahead; a match at the edge of the window could change with more bytes.
        if match is not None and (window.at_end or match.end() < len(window.data) - 64):
            return window.base + match.end()
        at = max(at, window.end - 256) if match is None else at
        if not window.pull(at):
            if match is None:
                return window.end
            return window.base + match.end()


class SlowScanner:
    """Reads the list of events with the standard decoder."""

    def __init__(self, texts: Texts, sink: Sink) -> None:
        self._texts = texts
        self._sink = sink

    def scan(self, window: Window, start: int) -> tuple[int, bool]:
        """Read events from the byte after `[` on; (offset after them, whether `]` was reached)."""
        at = start
        while True:
            window.report(at)
            data = window.read(at, _SEGMENT_BYTES)
            at, state = self._scan_segment(decode(data), at, is_last=len(data) < _SEGMENT_BYTES)
            if state == "end":
                self._sink.flush()
                return at, True
            if state == "more" and len(data) < _SEGMENT_BYTES:
                self._sink.flush()
                return at, False
            if state == "hard":
                at, ended = self.scan_one(window, at)
                if ended:
                    self._sink.flush()
                    return at, False

    def scan_one(self, window: Window, start: int) -> tuple[int, bool]:
        """Read the one value at an offset, or skip the damage; (offset after it, whether input ends)."""
        try:
            found = decode_value(window, start)
        except (Truncated, Damaged) as damage:
            after = find_next_event(window, start)
            ended = window.at_end and after >= window.end
            # A quote that is missing looks like a cut, but events follow it.
            is_cut = isinstance(damage, Truncated)
            reason = str(damage) if not is_cut else "truncated" if ended else "malformed event"
            self._sink.sorter.losses.add(reason, offset=start)
            self._sink.sorter.num_events += 1
            return after, ended
        self._keep(found.value, start)
        return found.end, False

    def _scan_segment(self, text: str, start: int, *, is_last: bool) -> tuple[int, str]:
        """(offset reached, `end` | `more` text needed | `hard` value to be read alone)."""
        is_ascii = text.isascii()
        between, position, counted, offset = _BETWEEN.match, 0, 0, start
        state = "more"
        while True:
            position = between(text, position).end()  # type: ignore[union-attr]
            offset += position - counted if is_ascii else num_bytes_of(text[counted:position])
            counted = position
            if position >= len(text):
                break
            if text[position] == "]":
                return offset + 1, "end"
            try:
                value, end = _scan(text, position)
            except (ValueError, StopIteration, RecursionError) as error:
                cut = not isinstance(error, RecursionError) and may_be_cut(error, text)
                # A value that fills a segment is too large for it; the damaged are read alone, too.
                state = "more" if cut and position > 0 and not is_last else "hard"
                break
            if end >= len(text) and not is_last:
                break
            # So many brackets take at least as many bytes.
            if end - position > MAX_DEPTH and depth_of(text[position:end]) > MAX_DEPTH:
                state = "hard"
                break
            self._keep(value, offset)
            position = end
        return offset, state

    def _keep(self, value: object, offset: int) -> None:
        sorter = self._sink.sorter
        if not isinstance(value, dict):
            sorter.losses.add("not an object", offset=offset)
            sorter.num_events += 1
            return
        try:
            row = make_row(value, offset, self._texts)
        except NotAnEvent as reason:
            if value:
                sorter.losses.add(str(reason), offset=offset)
            else:
                sorter.losses.add("empty object", offset=offset, lost=False)
            sorter.num_events += 1
            return
        if keep_special(value, row, self._texts, sorter):
            return
        self._sink.add(row)
