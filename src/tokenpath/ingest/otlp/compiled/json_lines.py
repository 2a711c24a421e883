"""Compiled pieces of the JSON scanner: requests, one a line, down to their spans."""

from __future__ import annotations

# mypy: ignore-errors
# numba finds the types; all of them are int64.
from tokenpath.ingest.kineto.compiled.json import skip_space, skip_value
from tokenpath.ingest.kineto.compiled.machine import compiled, load8, load64, store64
from tokenpath.ingest.otlp.compiled.json_span import key_word, raw_code, read_span
from tokenpath.ingest.otlp.compiled.json_text import (
    ENDED,
    line_end,
    next_item,
    next_value,
    open_bracket,
)
from tokenpath.ingest.otlp.compiled.sink import DECLINED, end_scope
from tokenpath.ingest.otlp.state import NO_CODE, S, Status

_KEY, _KEY_SIZE, _SCRATCH = 8 * S.KEY, 8 * S.KEY_SIZE, 8 * S.SCRATCH
_SCOPES, _NUM_SCOPES = 8 * S.SCOPES, 8 * S.NUM_SCOPES
_NO_CODE, _DONE = NO_CODE, int(Status.DONE)


def _word(text: str) -> int:
    """The first eight bytes of a text as a word."""
    return int.from_bytes(text.encode()[:8].ljust(8, b"\0"), "little", signed=True)


_W_SPANS, _W_SCOPE, _W_SCHEMA = _word("spans"), _word("scope"), _word("schemaUrl")
_W_RESOURCE, _W_LAST = _word("resource"), _word("resourceSpans"[5:])
_W_SCOPE_SPANS, _T_SCOPE_SPANS = _word("scopeSpans"), _word("scopeSpans"[2:])


@compiled
def read_spans(state, at, limit):
    """A list of spans."""
    at = open_bracket(at, limit, 91)
    is_first = 1
    while at >= 0:
        at = next_item(at, limit, is_first)
        if at < 0 or at & ENDED:
            return at & ~ENDED if at >= 0 else at
        is_first = 0
        at = read_span(state, at, limit)
    return at


@compiled
def read_scope(state, at, limit):
    """One ScopeSpans, from its `{`."""
    at = open_bracket(at, limit, 123)
    store64(state + _SCRATCH, _NO_CODE)
    scope = _NO_CODE
    seen = 0
    is_first = 1
    while at >= 0:
        at = next_value(state, at, limit, is_first)
        if at < 0:
            return at
        if at & ENDED:
            break
        is_first = 0
        size = load64(state + _KEY_SIZE)
        word = key_word(load64(state + _KEY), size)
        if word == _W_SPANS and size == 5 and not seen & 1:
            seen |= 1
            at = read_spans(state, at, limit)
        elif word == _W_SCOPE and size == 5 and not seen & 2:
            seen |= 2
            at = raw_code(state, at, limit, state + _SCRATCH)
            scope = load64(state + _SCRATCH)
        elif word == _W_SCHEMA and size == 9:
            at = skip_value(at, limit)
        else:
            return DECLINED
    if at < 0 or not seen & 1:
        return DECLINED if at >= 0 else at
    failed = end_scope(state, scope, _NO_CODE)
    return failed if failed < 0 else at & ~ENDED


@compiled
def read_scopes(state, at, limit):
    """A list of ScopeSpans."""
    at = open_bracket(at, limit, 91)
    is_first = 1
    while at >= 0:
        at = next_item(at, limit, is_first)
        if at < 0 or at & ENDED:
            return at & ~ENDED if at >= 0 else at
        is_first = 0
        at = read_scope(state, at, limit)
    return at


@compiled
def read_resource(state, at, limit):
    """One ResourceSpans, from its `{`."""
    at = open_bracket(at, limit, 123)
    resource = _NO_CODE
    first = load64(state + _NUM_SCOPES)
    seen = 0
    is_first = 1
    while at >= 0:
        at = next_value(state, at, limit, is_first)
        if at < 0:
            return at
        if at & ENDED:
            break
        is_first = 0
        size = load64(state + _KEY_SIZE)
        word = key_word(load64(state + _KEY), size)
        is_scopes = word == _W_SCOPE_SPANS and size == 10
        if is_scopes and load64(load64(state + _KEY) + 2) == _T_SCOPE_SPANS and not seen & 1:
            seen |= 1
            at = read_scopes(state, at, limit)
        elif word == _W_RESOURCE and size == 8 and not seen & 2:
            seen |= 2
            at = raw_code(state, at, limit, state + _SCRATCH)
            resource = load64(state + _SCRATCH)
        elif word == _W_SCHEMA and size == 9:
            at = skip_value(at, limit)
        else:
            return DECLINED
    # A resource without spans is seen nowhere else.
    if at >= 0 and (not seen & 1 or load64(state + _NUM_SCOPES) == first):
        return DECLINED
    if at < 0:
        return at
    for number in range(first, load64(state + _NUM_SCOPES)):
        store64(load64(state + _SCOPES) + 16 * number + 8, resource)
    return at & ~ENDED


@compiled
def read_request(state, at, limit):
    """One ExportTraceServiceRequest, from its `{`."""
    at = open_bracket(at, limit, 123)
    at = next_value(state, at, limit, 1) if at >= 0 else at
    if at < 0 or at & ENDED or load64(state + _KEY_SIZE) != 13:
        return DECLINED
    # "resourceSpans": its first eight bytes, and what tells it from others as long.
    key = load64(state + _KEY)
    if load64(key) != _W_RESOURCE or load64(key + 5) != _W_LAST:
        return DECLINED
    at = open_bracket(at, limit, 91)
    is_first = 1
    while at >= 0:
        at = next_item(at, limit, is_first)
        if at < 0 or at & ENDED:
            break
        is_first = 0
        at = read_resource(state, at, limit)
    if at < 0:
        return at
    at = next_value(state, at & ~ENDED, limit, 0)
    return at & ~ENDED if at >= 0 and at & ENDED else DECLINED


@compiled
def scan_lines(state, at, stop):
    """All lines, each a request."""
    while at < stop:
        limit = line_end(at, stop)
        if limit < 0:
            return limit
        at = skip_space(at, limit)
        if at < limit:
            if load8(at) != 123:
                return DECLINED
            at = read_request(state, at, limit)
            if at < 0:
                return at
            if skip_space(at, limit) < limit:
                return DECLINED
        at = limit + 1
    return _DONE
