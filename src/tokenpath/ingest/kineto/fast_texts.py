"""Codes of texts in tables that the compiled scanner shares."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.kineto.categories import FIRST_TEXTS, PROFILER_RANGE_CODE
from tokenpath.ingest.kineto.columns import ARGUMENTS
from tokenpath.ingest.kineto.scan_json import GROW
from tokenpath.ingest.kineto.scan_texts import code_of, fill_pair_slots, fill_slots, mix, pair_of
from tokenpath.ingest.kineto.state import (
    KEY_ENTRY_BYTES,
    NUM_KEY_SLOTS,
    NUM_STATE,
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
        self._keys = make_key_table()
        self._hashes = np.zeros(_FIRST_TEXTS, np.int64)
        self._starts = np.zeros(_FIRST_TEXTS + 1, np.int64)
        self._tags = np.zeros(_FIRST_TEXTS, np.uint8)
        self._arena = np.zeros(_FIRST_ARENA + _BEHIND, np.uint8)
        self._pairs = np.zeros(_FIRST_PAIRS, np.int64)
        self._slots = np.zeros(0, np.int32)
        self._pair_slots = np.zeros(0, np.int32)
        self.state[S.KEYS] = address(self._keys)
        self.state[S.PROFILER_RANGE] = PROFILER_RANGE_CODE
        # Half of int64, so that adding the tag cannot overflow.
        self.state[S.SEED] = secrets.randbits(62)
        self._publish()
        for text in FIRST_TEXTS:
            self.code(text)

    def code(self, text: str) -> int:
        """The code of a text, a new one for a new text."""
        data = np.frombuffer(readable(text).encode() + b"\0" * _BEHIND, np.uint8)
        size = len(data) - _BEHIND
        while True:
            code = int(code_of(address(self.state), address(data), size, int(Tag.PLAIN)))
            if code != GROW:
                return code
            self.grow(size)

    def pair(self, pid: int, tid: int) -> int:
        """The number of a (pid, tid) pair, given as codes."""
        while True:
            number = int(pair_of(address(self.state), pid, tid))
            if number != GROW:
                return number
            self.grow(0)

    def grow(self, num_bytes: int) -> None:
        """Make room in whichever table is full, for a text of `num_bytes` at least."""
        num_texts, num_pairs = self.num_texts, self.num_pairs
        if num_texts + 64 > len(self._hashes):
            size = 2 * len(self._hashes)
            self._hashes = _grown(self._hashes, size)
            self._starts = _grown(self._starts, size + 1)
            self._tags = _grown(self._tags, size)
        used = int(self._starts[num_texts])
        if used + num_bytes + 2**16 > len(self._arena) - _BEHIND:
            size = max(2 * used, used + num_bytes + 2**17)
            self._arena = _grown(self._arena, size + _BEHIND)
        if num_pairs + 64 > len(self._pairs):
            self._pairs = _grown(self._pairs, 2 * len(self._pairs))
        self._publish()

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
        if len(self._slots) < 2 * len(self._hashes):
            self._slots = np.zeros(2 * len(self._hashes), np.int32)
            count = self.num_texts
            fill_slots(address(self._slots), len(self._slots) - 1, address(self._hashes), count)
        if len(self._pair_slots) < 2 * len(self._pairs):
            self._pair_slots = np.zeros(2 * len(self._pairs), np.int32)
            slots, count = self._pair_slots, self.num_pairs
            fill_pair_slots(address(slots), len(slots) - 1, address(self._pairs), count)
        state[S.SLOTS], state[S.SLOT_MASK] = address(self._slots), len(self._slots) - 1
        state[S.HASHES], state[S.STARTS] = address(self._hashes), address(self._starts)
        state[S.TAGS], state[S.ARENA] = address(self._tags), address(self._arena)
        state[S.MAX_TEXTS], state[S.MAX_ARENA] = len(self._hashes), len(self._arena) - _BEHIND
        state[S.PAIR_SLOTS], state[S.PAIR_MASK] = (
            address(self._pair_slots),
            len(self._pair_slots) - 1,
        )
        state[S.PAIRS], state[S.MAX_PAIRS] = address(self._pairs), len(self._pairs)

    def raw(self, code: int) -> bytes:
        """The bytes of a text as they stand in the arena."""
        return self._arena[self._starts[code] : self._starts[code + 1]].tobytes()

    def tag(self, code: int) -> int:
        """How the bytes become the text."""
        return int(self._tags[code])

    def text(self, code: int) -> str:
        """The text of a code."""
        return _decode(self.raw(code), int(self._tags[code]))

    def texts(self) -> list[str]:
        """All texts by code."""
        return list(self._all_texts())

    def _all_texts(self) -> Iterator[str]:
        data = self._arena[: self._starts[self.num_texts]].tobytes()
        starts = self._starts[: self.num_texts + 1].tolist()
        tags = self._tags[: self.num_texts].tolist()
        for code, tag in enumerate(tags):
            yield _decode(data[starts[code] : starts[code + 1]], tag)

    def pairs(self) -> list[tuple[int, int]]:
        """All pairs by number."""
        keys = self._pairs[: self.num_pairs]
        return list(zip((keys >> 32).tolist(), (keys & 0xFFFFFFFF).tolist(), strict=True))


def _decode(data: bytes, tag: int) -> str:
    text = data.decode("utf-8", "surrogateescape")
    if tag == Tag.ESCAPED:
        text = str(_scan_value(f'"{text}"', 0)[0])
    elif tag == Tag.JSON:
        text = compact_json(_scan_value(text, 0)[0])
    return readable(text)


def address(array: NDArray[np.generic]) -> int:
    """Where the data of an array lies."""
    return int(array.__array_interface__["data"][0])


def _grown(array: NDArray[np.generic], size: int) -> NDArray[np.generic]:
    larger = np.zeros(size, array.dtype)
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
        slot = int(mix(np.int64(word ^ len(data)))) & (NUM_KEY_SLOTS - 1)
        while entries[slot, 0]:
            slot = (slot + 1) % NUM_KEY_SLOTS
        head = np.array([len(data), 8 * column, kind], np.int64)
        entries[slot, :24] = head.view(np.uint8)
        entries[slot, 24 : 24 + len(data)] = np.frombuffer(data, np.uint8)
    return table
