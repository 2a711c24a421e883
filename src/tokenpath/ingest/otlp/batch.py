"""Spans as columns: what every way of decoding OTLP ends in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokenpath.core.units import INT64_MAX
from tokenpath.ingest.plain_texts import not_plain

KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}
"""SpanKind of opentelemetry/proto/trace/v1/trace.proto; 0 is unspecified."""
STATUSES = {1: "ok", 2: "error"}
"""Status.StatusCode of the same file; 0 is unset."""
NO_TIME = -1
"""A time that is missing, zero or no int64; it never leaves this package."""

_KIND_WORDS = {f"SPAN_KIND_{name.upper()}": name for name in KINDS.values()}
_STATUS_WORDS = {f"STATUS_CODE_{name.upper()}": name for name in STATUSES.values()}


@dataclass(frozen=True)
class SpanBatch:
    """Some spans of one file, each column as long as there are spans, attributes one after the other."""

    trace_id: pa.Array
    """As the file writes it."""
    span_id: pa.Array
    """As the file writes it."""
    parent_id: pa.Array
    """As the file writes it; NULL or empty for a root."""
    name: pa.DictionaryArray
    """Operation; NULL if missing."""
    kind: pa.DictionaryArray
    """A value of `KINDS`, or NULL."""
    status: pa.DictionaryArray
    """A value of `STATUSES`, or NULL."""
    service: pa.DictionaryArray
    """service.name of the resource, or NULL."""
    scope: pa.DictionaryArray
    """Name of the instrumentation scope, or NULL."""
    start_ns: NDArray[np.int64]
    """Epoch nanoseconds, or NO_TIME."""
    end_ns: NDArray[np.int64]
    """Epoch nanoseconds, or NO_TIME."""
    offsets: NDArray[np.int32]
    """Attributes of span i: `offsets[i]` up to `offsets[i + 1]`."""
    keys: pa.DictionaryArray
    """Key of each attribute."""
    texts: pa.DictionaryArray
    """Value of each attribute as text; NULL if it has none that can be kept. Texts may be there twice."""
    numbers: NDArray[np.float64]
    """The same as numbers; NaN for what is none."""
    resource: frozenset[tuple[str, str]] = frozenset()
    """Attributes of the resources of these spans, as text."""
    num_events: int = 0
    """Events within the spans; they have no table."""
    num_links: int = 0
    """Links of the spans to others; they have no table."""

    def __len__(self) -> int:
        """Number of spans."""
        return len(self.start_ns)


@dataclass
class SpanRows:
    """Collects spans one by one, for the ways of decoding that see one at a time."""

    trace_id: list[str | None] = field(default_factory=list)
    span_id: list[str | None] = field(default_factory=list)
    parent_id: list[str | None] = field(default_factory=list)
    name: list[str | None] = field(default_factory=list)
    kind: list[str | None] = field(default_factory=list)
    status: list[str | None] = field(default_factory=list)
    service: list[str | None] = field(default_factory=list)
    scope: list[str | None] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    numbers: list[float | None] = field(default_factory=list)
    resource: set[tuple[str, str]] = field(default_factory=set)
    num_events: int = 0
    num_links: int = 0

    def __len__(self) -> int:
        """Number of spans."""
        return len(self.ends)

    def add_attribute(self, key: str, text: str | None, number: float | None) -> None:
        """One more attribute of the span that comes next; a number without text is written as one."""
        self.keys.append(key)
        self.texts.append(text)
        self.numbers.append(number)

    def end_span(self) -> None:
        """The span whose columns and attributes were added is complete."""
        self.ends.append(len(self.keys))

    def finish(self) -> SpanBatch:
        """The columns."""
        numbers = pa.array(self.numbers, pa.float64())
        return SpanBatch(
            *(_texts(column) for column in (self.trace_id, self.span_id, self.parent_id)),
            *(_texts(column).dictionary_encode() for column in (self.name, self.kind, self.status)),
            *(encoded(_texts(column)) for column in (self.service, self.scope)),
            np.array(self.start_ns, np.int64),
            np.array(self.end_ns, np.int64),
            np.array([0, *self.ends], np.int32),
            _texts(self.keys).dictionary_encode(),
            numbers_as_text(_texts(self.texts), numbers).dictionary_encode(),
            plain_numbers(numbers),
            frozenset(self.resource),
            self.num_events,
            self.num_links,
        )


def encoded(texts: pa.Array) -> pa.DictionaryArray:
    """Texts by codes; an empty one is NULL."""
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts).dictionary_encode()


def plain_numbers(numbers: pa.Array) -> NDArray[np.float64]:
    """NaN for NULL."""
    plain: NDArray[np.float64] = numbers.fill_null(np.nan).to_numpy(zero_copy_only=False)
    return plain


def dictionary_of(codes: NDArray[np.integer], texts: pa.Array) -> pa.DictionaryArray:
    """Codes into texts, without the texts that no row has.

    Texts that may be masked are in the order in which rows have them first, since masking numbers
    pseudonyms in that order. Negative codes and texts that are NULL are NULL.
    """
    codes = np.maximum(codes, -1)
    first = np.full(len(texts) + 1, len(codes), np.int32)
    # Of several rows the one assigned last stays.
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1, dtype=np.int32)
    first[-1] = len(codes)
    if texts.null_count:
        first[:-1][texts.is_null().to_numpy(zero_copy_only=False)] = len(codes)
    used = np.flatnonzero(first < len(codes))
    if len(used) < len(texts):
        texts = texts.take(pa.array(used))
    special = np.flatnonzero(not_plain(texts))
    in_order = special[np.argsort(first[used[special]])]
    if (special != in_order).any():
        order = np.arange(len(used))
        order[special] = in_order
        used, texts = used[order], texts.take(pa.array(order))
    recode = np.full(len(first), -1, np.int32)
    recode[used] = np.arange(len(used), dtype=np.int32)
    own = recode[codes]
    mask = own < 0
    indices = pa.array(own, mask=mask) if mask.any() else pa.array(own)
    return pa.DictionaryArray.from_arrays(indices, texts)


def readable(text: str) -> str:
    """JSON may escape half of a surrogate pair, which is no text."""
    return text.encode("utf-8", "replace").decode()


def numbers_as_text(texts: pa.Array, numbers: pa.Array) -> pa.Array:
    """Texts, and where there is none the number as the shortest decimal that reads as it."""
    missing = pc.and_(texts.is_null(), numbers.is_valid())
    if not pc.any(missing).as_py():
        return texts
    return pc.replace_with_mask(texts, missing, pc.cast(numbers.filter(missing), pa.string()))


def kind_of(value: object) -> str | None:
    """The kind from its number or its name."""
    if isinstance(value, int) and not isinstance(value, bool):
        return KINDS.get(value)
    return _KIND_WORDS.get(value) if isinstance(value, str) else None


def status_of(value: object) -> str | None:
    """The status from its number or its name."""
    if isinstance(value, int) and not isinstance(value, bool):
        return STATUSES.get(value)
    return _STATUS_WORDS.get(value) if isinstance(value, str) else None


def time_of(value: object) -> int:
    """Epoch nanoseconds from fixed64, which JSON writes as text; NO_TIME for none."""
    if isinstance(value, str) and len(value) <= 20 and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return NO_TIME
    return value if 0 < value <= INT64_MAX else NO_TIME


def _texts(values: Sequence[str | None]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        whole = (None if text is None else readable(text) for text in values)
        return pa.array(whole, pa.string())
