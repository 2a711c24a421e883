"""Compiled pieces of the JSON scanner: a span and its attributes."""

from __future__ import annotations

# mypy: ignore-errors
# numba finds the types; all of them are int64.
from tokenpath.ingest.kineto.compiled.json import (
    ESCAPES,
    skip_digits,
    skip_number,
    skip_space,
    skip_string,
    skip_value,
)
from tokenpath.ingest.kineto.compiled.machine import (
    compiled,
    load8,
    load16,
    load32,
    load64,
    store64,
)
from tokenpath.ingest.kineto.compiled.texts import last_word, same_bytes
from tokenpath.ingest.otlp.compiled.json_text import (
    ENDED,
    is_other_spelling,
    next_item,
    next_value,
    open_bracket,
    plain_string,
    read_time,
)
from tokenpath.ingest.otlp.compiled.sink import (
    DECLINED,
    FULL,
    add_attribute,
    add_real,
    code_of,
    end_span,
    put_id,
    start_span,
)
from tokenpath.ingest.otlp.state import MEMO_WORDS, NUM_MEMOS, C, M, S, Tag

_BASE, _KEY, _KEY_SIZE = 8 * S.BASE, 8 * S.KEY, 8 * S.KEY_SIZE
_SCRATCH, _MEMO = 8 * S.SCRATCH, 8 * S.MEMO
_VALUE_AT, _VALUE_KIND = 8 * S.VALUE_AT, 8 * S.VALUE_KIND
_M_SIZE, _M_KEY, _M_KIND = 8 * M.SIZE, 8 * M.KEY, 8 * M.KIND
_MEMO_BYTES, _MEMO_MASK = 8 * MEMO_WORDS, NUM_MEMOS - 1
_TWO_ENDS = int.from_bytes(b"}}", "little")
_NUM_EVENTS, _NUM_LINKS = 8 * S.NUM_EVENTS, 8 * S.NUM_LINKS
_TRACE_IDS, _SPAN_IDS, _PARENT_IDS = 8 * S.TRACE_IDS, 8 * S.SPAN_IDS, 8 * S.PARENT_IDS
_TRACE_END, _SPAN_END, _PARENT_END = 8 * C.TRACE_END, 8 * C.SPAN_END, 8 * C.PARENT_END
_NAME, _KIND, _STATUS = 8 * C.NAME, 8 * C.KIND, 8 * C.STATUS
_START, _END = 8 * C.START, 8 * C.END
_PLAIN, _ESCAPED, _WHOLE = int(Tag.PLAIN), int(Tag.ESCAPED), int(Tag.WHOLE)
_REAL, _RAW = int(Tag.REAL), int(Tag.RAW)
_MAX_WHOLE_DIGITS = 18
_SHORT_REAL = 8
"""Numbers of so few characters come again and again; longer ones are mostly different."""

# What a span has to have, and may have once.
_F_TRACE, _F_SPAN, _F_PARENT, _F_NAME, _F_KIND, _F_START = 1, 2, 4, 8, 16, 32
_F_END, _F_ATTRIBUTES, _F_STATUS, _F_EVENTS, _F_LINKS = 64, 128, 256, 512, 1024


def _word(text: str) -> int:
    """The first eight bytes of a text as a word."""
    return int.from_bytes(text.encode()[:8].ljust(8, b"\0"), "little", signed=True)


_W_TRACE, _W_SPAN, _W_PARENT = _word("traceId"), _word("spanId"), _word("parentSpanId")
_W_NAME, _W_KIND, _W_START = _word("name"), _word("kind"), _word("startTimeUnixNano")
_W_END, _W_ATTRIBUTES, _W_STATUS = _word("endTimeUnixNano"), _word("attributes"), _word("status")
_W_EVENTS, _W_LINKS = _word("events"), _word("links")
_T_PARENT, _T_NANO, _T_ATTRIBUTES = _word("ntSpanId"), _word("UnixNano"), _word("tributes")
_W_STRING, _W_INT, _W_DOUBLE = _word("stringValue"), _word("intValue"), _word("doubleValue")
_VALUE_END = int.from_bytes(b'lue"', "little")
_W_KEY, _W_VALUE = _word("key"), _word("value")


@compiled
def key_word(at, size):
    """The first eight bytes of a key."""
    return load64(at) if size >= 8 else last_word(at, size)


@compiled
def field_of(at, size):
    """Which field of a span a key is; 0 for one that is not read."""
    word = key_word(at, size)
    if size <= 8:
        if word == _W_TRACE and size == 7:
            return _F_TRACE
        if word == _W_SPAN and size == 6:
            return _F_SPAN
        if word == _W_NAME and size == 4:
            return _F_NAME
        if word == _W_KIND and size == 4:
            return _F_KIND
        if word == _W_STATUS and size == 6:
            return _F_STATUS
        if word == _W_EVENTS and size == 6:
            return _F_EVENTS
        return _F_LINKS if word == _W_LINKS and size == 5 else 0
    tail = load64(at + size - 8)
    if word == _W_PARENT and size == 12 and tail == _T_PARENT:
        return _F_PARENT
    if word == _W_START and size == 17 and tail == _T_NANO:
        return _F_START
    if word == _W_END and size == 15 and tail == _T_NANO:
        return _F_END
    if word == _W_ATTRIBUTES and size == 10 and tail == _T_ATTRIBUTES:
        return _F_ATTRIBUTES
    return 0


@compiled
def raw_code(state, at, limit, out):
    """Any value, by its text."""
    end = skip_value(at, limit)
    if end < 0:
        return DECLINED
    code = code_of(state, at, end - at, _RAW, 0)
    if code < 0:
        return code
    store64(out, code)
    return end


@compiled
def read_text(state, at, limit, out):
    """A string, by its code."""
    if at >= limit or load8(at) != 34:
        return DECLINED
    end = skip_string(at + 1, limit)
    if end < 0:
        return DECLINED
    tag = _ESCAPED if end & ESCAPES else _PLAIN
    end &= ~ESCAPES
    code = code_of(state, at + 1, end - at - 1, tag, 0)
    if code < 0:
        return code
    store64(out, code)
    return end + 1


@compiled
def read_whole(state, at, limit, out):
    """A whole number, bare or quoted, by the code of its digits; DECLINED for unusual ones."""
    quoted = at < limit and load8(at) == 34
    first = at + 1 if quoted else at
    digits = first + 1 if first < limit and load8(first) == 45 else first
    end = skip_digits(digits, limit)
    size = end - digits
    if end >= limit or size == 0 or size > _MAX_WHOLE_DIGITS:
        return DECLINED
    if load8(digits) == 48 and (size > 1 or digits > first):
        return DECLINED
    if quoted and load8(end) != 34:
        return DECLINED
    code = code_of(state, first, end - first, _WHOLE, 0)
    if code < 0:
        return code
    store64(out, code)
    return end + 1 if quoted else end


@compiled
def read_real(state, at, limit, out):
    """A double, by the code of its text or its place."""
    if at >= limit:
        return DECLINED
    end = skip_number(at, limit)
    if end < 0:
        return DECLINED
    size = end - at
    # The whole number -0 is 0.
    if load8(at) == 45 and load8(at + 1) == 48 and load8(at + 2) != 46:
        return DECLINED
    if size <= _SHORT_REAL:
        code = code_of(state, at, size, _REAL, 0)
    else:
        code = add_real(state, at - load64(state + _BASE), size)
    if code < 0:
        return code
    store64(out, code)
    return end


@compiled
def read_known(state, at, limit, out, kind):
    """A text or number of a known kind."""
    if kind == _PLAIN:
        return read_text(state, at, limit, out)
    if kind == _WHOLE:
        return read_whole(state, at, limit, out)
    return read_real(state, at, limit, out)


@compiled
def read_remembered(state, at, limit, scratch, memo):
    """An attribute that begins as the one at its place in the span before."""
    size = load64(memo + _M_SIZE)
    if size == 0 or at + size >= limit or not same_bytes(at, load64(memo), size):
        return DECLINED
    end = read_known(state, at + size, limit, scratch + 8, load64(memo + _M_KIND))
    if end < 0:
        return end
    if end + 1 >= limit or load16(end) != _TWO_ENDS:
        return DECLINED
    store64(scratch, load64(memo + _M_KEY))
    return end + 2


@compiled
def remember(state, begin, scratch, memo, is_in_order):
    """How an attribute began that was just read."""
    size = 0
    if is_in_order and load64(state + _VALUE_KIND) != _RAW:
        size = load64(state + _VALUE_AT) - begin
    store64(memo, begin)
    store64(memo + _M_SIZE, size)
    store64(memo + _M_KEY, load64(scratch))
    store64(memo + _M_KIND, load64(state + _VALUE_KIND))
    return 0


@compiled
def read_value(state, at, limit, out):
    """An AnyValue: a text or number by its own code, anything else by its text."""
    if at >= limit or load8(at) != 123:
        return DECLINED
    name = skip_space(at + 1, limit)
    if name + 16 < limit and load8(name) == 34:
        word, end = load64(name + 1), DECLINED
        kind = _RAW
        place = limit
        if word == _W_INT and load8(name + 9) == 34:
            kind = _WHOLE
            place = skip_space(name + 10, limit)
        elif load32(name + 9) == _VALUE_END:
            kind = _PLAIN if word == _W_STRING else _REAL if word == _W_DOUBLE else _RAW
            place = skip_space(name + 13, limit)
        if kind != _RAW and place < limit and load8(place) == 58:
            place = skip_space(place + 1, limit)
            end = read_known(state, place, limit, out, kind)
        if end == FULL:
            return FULL
        if end >= 0:
            end = skip_space(end, limit)
            if end < limit and load8(end) == 125:
                store64(state + _VALUE_AT, place)
                store64(state + _VALUE_KIND, kind)
                return end + 1
    store64(state + _VALUE_KIND, _RAW)
    return raw_code(state, at, limit, out)


@compiled
def read_attribute(state, at, limit, scratch, memo):
    """One attribute, from its `{`; the codes of key and value at `scratch`."""
    begin = at
    at = open_bracket(at, limit, 123)
    seen = 0
    is_in_order = True
    while at >= 0:
        at = next_value(state, at, limit, seen == 0)
        if at < 0 or at & ENDED:
            break
        key, size = load64(state + _KEY), load64(state + _KEY_SIZE)
        if size == 3 and last_word(key, size) == _W_KEY and not seen & 1:
            end = plain_string(at, limit)
            if end <= at + 1:
                return DECLINED
            code = code_of(state, at + 1, end - at - 1, _PLAIN, 0)
            if code < 0:
                return code
            store64(scratch, code)
            is_in_order = seen == 0
            seen |= 1
            at = end + 1
        elif size == 5 and last_word(key, size) == _W_VALUE and not seen & 2:
            at = read_value(state, at, limit, scratch + 8)
            seen |= 2
        else:
            return DECLINED
    if at < 0:
        return at
    if seen != 3:
        return DECLINED
    remember(state, begin, scratch, memo, is_in_order)
    return at & ~ENDED


@compiled
def read_attributes(state, at, limit, scratch):
    """A list of attributes of the row at hand; two words at `scratch` may be written."""
    at = open_bracket(at, limit, 91)
    is_first = 1
    number = 0
    while at >= 0:
        at = next_item(at, limit, is_first)
        if at < 0 or at & ENDED:
            return at & ~ENDED if at >= 0 else at
        is_first = 0
        memo = load64(state + _MEMO) + _MEMO_BYTES * (number & _MEMO_MASK)
        number += 1
        end = read_remembered(state, at, limit, scratch, memo)
        if end == DECLINED:
            end = read_attribute(state, at, limit, scratch, memo)
        at = end
        if at >= 0:
            failed = add_attribute(state, load64(scratch), load64(scratch + 8))
            if failed < 0:
                return failed
    return at


@compiled
def count_items(state, at, limit, counter):
    """A list of anything; the number of its items is added."""
    at = open_bracket(at, limit, 91)
    is_first = 1
    while at >= 0:
        at = next_item(at, limit, is_first)
        if at < 0 or at & ENDED:
            return at & ~ENDED if at >= 0 else at
        is_first = 0
        at = skip_value(at, limit)
        store64(state + counter, load64(state + counter) + 1)
    return at


@compiled
def read_id(state, row, ends, ids, at, limit):
    """An id as it is."""
    end = plain_string(at, limit)
    if end < 0 or put_id(state, row, ends, ids, at + 1, end - at - 1) < 0:
        return DECLINED
    return end + 1


@compiled
def read_span(state, at, limit):
    """One span, from its `{`."""
    at = open_bracket(at, limit, 123)
    row = start_span(state)
    if row < 0:
        return row
    seen = 0
    is_first = 1
    while at >= 0:
        at = next_value(state, at, limit, is_first)
        if at < 0:
            return at
        if at & ENDED:
            break
        is_first = 0
        key, size = load64(state + _KEY), load64(state + _KEY_SIZE)
        field = field_of(key, size)
        if seen & field:
            return DECLINED
        seen |= field
        if field == _F_TRACE:
            at = read_id(state, row, _TRACE_END, _TRACE_IDS, at, limit)
        elif field == _F_SPAN:
            at = read_id(state, row, _SPAN_END, _SPAN_IDS, at, limit)
        elif field == _F_PARENT:
            at = read_id(state, row, _PARENT_END, _PARENT_IDS, at, limit)
        elif field == _F_NAME:
            at = read_text(state, at, limit, row + _NAME)
        elif field == _F_KIND:
            at = raw_code(state, at, limit, row + _KIND)
        elif field == _F_START:
            at = read_time(at, limit, row + _START)
        elif field == _F_END:
            at = read_time(at, limit, row + _END)
        elif field == _F_ATTRIBUTES:
            at = read_attributes(state, at, limit, state + _SCRATCH)
        elif field == _F_STATUS:
            at = raw_code(state, at, limit, row + _STATUS)
        elif field == _F_EVENTS:
            at = count_items(state, at, limit, _NUM_EVENTS)
        elif field == _F_LINKS:
            at = count_items(state, at, limit, _NUM_LINKS)
        elif is_other_spelling(key, size):
            return DECLINED
        else:
            at = skip_value(at, limit)
    if at < 0 or not seen & _F_TRACE:
        return DECLINED if at >= 0 else at
    end_span(state, row)
    return at & ~ENDED
