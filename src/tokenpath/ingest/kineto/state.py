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
    ROW = 3
    """The raw row of the event at hand, NUM_COLUMNS int64."""
    GROUPS = 4
    """NUM_GROUPS entries of GROUP_WORDS int64 (see `G`)."""
    FULL_GROUP = 5
    """Out, with GROUP_FULL: which group."""
    SLOTS = 6
    """Hash table of texts: int32 code + 1, or 0."""
    SLOT_MASK = 7
    ENTRIES = 8
    """ENTRY_WORDS int64 by code: hash, start in the arena, size << 2 | `Tag`."""
    ARENA = 9
    """The bytes of the texts, and 8 more."""
    ARENA_USED = 10
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
    SORT_OF_PHASE = 23
    """uint8 by phase: a `Sort`."""
    SORT_OF_CATEGORY = 24
    """uint8 by category code, one more for all other codes: the `Sort` of a complete event."""
    LAUNCH_FLOWS = 25
    """uint8 by category code, one more: whether a flow of the category repeats the correlation id."""
    NUM_KNOWN_TEXTS = 26
    """Codes below this have entries of their own in the two tables above."""
    COUNTS = 27
    """A count, the offset and the phase of the first one, by `Count`."""
    NUM_EVENTS = 28
    NEEDED = 29
    """Out, with GROW: bytes of the text that found no room."""
    STOP = 31
    """Address at or behind which no new event is begun."""
    ADOPT_END = 32
    """Code before which ADOPT_TEXTS stops."""
    STEPS = 30
    """NUM_STEPS entries of STEP_BYTES: see `Step`."""


NUM_STATE = max(S) + 1
ENTRY_WORDS = 3


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
    GROUP_FULL = 4
    """FULL_GROUP has to be emptied before the event can be kept."""
    STOPPED = 5
    """An event would begin at or behind STOP."""


class Tag(enum.IntEnum):
    """How the bytes of a text become the text."""

    PLAIN = 0
    ESCAPED = 1
    """The inside of a JSON string with escapes."""
    JSON = 2
    """JSON, to be written compactly."""


class G(enum.IntEnum):
    """Fields of a group: rows that go to one store, column by column."""

    NUM_ROWS = 0
    MAX_ROWS = 1
    NUM_BEFORE = 2
    """Rows that were taken out earlier."""
    NUM_FIELDS = 3
    FIELDS = 4
    """For each field: its offset in the raw row, the address of its column, bytes a value."""


class Group(enum.IntEnum):
    """Groups beyond those that are numbered like the `Sort` of their rows."""

    OP_COLLECTIVE = 22
    KERNEL_COLLECTIVE = 23


NUM_GROUPS = 24
GROUP_WORDS = len(G)
FIELD_WORDS = 3


class Op(enum.IntEnum):
    """What the compiled entry point does; its arguments are (state, op, a, b, c)."""

    SCAN = 0
    """Scan from POSITION on: a `Status`."""
    COMMIT = 1
    """Keep the row at ROW: 0, or GROUP_FULL."""
    CODE_OF = 2
    """Code of `b` bytes at `a` with tag `c`, or GROW."""
    PAIR_OF = 3
    """Number of the pair of codes (a, b), or GROW."""
    FILL_SLOTS = 4
    """Enter `a` texts into the empty table of slots."""
    FILL_PAIR_SLOTS = 5
    """Enter `a` pairs into the empty table of pair slots."""
    ADOPT_TEXTS = 6
    """Give the texts of the state at `a` codes, from its code `c` to ADOPT_END, written as int32 to
    `b`; the code reached, less than ADOPT_END when a table is too full."""


class Step(enum.IntEnum):
    """Bytes of a remembered step: what stood between one value of an event and the next.

    Profilers write the events of a category all alike. A step holds the text from behind a value to the
    next one and what it led to, so that the same text need not be taken apart again.
    """

    SIZE = 0
    """Bytes of the text, 0 for none."""
    ACTION = 1
    LEVEL = 2
    """Where in the event the next value is."""
    NEXT = 3
    """The step after the next value."""
    BIT = 4
    """int16: marks a field that an event has once."""
    FROM = 6
    """Level at which the text was met: the same text means another thing elsewhere."""
    COLUMN = 8
    """int64: offset in the raw row of what the value is written to."""
    TEXT = 16
    VALUE_SIZE = 64
    """Bytes of the last value and the one behind it, 0 for none; only of ids and categories."""
    CODE = 72
    """int64: code of the last value."""
    VALUE = 80


STEP_BYTES = 128
NUM_STEPS = 256
STEP_TEXT_BYTES = 40
STEP_VALUE_BYTES = 40

PADDING = 64
"""Bytes that must be readable behind the last position that the scanner looks at."""
GROW = -3
"""Result of CODE_OF and PAIR_OF when a table is too full."""

LONG_REAL = 0x7FF8 << 48
"""A NaN whose low bits are the code of a number's text: more digits than the exact short way takes."""

NUM_KEY_SLOTS = 256
KEY_TEXT_BYTES = 40
KEY_ENTRY_BYTES = 24 + KEY_TEXT_BYTES
