"""A JSON document read front to back in pieces: values are decoded where the caller wants them, else skipped.

What a document holds is told by paths: member names, and `*` for an element of a list. At each value the
visitor says what to do with it (`Take`), so a list of a million records is never held as objects.
"""

from __future__ import annotations

import codecs
import enum
import json
import re
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.kineto.texts import make_decoder
from tokenpath.ingest.losses import Losses

Path = tuple[str, ...]

MAX_VALUE_CHARS = 64 * 2**20
"""One value (a record, a header entry) longer than this is damage."""
MAX_DEPTH = 64
"""Lists and objects that are entered, or skipped, nest no deeper than this."""

_PIECE_BYTES = 2**18
_DROP_CHARS = 2**20
_CUT_MARGIN = 12
"""A decoder error this close to the end of the text may come from the cut, not from the text."""
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_SPACE = re.compile(r"[ \t\r\n]*")
_MARK = re.compile(r'["\[\]{}]')
_STRING_REST = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_RESYNC = re.compile(r'[,}\]][ \t\r\n]*(?=\{[ \t\r\n]*")|\}[ \t\r\n]*(?=\][ \t\r\n]*(?:[,}]|\Z))')
"""Where a record may begin or its list end, after a damaged one."""

_scan = make_decoder()


class Take(enum.Enum):
    """What to do with a value."""

    SKIP = 0
    WHOLE = 1
    """Decode it and give it to `take`."""
    ENTER = 2
    """Ask again for each member or element; a plain value is decoded."""
    EACH = 3
    """Decode each element of the list and give it to `take`; anything else as with WHOLE."""


class Visitor(Protocol):
    """Who wants to know what a document holds."""

    def choose(self, path: Path, opens: str, /) -> Take:
        """What to do with the value at a path that begins with this character."""

    def take(self, path: Path, value: object, stream: JsonStream, /) -> None:
        """A decoded value; for EACH the path is that of the list. Floats are text."""

    def leave(self, path: Path, /) -> None:
        """A value that was entered is done (or the input has ended within it)."""

    def damaged(self, path: Path, /) -> None:
        """An element of a list that is read by EACH was damaged; it is counted as a loss already."""


class _Cut(Exception):
    """The input ends here."""


class _Damaged(ValueError):
    """No JSON, or not one that is read; the message is the reason."""


class JsonStream:
    """A position in a document."""

    def __init__(self, chunks: Iterable[NDArray[np.uint8]], losses: Losses) -> None:
        """`chunks` are the bytes of the document; what cannot be read is counted in `losses`."""
        self._pieces = _pieces(chunks)
        self._text = ""
        self._at = 0
        self._start = 0
        self._dropped_bytes = 0
        self._losses = losses
        self._is_done = False

    @property
    def offset(self) -> int:
        """Byte at which the value begins that was taken last."""
        return self._byte(self._start)

    def walk(self, visitor: Visitor) -> None:
        """Read the document. Damage ends in counted losses, never in an error."""
        try:
            self._fill()
            self._at += self._text.startswith("\ufeff")
            self._value((), visitor, 0)
            self._at = self._over(_SPACE)
            if self._text[self._at : self._at + 64].strip(" \t\r\n\0"):
                self._losses.add("data after the end", offset=self._byte(self._at), dropped=False)
        except _Cut:
            self._losses.add("no end of the file", offset=self._byte(self._at), dropped=False)
        except _Damaged:
            where = self._byte(self._at)
            self._losses.add("damaged from here on", offset=where, dropped=False)

    def _value(self, path: Path, visitor: Visitor, depth: int) -> None:
        first = self._peek()
        choice = visitor.choose(path, first)
        if choice is Take.EACH and first == "[":
            self._at += 1
            self._each(path, visitor)
        elif choice is Take.ENTER and first in "[{":
            if depth >= MAX_DEPTH:
                raise _Damaged("nested too deeply")
            self._at += 1
            try:
                (self._members if first == "{" else self._elements)(path, visitor, depth + 1)
            finally:
                visitor.leave(path)
        elif choice is Take.SKIP:
            self._skip()
        else:
            self._start = self._at
            visitor.take(path, self._decode(), self)

    def _members(self, path: Path, visitor: Visitor, depth: int) -> None:
        while True:
            self._at = self._over(_BETWEEN)
            if self._peek() == "}":
                self._at += 1
                return
            key = self._decode()
            if not isinstance(key, str) or self._peek() != ":":
                raise _Damaged("no member")
            self._at += 1
            self._value((*path, key), visitor, depth)

    def _elements(self, path: Path, visitor: Visitor, depth: int) -> None:
        own = (*path, "*")
        while True:
            self._at = self._over(_BETWEEN)
            if self._peek() == "]":
                self._at += 1
                return
            self._value(own, visitor, depth)

    def _each(self, path: Path, visitor: Visitor) -> None:
        while True:
            self._at = _end(_BETWEEN, self._text, self._at)
            if self._at >= len(self._text):
                if not self._fill():
                    raise _Cut
                continue
            if self._text[self._at] == "]":
                self._at += 1
                return
            self._start = self._at
            try:
                value = self._decode()
            except (_Damaged, _Cut) as problem:
                self._step_over(problem, path, visitor)
                continue
            visitor.take(path, value, self)

    def _step_over(self, problem: Exception, path: Path, visitor: Visitor) -> None:
        """Go on behind a damaged element, at what looks like the next one."""
        offset = self._byte(self._at)
        self._at += 1
        while True:
            match = _RESYNC.search(self._text, self._at)
            # The pattern looks ahead; a match at the edge of the text could change with more of it.
            if match is not None and (self._is_done or match.end() < len(self._text) - 64):
                self._at = match.end()
                break
            if match is None:
                self._at = max(self._at, len(self._text) - 256)
            if not self._fill():
                self._at = len(self._text) if match is None else match.end()
                break
        # A quote that is missing looks like a cut, but more follows it.
        is_cut = isinstance(problem, _Cut)
        at_end = self._at >= len(self._text)
        reason = (
            "truncated" if is_cut and at_end else "malformed record" if is_cut else str(problem)
        )
        self._losses.add(reason, offset=offset)
        visitor.damaged(path)
        if at_end:
            raise _Cut

    def _decode(self) -> object:
        while True:
            try:
                value, end = _scan(self._text, self._at)
            except (ValueError, StopIteration) as error:
                if not _may_be_cut(error, self._text):
                    raise _Damaged("malformed record") from None
            except RecursionError:
                raise _Damaged("nested too deeply") from None
            else:
                # A number at the very end may go on in what follows.
                if end < len(self._text) or not self._fill():
                    self._at = end
                    return value
                continue
            self._grow()

    def _grow(self) -> None:
        """At least double what is held of the value at hand."""
        held = len(self._text) - self._at
        if held > MAX_VALUE_CHARS:
            raise _Damaged("value too large")
        if not self._fill():
            raise _Cut
        while len(self._text) - self._at < 2 * held and self._fill():
            pass

    def _skip(self) -> None:
        """Go behind a value without decoding it."""
        if self._peek() not in '[{"':
            self._decode()
            return
        depth = 0
        while True:
            match = _MARK.search(self._text, self._at)
            if match is None:
                self._at = len(self._text)
                if not self._fill():
                    raise _Cut
                continue
            self._at = match.end()
            mark = match.group()
            if mark == '"':
                self._skip_string()
            else:
                depth += 1 if mark in "[{" else -1
            if depth <= 0:
                return

    def _skip_string(self) -> None:
        while True:
            match = _STRING_REST.match(self._text, self._at)
            if match is not None:
                self._at = match.end()
                return
            self._grow()

    def _peek(self) -> str:
        self._at = self._over(_SPACE)
        if self._at >= len(self._text):
            raise _Cut
        return self._text[self._at]

    def _over(self, what: re.Pattern[str]) -> int:
        while True:
            self._at = _end(what, self._text, self._at)
            if self._at < len(self._text) or not self._fill():
                return self._at

    def _fill(self) -> bool:
        """Add a piece of text; False when there is no more. What lies well behind is dropped."""
        piece = next(self._pieces, None)
        if piece is None:
            self._is_done = True
            return False
        if self._at > _DROP_CHARS or self._at == len(self._text):
            self._dropped_bytes += _num_bytes(self._text[: self._at])
            self._text = self._text[self._at :]
            self._start = max(0, self._start - self._at)
            self._at = 0
        self._text += piece
        return True

    def _byte(self, at: int) -> int:
        return self._dropped_bytes + _num_bytes(self._text[:at])


def _pieces(chunks: Iterable[NDArray[np.uint8]]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    for chunk in chunks:
        for low in range(0, len(chunk), _PIECE_BYTES):
            text = decoder.decode(chunk[low : low + _PIECE_BYTES].tobytes())
            if text:
                yield text
    text = decoder.decode(b"", True)
    if text:
        yield text


def _end(what: re.Pattern[str], text: str, at: int) -> int:
    match = what.match(text, at)
    return at if match is None else match.end()


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def _may_be_cut(error: Exception, text: str) -> bool:
    """Whether more text could turn a decoder error into a value."""
    if isinstance(error, StopIteration):
        return bool(error.value >= len(text) - _CUT_MARGIN)
    if isinstance(error, json.JSONDecodeError):
        return error.msg.startswith("Unterminated string") or error.pos >= len(text) - _CUT_MARGIN
    return False
