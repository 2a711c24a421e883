"""Whether bytes are OTLP protobuf, told by a span's two ids; the bytes may be cut anywhere."""

from __future__ import annotations

from collections.abc import Iterator

from tokenpath.ingest.wire import BYTES, FIXED32, FIXED64, VARINT, WireError, read_varint

_MAX_FIELDS = 10_000
"""Fields looked at before the answer is no."""


def looks_like_traces(head: bytes) -> bool:
    """ResourceSpans > ScopeSpans > Span with a trace id of 16 bytes and a span id of 8."""
    return _is_message(head, 0) or is_delimited(head)


def is_delimited(data: bytes) -> bool:
    """Whether the first message stands behind its length."""
    if _is_message(data, 0):
        return False
    try:
        length, begin = read_varint(data, 0, len(data))
    except WireError:
        return False
    return length > 0 and _is_message(data[: begin + length], begin)


def _is_message(data: bytes, begin: int) -> bool:
    budget = [_MAX_FIELDS]
    for number, resource in _parts(data, begin, len(data), budget):
        if number != 1 or resource is None:
            return False
        for inner, scope in _parts(data, *resource, budget):
            if inner not in (1, 2, 3, 1000) or scope is None:
                return False
            if inner == 2 and _has_span(data, scope, budget):
                return True
    return False


def _has_span(data: bytes, scope: tuple[int, int], budget: list[int]) -> bool:
    for number, span in _parts(data, *scope, budget):
        if number == 2 and span is not None:
            ids = {
                field: part[1] - part[0]
                for field, part in _parts(data, *span, budget)
                if field in (1, 2) and part is not None
            }
            return ids == {1: 16, 2: 8}
    return False


def _parts(
    data: bytes, at: int, stop: int, budget: list[int]
) -> Iterator[tuple[int, tuple[int, int] | None]]:
    """Number and place of each field; None for one that is no message or text. Ends where it is none."""
    stop = min(stop, len(data))
    while at < stop and budget[0] > 0:
        budget[0] -= 1
        try:
            tag, at = read_varint(data, at, stop)
            number, kind = tag >> 3, tag & 7
            if kind == BYTES:
                length, at = read_varint(data, at, stop)
                yield number, (at, at + length)
                at += length
            elif kind == VARINT:
                _, at = read_varint(data, at, stop)
                yield number, None
            elif kind in (FIXED32, FIXED64):
                at += 8 if kind == FIXED64 else 4
                yield number, None
            else:
                yield -1, None
                return
        except WireError:
            return
