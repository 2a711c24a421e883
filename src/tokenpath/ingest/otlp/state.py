"""What the compiled scanners and Python share: where each thing lies in memory."""

from __future__ import annotations

from enum import IntEnum

PADDING = 64
"""Bytes behind the input that may be read; their values do not matter."""
ENTRY_WORDS = 4
"""A text: hash, offset in the input, size << 3 | tag, and for whole numbers of protobuf the value."""
ID_BYTES = 64
"""Longer ids are left to the slow way."""
NO_CODE = -1
"""Instead of the code of a text: there is none."""


class S(IntEnum):
    """Words of the state; all are int64, most are addresses."""

    BASE = 0
    """Where the input lies; offsets count from here."""
    SEED = 1
    """Of the hash; another one for each block, so that no file can aim at collisions."""
    SLOTS = 2
    """Hash table: int32 of code + 1, 0 for a free slot."""
    SLOT_MASK = 3
    ENTRIES = 4
    NUM_TEXTS = 5
    MAX_TEXTS = 6
    SPANS = 7
    """Rows of `C`."""
    NUM_SPANS = 8
    MAX_SPANS = 9
    ATTRIBUTES = 10
    """Pairs of int32: code of the key; code of the value, or -2 - row of `REALS`."""
    NUM_ATTRIBUTES = 11
    MAX_ATTRIBUTES = 12
    REALS = 13
    """JSON: pairs of offset and size of a number's text; protobuf: the bits of a double."""
    NUM_REALS = 14
    MAX_REALS = 15
    SCOPES = 16
    """Pairs of codes: the scope, the resource."""
    NUM_SCOPES = 17
    MAX_SCOPES = 18
    NUM_EVENTS = 19
    NUM_LINKS = 20
    KEY = 21
    """Offset of the key that was read last."""
    KEY_SIZE = 22
    TRACE_IDS = 23
    """The texts of the ids, one behind the other."""
    SPAN_IDS = 24
    PARENT_IDS = 25
    OUT = 26
    """Where `Op.GATHER` writes texts ..."""
    OUT_ENDS = 27
    """... and their ends, int32."""
    SCRATCH = 28
    """What is known so far of a thing at hand."""
    SCRATCH_2 = 29
    MEMO = 30
    """Rows of `M`: how the attributes at each place of the last span began."""
    VALUE_AT = 31
    """Where the value that was read last has its text or number ..."""
    VALUE_KIND = 32
    """... and the `Tag` of what it is; RAW for none that is remembered."""


NUM_WORDS = len(S)
NUM_MEMOS = 32


class M(IntEnum):
    """Words of a memo: spans of one kind have the same attributes, so one comparison reads a key."""

    TEXT = 0
    """Where it began in the input, up to the text or number; an address."""
    SIZE = 1
    """Bytes of that; 0 for no memo."""
    KEY = 2
    """Code of the key."""
    KIND = 3
    """`Tag` of the value."""


MEMO_WORDS = len(M)


class C(IntEnum):
    """Columns of a span; all are int64."""

    TRACE_END = 0
    """Where its id ends among the ids."""
    SPAN_END = 1
    PARENT_END = 2
    NAME = 3
    """Code, or NO_CODE."""
    KIND = 4
    """JSON: the code of what is written; protobuf: the number."""
    STATUS = 5
    """Code of the message, or NO_CODE."""
    SCOPE = 6
    """Row of `SCOPES`."""
    START = 7
    """Epoch nanoseconds, or NO_TIME."""
    END = 8
    ATTRIBUTES_END = 9


NUM_COLUMNS = len(C)


class Tag(IntEnum):
    """What a text is; the same bytes under another tag are another text."""

    PLAIN = 0
    """Text as it is."""
    ESCAPED = 1
    """Inner part of a JSON string with escapes."""
    WHOLE = 2
    """A whole number: its digits, or a varint."""
    REAL = 3
    """A double: its decimal text, or its eight bytes."""
    RAW = 4
    """Anything else, as the file has it: values, resources, scopes, statuses, kinds."""


class Op(IntEnum):
    """What the compiled function does."""

    JSON = 0
    """Lines from address a to b."""
    PROTOBUF = 1
    """ResourceSpans messages, by b pairs of begin and end at address a."""
    GATHER = 2
    """Texts by b pairs of offset and size at address a, one behind the other."""


class Status(IntEnum):
    """How a scan ended."""

    DONE = 0
    DECLINED = -1
    """Something unusual; nothing was lost, but nothing can be used."""
    FULL = -3
    """Some table is too small."""
