"""Compiled pieces of the protobuf scanner: messages down to their spans.

The same decisions as in `protobuf` and `ingest.wire`; whatever those would count as damage is DECLINED.
"""

from __future__ import annotations

# mypy: ignore-errors
# numba finds the types; all of them are int64.
from tokenpath.ingest.kineto.compiled.machine import compiled, load8, load64, store64
from tokenpath.ingest.otlp.batch import KINDS, NO_TIME
from tokenpath.ingest.otlp.compiled.sink import (
    DECLINED,
    add_attribute,
    add_real,
    code_of,
    end_scope,
    end_span,
    put_hexadecimal,
    start_span,
)
from tokenpath.ingest.otlp.state import NO_CODE, C, S, Status, Tag
from tokenpath.ingest.wire import BYTES, FIXED32, FIXED64, VARINT

_BASE, _SCRATCH, _SCRATCH_2 = 8 * S.BASE, 8 * S.SCRATCH, 8 * S.SCRATCH_2
_NUM_EVENTS, _NUM_LINKS = 8 * S.NUM_EVENTS, 8 * S.NUM_LINKS
_TRACE_IDS, _SPAN_IDS, _PARENT_IDS = 8 * S.TRACE_IDS, 8 * S.SPAN_IDS, 8 * S.PARENT_IDS
_TRACE_END, _SPAN_END, _PARENT_END = 8 * C.TRACE_END, 8 * C.SPAN_END, 8 * C.PARENT_END
_NAME, _KIND, _STATUS = 8 * C.NAME, 8 * C.KIND, 8 * C.STATUS
_START, _END = 8 * C.START, 8 * C.END
_PLAIN, _WHOLE = int(Tag.PLAIN), int(Tag.WHOLE)
_REAL, _RAW = int(Tag.REAL), int(Tag.RAW)
_NO_CODE, _NO_TIME, _DONE = NO_CODE, NO_TIME, int(Status.DONE)
_VARINT, _FIXED64, _BYTES, _FIXED32 = VARINT, FIXED64, BYTES, FIXED32
_NUM_KINDS = max(KINDS)
_MAX_NUMBER = 2**29 - 1


@compiled
def read_varint(state, at, stop):
    """The address behind a number, whose value is at SCRATCH (as int64); at most ten bytes."""
    value = 0
    shift = 0
    while at < stop:
        byte = load8(at)
        at += 1
        if shift == 63 and byte > 1:
            return DECLINED
        value |= (byte & 127) << shift
        if byte < 128:
            store64(state + _SCRATCH, value)
            return at
        shift += 7
    return DECLINED


@compiled
def next_field(state, at, stop):
    """From a field's tag to its value: the tag is at SCRATCH_2, the size or number at SCRATCH."""
    at = read_varint(state, at, stop)
    if at < 0:
        return DECLINED
    tag = load64(state + _SCRATCH)
    if tag < 8 or tag >> 3 > _MAX_NUMBER:
        return DECLINED
    store64(state + _SCRATCH_2, tag)
    kind = tag & 7
    if kind == _VARINT:
        # The value lies before the address that is returned.
        return read_varint(state, at, stop)
    if kind == _BYTES:
        at = read_varint(state, at, stop)
        if at < 0:
            return DECLINED
    elif kind == _FIXED64:
        store64(state + _SCRATCH, 8)
    elif kind == _FIXED32:
        store64(state + _SCRATCH, 4)
    else:
        return DECLINED
    size = load64(state + _SCRATCH)
    return DECLINED if size < 0 or size > stop - at else at


@compiled
def behind(state, at):
    """From a field's value, as `next_field` gives it, to the next field."""
    if load64(state + _SCRATCH_2) & 7 == _VARINT:
        return at
    return at + load64(state + _SCRATCH)


@compiled
def value_code(state, at, stop):
    """An AnyValue of one field: a text or number by its own code, anything else by its bytes."""
    begin = at
    if at < stop:
        at = next_field(state, at, stop)
        if at < 0:
            return DECLINED
        tag, size = load64(state + _SCRATCH_2), load64(state + _SCRATCH)
        end = behind(state, at)
        if end == stop:
            if tag == 8 + _BYTES:
                return code_of(state, at, size, _PLAIN, 0)
            if tag == 24 + _VARINT:
                return code_of(state, begin + 1, end - begin - 1, _WHOLE, size)
            if tag == 32 + _FIXED64:
                bits = load64(at)
                if bits & 0xFFFFFFFF == 0:
                    return code_of(state, at, 8, _REAL, bits)
                return add_real(state, bits, 0)
    return code_of(state, begin, stop - begin, _RAW, 0)


@compiled
def read_attribute(state, at, stop):
    """One KeyValue."""
    key = value = key_size = value_size = -1
    while at < stop:
        at = next_field(state, at, stop)
        if at < 0:
            return DECLINED
        tag = load64(state + _SCRATCH_2)
        if tag == 8 + _BYTES:
            key, key_size = at, load64(state + _SCRATCH)
        elif tag == 16 + _BYTES:
            value, value_size = at, load64(state + _SCRATCH)
        at = behind(state, at)
    if key_size <= 0 or value_size < 0:
        return DECLINED
    key = code_of(state, key, key_size, _PLAIN, 0)
    if key < 0:
        return key
    value = value_code(state, value, value + value_size)
    return value if value < 0 else add_attribute(state, key, value)


@compiled
def read_span(state, at, stop):
    """One Span."""
    row = start_span(state)
    if row < 0:
        return row
    while at < stop:
        at = next_field(state, at, stop)
        if at < 0:
            return DECLINED
        tag, size = load64(state + _SCRATCH_2), load64(state + _SCRATCH)
        end = behind(state, at)
        result = 0
        if tag == 72 + _BYTES:
            result = read_attribute(state, at, end)
        elif tag == 8 + _BYTES:
            result = put_hexadecimal(state, row, _TRACE_END, _TRACE_IDS, at, size)
        elif tag == 16 + _BYTES:
            result = put_hexadecimal(state, row, _SPAN_END, _SPAN_IDS, at, size)
        elif tag == 32 + _BYTES:
            result = put_hexadecimal(state, row, _PARENT_END, _PARENT_IDS, at, size)
        elif tag == 40 + _BYTES:
            result = code_of(state, at, size, _PLAIN, 0)
            store64(row + _NAME, result)
        elif tag == 48 + _VARINT:
            store64(row + _KIND, size if 0 < size <= _NUM_KINDS else _NO_CODE)
        elif tag == 56 + _FIXED64:
            value = load64(at)
            store64(row + _START, value if value > 0 else _NO_TIME)
        elif tag == 64 + _FIXED64:
            value = load64(at)
            store64(row + _END, value if value > 0 else _NO_TIME)
        elif tag == 88 + _BYTES:
            store64(state + _NUM_EVENTS, load64(state + _NUM_EVENTS) + 1)
        elif tag == 104 + _BYTES:
            store64(state + _NUM_LINKS, load64(state + _NUM_LINKS) + 1)
        elif tag == 120 + _BYTES:
            result = code_of(state, at, size, _RAW, 0)
            store64(row + _STATUS, result)
        if result < 0:
            return result
        at = end
    return end_span(state, row)


@compiled
def read_scope(state, at, stop, resource):
    """One ScopeSpans."""
    scope = _NO_CODE
    while at < stop:
        at = next_field(state, at, stop)
        if at < 0:
            return DECLINED
        tag, size = load64(state + _SCRATCH_2), load64(state + _SCRATCH)
        end = behind(state, at)
        if tag == 16 + _BYTES:
            failed = read_span(state, at, end)
            if failed < 0:
                return failed
        elif tag == 8 + _BYTES:
            if scope != _NO_CODE:
                return DECLINED
            scope = code_of(state, at, size, _RAW, 0)
            if scope < 0:
                return scope
        at = end
    return end_scope(state, scope, resource)


@compiled
def resource_of(state, at, stop):
    """The code of the Resource of a ResourceSpans message; NO_CODE - 100 for none."""
    resource = _NO_CODE - 100
    while at < stop:
        at = next_field(state, at, stop)
        if at < 0:
            return DECLINED
        tag, size = load64(state + _SCRATCH_2), load64(state + _SCRATCH)
        at = behind(state, at)
        if tag == 8 + _BYTES:
            if resource >= 0:
                return DECLINED
            resource = code_of(state, at - size, size, _RAW, 0)
            if resource < 0:
                return resource
    return resource


@compiled
def read_resource(state, at, stop):
    """One ResourceSpans: the spans of all scopes, which may stand before the resource."""
    resource = resource_of(state, at, stop)
    if resource == _NO_CODE - 100:
        resource = _NO_CODE
    elif resource < 0:
        return resource
    num_scopes = 0
    while at < stop:
        at = next_field(state, at, stop)
        tag = load64(state + _SCRATCH_2)
        end = behind(state, at)
        if tag == 16 + _BYTES:
            failed = read_scope(state, at, end, resource)
            if failed < 0:
                return failed
            num_scopes += 1
        at = end
    # A resource without scopes is seen nowhere else.
    return DECLINED if num_scopes == 0 else 0


@compiled
def scan_messages(state, places, num_places):
    """ResourceSpans messages, by their begins and ends in the input."""
    base = load64(state + _BASE)
    for number in range(num_places):
        place = places + 16 * number
        failed = read_resource(state, base + load64(place), base + load64(place + 8))
        if failed < 0:
            return failed
    return _DONE
