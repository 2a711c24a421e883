"""What the caller and the compiled scanner leave each other word of: an int64 array, and its tables."""

from __future__ import annotations

import enum


class S(enum.IntEnum):
    """Fields of the state array; addresses and counts."""

    POSITION = 0
    """In: address to start at; out: address reached (of the event, for MORE, FALLBACK, GROW)."""
    LIMIT = 1
    """Address of the first byte that may not be read as text; PADDING bytes follow it."""
    BASE = 2
    """Added to an address to give the offset in the file."""
    ROWS = 3
    """Raw rows, NUM_COLUMNS int64 each."""
    NUM_ROWS = 4
    MAX_ROWS = 5
    SLOTS = 6
    """Hash table of texts: int32 code + 1, or 0."""
    SLOT_MASK = 7
    HASHES = 8
    """int64 by code."""
    STARTS = 9
    """int64 by code, one more than codes: where each text begins in the arena."""
    TAGS = 10
    """uint8 by code: a `Tag`."""
    ARENA = 11
    """The bytes of the texts, and 8 more."""
    NUM_TEXTS = 12
    MAX_TEXTS = 13
    MAX_ARENA = 14
    PAIR_SLOTS = 15
    """Hash table of pairs: int32 number + 1, or 0."""
    PAIR_MASK = 16
    PAIRS = 17
    """int64 by number: code of pid << 32 | code of tid."""
    NUM_PAIRS = 18
    MAX_PAIRS = 19
    KEYS = 20
    """NUM_KEY_SLOTS entries: int64 size (0 for none), int64 offset in the row, int64 kind, text."""
    PROFILER_RANGE = 21
    """Text code of the category that the scanner leaves to the slow one."""
    SEED = 22
    """Of the text hash."""
    HAS_LONG_REALS = 23
    """1 once a row holds a LONG_REAL."""


NUM_STATE = len(S)


class Status(enum.IntEnum):
    """Why the scanner came back."""

    MORE = 0
    """The bytes end within an event or between two."""
    END = 1
    """The list of events is closed; POSITION is behind the bracket."""
    FALLBACK = 2
    """A value that only the slow scanner can judge."""
    GROW = 3
    """The tables of texts or pairs are full."""
    ROWS_FULL = 4


class Tag(enum.IntEnum):
    """How the bytes of a text become the text."""

    PLAIN = 0
    ESCAPED = 1
    """The inside of a JSON string with escapes."""
    JSON = 2
    """JSON, to be written compactly."""


LONG_REAL = 0x7FF8 << 48
"""A NaN whose low bits are the code of a number's text: more digits than the exact short way takes."""

NUM_KEY_SLOTS = 256
KEY_TEXT_BYTES = 40
KEY_ENTRY_BYTES = 24 + KEY_TEXT_BYTES
