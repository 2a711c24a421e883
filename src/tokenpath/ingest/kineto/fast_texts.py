"""Codes of texts in tables that the compiled scanner shares."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.kineto.categories import FIRST_TEXTS, PROFILER_RANGE_CODE
from tokenpath.ingest.kineto.columns import ARGUMENTS
from tokenpath.ingest.kineto.machine_code import load_entry
from tokenpath.ingest.kineto.state import (
    ENTRY_WORDS,
    GROW,
    KEY_ENTRY_BYTES,
    NUM_KEY_SLOTS,
    NUM_STATE,
    NUM_STEPS,
    STEP_BYTES,
    Op,
    S,
    Tag,
)
from tokenpath.ingest.kineto.texts import compact_json, make_decoder, readable

_BEHIND = 8
"""Bytes that the scanner may read behind a text."""
_FIRST_TEXTS, _FIRST_ARENA, _FIRST_PAIRS = 4096, 2**18, 256
_scan_value = make_decoder()


class FastTexts:
    """Codes as the compiled scanner gives them; `state` is the array it works with."""

    def __init__(self) -> None:
        self.state = np.zeros(NUM_STATE, np.int64)
        self._entry = load_entry()
        self._keys = make_key_table()
        self._entries: NDArray[np.int64] = np.zeros((_FIRST_TEXTS, ENTRY_WORDS), np.int64)
        self._arena: NDArray[np.uint8] = np.zeros(_FIRST_ARENA + _BEHIND, np.uint8)
        self._pairs: NDArray[np.int64] = np.zeros(_FIRST_PAIRS, np.int64)
        self._slots = np.zeros(0, np.int32)
        self._pair_slots = np.zeros(0, np.int32)
        self._steps = np.zeros(NUM_STEPS * STEP_BYTES, np.uint8)
        self.state[S.KEYS], self.state[S.STEPS] = address(self._keys), address(self._steps)
        self.state[S.PROFILER_RANGE] = PROFILER_RANGE_CODE
        # Half of int64, so that adding the tag cannot overflow.
        self.state[S.SEED] = secrets.randbits(62)
        self._publish()
        for text in FIRST_TEXTS:
            self.code(text)

    def run(self, op: Op, a: int = 0, b: int = 0, c: int = 0) -> int:
        """Call the compiled code; the interpreter is free for other threads meanwhile."""
        return self._entry(address(self.state), int(op), a, b, c)

    def code(self, text: str) -> int:
        """The code of a text, a new one for a new text."""
        data = np.frombuffer(readable(text).encode() + b"\0" * _BEHIND, np.uint8)
        return self.code_of_bytes(data, len(data) - _BEHIND, Tag.PLAIN)

    def code_of_bytes(self, data: NDArray[np.uint8], size: int, tag: int) -> int:
        """The code of the first `size` bytes; at least 8 more must follow them."""
        while True:
            code = self.run(Op.CODE_OF, address(data), size, int(tag))
            if code != GROW:
                return code
            self.grow()

    def pair(self, pid: int, tid: int) -> int:
        """The number of a (pid, tid) pair, given as codes."""
        while True:
            number = self.run(Op.PAIR_OF, pid, tid)
            if number != GROW:
                return number
            self.grow()

    def grow(self) -> None:
        """Make room in whichever table is full, also for the text that found none."""
        num_bytes = int(self.state[S.NEEDED])
        if self.num_texts + 64 > len(self._entries):
            self._entries = _grown(self._entries, 2 * len(self._entries))
        used = int(self.state[S.ARENA_USED])
        if used + num_bytes + 2**16 > len(self._arena) - _BEHIND:
            size = used + max(used, num_bytes + 2**17)
            self._arena = _grown(self._arena, size + _BEHIND)
        if self.num_pairs + 64 > len(self._pairs):
            self._pairs = _grown(self._pairs, 2 * len(self._pairs))
        self._publish()

    def adopt(self, other: FastTexts, codes: NDArray[np.int32], first: int, end: int) -> None:
        """Give another's texts from code `first` to `end` codes here, written into `codes`."""
        self.state[S.ADOPT_END] = end
        while first < end:
            first = self.run(Op.ADOPT_TEXTS, address(other.state), address(codes), first)
            if first < end:
                self.grow()

    def pair_numbers(self, pairs: NDArray[np.int32]) -> list[int]:
        """The numbers of pairs of codes, an array (num_pairs, 2)."""
        return [self.pair(pid, tid) for pid, tid in pairs.tolist()]

    @property
    def num_texts(self) -> int:
        """How many texts have a code."""
        return int(self.state[S.NUM_TEXTS])

    @property
    def num_pairs(self) -> int:
        """How many pairs have a number."""
        return int(self.state[S.NUM_PAIRS])

    def _publish(self) -> None:
        """Write the addresses and sizes of the tables into the state; rebuild slots that are too few."""
        state = self.state
        state[S.ENTRIES], state[S.MAX_TEXTS] = address(self._entries), len(self._entries)
        state[S.ARENA], state[S.MAX_ARENA] = address(self._arena), len(self._arena) - _BEHIND
        state[S.PAIRS], state[S.MAX_PAIRS] = address(self._pairs), len(self._pairs)
        if len(self._slots) < 2 * len(self._entries):
            self._slots = np.zeros(2 * len(self._entries), np.int32)
            state[S.SLOTS], state[S.SLOT_MASK] = address(self._slots), len(self._slots) - 1
            self.run(Op.FILL_SLOTS, self.num_texts)
        if len(self._pair_slots) < 2 * len(self._pairs):
            slots = self._pair_slots = np.zeros(2 * len(self._pairs), np.int32)
            state[S.PAIR_SLOTS], state[S.PAIR_MASK] = address(slots), len(slots) - 1
            self.run(Op.FILL_PAIR_SLOTS, self.num_pairs)

    def text(self, code: int) -> str:
        """The text of a code."""
        _, start, size = self._entries[code].tolist()
        return _decode(self._arena[start : start + (size >> 2)].tobytes(), size & 3)

    def texts(self) -> list[str]:
        """All texts by code."""
        data = self._arena[: int(self.state[S.ARENA_USED])].tobytes()
        rows = self._entries[: self.num_texts, 1:].tolist()
        ends = ((start, start + (size >> 2), size & 3) for start, size in rows)
        if data.isascii():
            # Bytes and characters are the same, so the plain texts are cut out of one.
            whole = data.decode("ascii")
            return [
                whole[start:end] if tag == Tag.PLAIN else _decode(data[start:end], tag)
                for start, end, tag in ends
            ]
        return [_decode(data[start:end], tag) for start, end, tag in ends]

    def pairs(self, first: int = 0, end: int | None = None) -> NDArray[np.int32]:
        """Pairs by number, all or those from `first` to `end`, an array (num_pairs, 2)."""
        keys = self._pairs[first : self.num_pairs if end is None else end]
        return np.stack((keys >> 32, keys & 0xFFFFFFFF), axis=1).astype(np.int32)


def _decode(data: bytes, tag: int) -> str:
    text = data.decode("utf-8", "surrogateescape")
    if tag == Tag.ESCAPED:
        text = str(_scan_value(f'"{text}"', 0)[0])
    elif tag == Tag.JSON:
        text = compact_json(_scan_value(text, 0)[0])
    return readable(text)


def address(array: NDArray[Any]) -> int:
    """Where the data of an array lies."""
    return int(array.__array_interface__["data"][0])


def _grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    larger = np.zeros((size, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def make_key_table() -> NDArray[np.uint8]:
    """The arguments that are kept, as the scanner looks them up."""
    table = np.zeros(NUM_KEY_SLOTS * KEY_ENTRY_BYTES, np.uint8)
    entries = table.reshape(NUM_KEY_SLOTS, KEY_ENTRY_BYTES)
    for key, (column, kind) in ARGUMENTS.items():
        data = key.encode()
        word = (
            int.from_bytes(data[:8], "little") if len(data) >= 8 else int.from_bytes(data, "little")
        )
        slot = _mix(word ^ len(data)) & (NUM_KEY_SLOTS - 1)
        while entries[slot, 0]:
            slot = (slot + 1) % NUM_KEY_SLOTS
        head = np.array([len(data), 8 * column, kind], np.int64)
        entries[slot, :24] = head.view(np.uint8)
        entries[slot, 24 : 24 + len(data)] = np.frombuffer(data, np.uint8)
    return table


def _mix(value: int) -> int:
    """`compiled.texts.mix`, for the table of keys."""
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) % 2**64
    return value ^ value >> 31
