"""What the compiled scanners found as a batch of spans: each distinct text decoded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokenpath.ingest.otlp.batch import SpanBatch, dictionary_of, readable
from tokenpath.ingest.otlp.scan import Found, Int64s, texts_of
from tokenpath.ingest.otlp.state import NO_CODE, C, S, Tag

Value = tuple[str | None, float | None]
"""Text and number of a value, as `json_rows` and `protobuf` give them."""
Float64s = NDArray[np.float64]
T = TypeVar("T")


class Declined(Exception):
    """Something that the other ways have to look at: they count it, or know its spelling."""


class Decoder(Protocol):
    """What the texts of one encoding mean. Each method may raise Declined."""

    def text(self, data: bytes) -> str:
        """A string with escapes."""

    def value(self, data: bytes) -> Value:
        """An AnyValue."""

    def resource(self, data: bytes) -> list[tuple[str, str]]:
        """The attributes of a Resource that have a text."""

    def scope(self, data: bytes) -> str | None:
        """The name of an InstrumentationScope."""

    def kinds(self, kinds: Int64s, found: Found, /) -> pa.Array:
        """The kinds of spans, from their column."""

    def status(self, data: bytes) -> tuple[str | None, str | None]:
        """Status and message."""

    def wholes(self, texts: pa.Array, values: Int64s, /) -> tuple[pa.Array, Float64s]:
        """Whole numbers as text and as doubles, from their texts and the values in their entries."""

    def short_reals(self, texts: pa.Array, values: Int64s, /) -> Float64s:
        """Doubles that have a code, likewise."""

    def reals(self, found: Found) -> Float64s:
        """The others."""


def batch_of(found: Found, decoder: Decoder) -> SpanBatch | None:
    """The batch; None if something in it has to be looked at by the other ways."""
    try:
        return _batch(found, decoder)
    except (Declined, pa.ArrowException):
        return None


def _batch(found: Found, decoder: Decoder) -> SpanBatch:
    spans = np.ascontiguousarray(found.spans.T)
    values, numbers = _values(found, decoder)
    num_texts = len(found.entries)
    keys, codes = found.attributes[:, 0], found.attributes[:, 1]
    # Codes below -1 are rows of `reals`, which stand behind the texts.
    codes = np.where(codes < NO_CODE, np.int32(num_texts - 2) - codes, codes)
    offsets = np.append(0, spans[C.ATTRIBUTES_END]).astype(np.int32)
    statuses = _by_code(spans[C.STATUS], found, decoder.status)
    messages = {code: text for code, (_, text) in statuses.items() if text}
    if messages:
        values = pa.concat_arrays([values, pa.array(["status.message", *messages.values()])])
        first = len(values) - len(messages)
        code_of = {code: first + number for number, code in enumerate(messages)}
        of_span = np.array([code_of.get(code, NO_CODE) for code in spans[C.STATUS].tolist()])
        at = np.flatnonzero(of_span != NO_CODE)
        keys = np.insert(keys, offsets[1:][at], first - 1)
        codes = np.insert(codes, offsets[1:][at], of_span[at].astype(np.int32))
        numbers = np.append(numbers, np.full(1 + len(messages), np.nan))
        offsets[1:] += np.cumsum(of_span != NO_CODE)
    scope_of = pa.array(spans[C.SCOPE])
    scopes = _by_code(found.scopes[:, 0], found, decoder.scope)
    resources = _by_code(found.scopes[:, 1], found, decoder.resource)
    services = {code: dict(pairs).get("service.name") for code, pairs in resources.items()}
    return SpanBatch(
        _ids(found.trace_ids, spans[C.TRACE_END]),
        _ids(found.span_ids, spans[C.SPAN_END]),
        _ids(found.parent_ids, spans[C.PARENT_END]),
        dictionary_of(spans[C.NAME], values),
        decoder.kinds(spans[C.KIND], found),
        named(spans[C.STATUS], {code: status for code, (status, _) in statuses.items()}),
        named(found.scopes[:, 1], services).take(scope_of),
        named(found.scopes[:, 0], scopes).take(scope_of),
        spans[C.START],
        spans[C.END],
        offsets,
        dictionary_of(keys, values),
        _all_of(codes, values),
        numbers[codes],
        frozenset(pair for pairs in resources.values() for pair in pairs),
        int(found.state[S.NUM_EVENTS]),
        int(found.state[S.NUM_LINKS]),
    )


def _all_of(codes: NDArray[np.int32], values: pa.Array) -> pa.DictionaryArray:
    """Codes into all values, since some are dropped later anyway."""
    if not values.null_count:
        return pa.DictionaryArray.from_arrays(pa.array(codes), values)
    missing = values.is_null().to_numpy(zero_copy_only=False)
    return pa.DictionaryArray.from_arrays(
        pa.array(codes, mask=missing[codes]), values.fill_null("")
    )


def _values(found: Found, decoder: Decoder) -> tuple[pa.Array, Float64s]:
    """What each text is as a value, and as a number (NaN for none); then the doubles without a code."""
    values = texts_of(found)
    numbers = np.full(len(values) + len(found.reals), np.nan)
    for tag in (Tag.WHOLE, Tag.REAL):
        rows = np.flatnonzero(found.is_tagged(tag))
        if not len(rows):
            continue
        texts, entries = values.take(pa.array(rows)), found.entries[rows, 3]
        if tag is Tag.WHOLE:
            new, numbers[rows] = decoder.wholes(texts, entries)
        else:
            numbers[rows] = decoder.short_reals(texts, entries)
            new = _written(numbers[rows])
        values = pc.replace_with_mask(values, pa.array(found.is_tagged(tag)), new)
    # Arrow checks no UTF-8 by itself; text that is none would fail much later.
    values.validate(full=True)
    values = _with_odd_ones(found, decoder, values, numbers)
    if len(found.reals):
        reals = numbers[len(values) :] = decoder.reals(found)
        values = pa.concat_arrays([values, _written(reals)])
    return values, numbers


def _with_odd_ones(found: Found, decoder: Decoder, values: pa.Array, numbers: Float64s) -> pa.Array:
    """Strings with escapes, and values of other kinds, one by one."""
    used = np.zeros(len(values), bool)
    for codes in (found.attributes[:, 1], found.spans[:, C.NAME]):
        used[codes[codes >= 0]] = True
    odd = used & (found.is_tagged(Tag.ESCAPED) | found.is_tagged(Tag.RAW))
    if not odd.any():
        return values
    escaped = found.is_tagged(Tag.ESCAPED)
    texts: list[str | None] = []
    for code in np.flatnonzero(odd).tolist():
        if escaped[code]:
            texts.append(readable(decoder.text(found.text(code))))
            continue
        text, number = decoder.value(found.text(code))
        if number is not None:
            numbers[code] = number
            text = _written(numbers[code : code + 1])[0].as_py() if text is None else text
        texts.append(None if text is None else readable(text))
    return pc.replace_with_mask(values, pa.array(odd), pa.array(texts, pa.string()))


def _written(numbers: Float64s) -> pa.Array:
    """The shortest decimals that read as the numbers."""
    if not np.isfinite(numbers).all():
        raise Declined
    return pc.cast(pa.array(numbers), pa.string())


def _by_code(codes: Int64s, found: Found, decode: Callable[[bytes], T]) -> dict[int, T]:
    return {code: decode(found.text(code)) for code in np.unique(codes).tolist() if code >= 0}


def named(codes: Int64s, name_of: dict[int, str | None]) -> pa.DictionaryArray:
    """Codes of any kind as names; no name, or an empty one, is NULL."""
    distinct, at = np.unique(codes, return_inverse=True)
    names = [name_of.get(code) or None for code in distinct.tolist()]
    known = sorted({name for name in names if name is not None})
    number_of = {name: number for number, name in enumerate(known)}
    own = np.array([-1 if n is None else number_of[n] for n in names] or [-1], np.int32)
    return dictionary_of(own[at], pa.array([readable(name) for name in known], pa.string()))


def _ids(ids: NDArray[np.uint8], ends: Int64s) -> pa.Array:
    offsets = np.append(0, ends).astype(np.int32)
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(ids))
