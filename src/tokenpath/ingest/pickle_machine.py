"""The stack machine of a pickle: its values, marks and memo, and its errors.

What each opcode does is in `pickle_opcodes`; Lib/pickletools.py of CPython describes them, PEP 307, 3154
and 574 the protocols.
"""

from __future__ import annotations

import struct
from typing import Any

from tokenpath.core.errors import DamagedInput, InputError, LimitExceeded
from tokenpath.ingest.pickle_opcodes import OPERATIONS

MAX_CONTAINERS = 10_000_000
"""Bound on lists, tuples, dicts and sets: each takes up to 216 bytes for one byte of the file."""
MAX_DEPTH = 100
"""Bound on containers within each other, and on open marks; snapshots have six."""
MAX_KEY = 2**64
"""Bound on integer keys: larger ones can be made to share one hash, which turns a dict into a list."""

_KEY_TYPES = (str, int, float, bytes, bool, type(None))
_BINGET, _LONG_BINGET, _MEMOIZE, _STOP = 0x68, 0x6A, 0x94, 0x2E
_FOUR_BYTES = struct.Struct("<I").unpack_from


class Cut(Exception):
    """The data ends within the pickle."""


class Machine:
    """A run over one pickle."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        """The pickle."""
        self.where = where
        """The file, for errors."""
        self.pos = 0
        """Byte after what has been read."""
        self.stack: list[Any] = []
        """The values since the last mark."""
        self.marks: list[list[Any]] = []
        """For each open mark the values before it, back to the mark below."""
        self.memo: dict[int, Any] = {}
        """Stored values by number."""
        self.has_long_frame = False
        """Whether a frame says that it is longer than the rest of the file."""
        self._num_containers = 0

    def run(self) -> Any:
        """Execute up to STOP; Cut when the data ends before. The most frequent opcodes are handled here."""
        data, size, memo = self.data, len(self.data), self.memo
        while True:
            at = self.pos
            if at >= size:
                raise Cut
            code = data[at]
            self.pos = at + 1
            if code in (_BINGET, _LONG_BINGET):
                width = 1 if code == _BINGET else 4
                if at + width >= size:
                    raise Cut
                self.pos = at + 1 + width
                number = data[at + 1] if width == 1 else _FOUR_BYTES(data, at + 1)[0]
                if number not in memo:
                    raise self.damaged(f"nothing was stored as number {number}")
                self.stack.append(memo[number])
            elif code == _MEMOIZE:
                memo[len(memo)] = self.last()
            elif code == _STOP:
                return self._finish()
            else:
                operation = OPERATIONS.get(code)
                if operation is None:
                    raise self.damaged(f"no pickle opcode: 0x{code:02x}")
                operation(self)

    def _finish(self) -> Any:
        if self.has_long_frame:
            raise self.damaged("a frame is longer than the file")
        if self.marks or len(self.stack) != 1:
            raise self.damaged("the pickle does not end with one value")
        return self.stack[0]

    def fold(self) -> Any:
        """The value of a pickle that was cut off: open marks are closed as what lies below them asks."""
        while self.marks:
            items, self.stack = self.stack, self.marks.pop()
            below = self.stack[-1] if self.stack else None
            if isinstance(below, list):
                below.extend(items)
            elif isinstance(below, dict):
                _append_pending(items)
                pairs = zip(items[::2], items[1::2], strict=False)
                below.update({key: value for key, value in pairs if _is_key(key)})
            elif not isinstance(below, set):
                self.stack.append(tuple(items))
        if not self.stack:
            raise self.damaged("the pickle is cut off before its first value")
        return self.stack[0]

    def take(self, num_bytes: int) -> bytes:
        """The next bytes."""
        end = self.pos + num_bytes
        if num_bytes < 0:
            raise self.damaged(f"a length of {num_bytes}")
        if end > len(self.data):
            raise Cut
        piece = self.data[self.pos : end]
        self.pos = end
        return piece

    def take_length(self, num_bytes: int) -> int:
        """A length or number of the memo: little-endian, unsigned, of so many bytes."""
        return int.from_bytes(self.take(num_bytes), "little")

    def take_line(self) -> bytes:
        """The bytes up to the next line feed, which is taken too."""
        end = self.data.find(b"\n", self.pos)
        if end < 0:
            raise Cut
        piece = self.data[self.pos : end]
        self.pos = end + 1
        return piece

    def push_container(self, value: Any) -> None:
        """Put a new list, tuple, dict or set on the stack."""
        self._num_containers += 1
        if self._num_containers > MAX_CONTAINERS:
            raise LimitExceeded(
                f"a pickle of more than {MAX_CONTAINERS} lists, tuples, dicts and sets",
                where=self._place(),
                allowed=f"{MAX_CONTAINERS}",
            )
        self.stack.append(value)

    def push_mark(self) -> None:
        """Open a mark."""
        if len(self.marks) >= MAX_DEPTH:
            raise LimitExceeded(
                f"a pickle nested deeper than {MAX_DEPTH}",
                where=self._place(),
                allowed=f"{MAX_DEPTH} levels",
            )
        self.marks.append(self.stack)
        self.stack = []

    def pop_mark(self) -> list[Any]:
        """Close the last mark; all values since."""
        if not self.marks:
            raise self.damaged("a mark is missing")
        items, self.stack = self.stack, self.marks.pop()
        return items

    def pop(self) -> Any:
        """Take the last value."""
        self.last()
        return self.stack.pop()

    def last(self) -> Any:
        """The last value."""
        if not self.stack:
            raise self.damaged("a value is missing")
        return self.stack[-1]

    def recall(self, number: int) -> None:
        """Put a stored value on the stack."""
        if number not in self.memo:
            raise self.damaged(f"nothing was stored as number {number}")
        self.stack.append(self.memo[number])

    def store(self, number: int) -> None:
        """Store the last value."""
        if not 0 <= number < 2**32:
            raise self.damaged(f"a value stored as number {number}")
        self.memo[number] = self.last()

    def extend(self, items: list[Any]) -> None:
        """Append to the list that is the last value."""
        self._target(list).extend(items)

    def update(self, items: list[Any]) -> None:
        """Set keys of the dict that is the last value, from keys and values in turn."""
        self._target(dict).update(self.pairs(items))

    def add(self, items: list[Any]) -> None:
        """Add to the set that is the last value."""
        self._target(set).update(self.members(items))

    def pairs(self, items: list[Any]) -> dict[Any, Any]:
        """A dict from keys and values in turn."""
        if len(items) % 2:
            raise self.damaged("a key without a value")
        return dict(zip(self.members(items[::2]), items[1::2], strict=True))

    def members(self, items: list[Any]) -> list[Any]:
        """What keys or a set are made of; only plain values, so that hashing them costs nothing."""
        for key in items:
            if not _is_key(key):
                kind = type(key).__name__
                raise self.damaged(f"a key or member of type {kind} that is no small plain value")
        return items

    def _target(self, kind: type) -> Any:
        value = self.last()
        if type(value) is not kind:
            raise self.damaged(f"a {type(value).__name__} filled as a {kind.__name__}")
        return value

    def _place(self) -> str:
        return f"{self.where}, byte {self.pos}"

    def damaged(self, what: str) -> DamagedInput:
        """An error at this byte."""
        return DamagedInput(what, where=self._place(), allowed="a pickle of protocol 0 to 5")

    def refused(self, what: str) -> InputError:
        """An error for an opcode that is not executed."""
        return InputError(
            f"{what}: refused",
            where=self._place(),
            allowed="plain data: None, bool, int, float, str, bytes, list, tuple, dict, set",
            next_step="a pickle can run any program; if you trust its writer, ask for JSON",
        )


def _append_pending(items: list[Any]) -> None:
    """Put the only element of a list into it: its APPEND comes after it, behind the cut.

    Where keys and values take turns, a container in the place of a key can be nothing else.
    """
    while len(items) > 1 and len(items) % 2 and isinstance(items[-1], list | dict | tuple):
        element = items.pop()
        if not isinstance(items[-1], list):
            return
        items[-1].append(element)


def _is_key(key: Any) -> bool:
    kind = type(key)
    return kind is str or (kind in _KEY_TYPES and (kind is not int or -MAX_KEY < key < MAX_KEY))
