"""Batches of spans to the `span` table: ids and times judged, attributes kept or dropped by key."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokenpath.core.redact import MASK, Redactor
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.otlp.attributes import RESOURCE_SETTINGS, Keep, keep
from tokenpath.ingest.otlp.batch import NO_TIME, SpanBatch
from tokenpath.ingest.otlp.ids import SPAN_BYTES, TRACE_BYTES, hexadecimal
from tokenpath.ingest.otlp.json_rows import MAX_TEXT

MAX_NAME = 1024
"""Longer names of spans are cut."""

_THREAD_HOST = re.compile(r"\(host:([0-9A-Za-z]{1,8}) \| pid:")
"""SGLang names its thread spans `<label> [TP 0] (host:<start of the machine id> | pid:<pid>)`."""
_HOST_WITH_PORT = re.compile(r"(?P<host>[^:/\s]{4,253})(?P<port>:\d{1,5})?")


@dataclass(frozen=True)
class Kept:
    """What requests are made of: columns as long as there are spans, and attributes with their span."""

    trace_id: pa.Array
    span_id: pa.Array
    parent_id: pa.Array
    name: pa.Array
    kind: pa.Array
    status: pa.Array
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    span_of: NDArray[np.int64]
    """Span that each attribute belongs to."""
    keys: pa.Array
    texts: pa.Array
    numbers: NDArray[np.float64]
    """NaN for what is no number."""


def add_batch(builder: CaptureBuilder, redactor: Redactor, batch: SpanBatch) -> Kept:
    """Add the spans to the builder; what was dropped is counted there."""
    _settings(builder, batch)
    losses = builder.losses
    losses.add("span event", batch.num_events, dropped=False)
    losses.add("span link", batch.num_links, dropped=False)
    trace, span = hexadecimal(batch.trace_id, TRACE_BYTES), hexadecimal(batch.span_id, SPAN_BYTES)
    parent = hexadecimal(batch.parent_id, SPAN_BYTES)
    num_base64 = trace.num_base64 + span.num_base64 + parent.num_base64
    losses.add("id in base64", num_base64, lost=False, dropped=False)
    losses.add("damaged parent id", parent.num_damaged, dropped=False)
    has_ids = pc.and_(trace.values.is_valid(), span.values.is_valid())
    good = has_ids.to_numpy(zero_copy_only=False).astype(bool)
    losses.add("damaged id", int((~good).sum()))
    has_start = batch.start_ns != NO_TIME
    losses.add("missing timestamp", int((good & ~has_start).sum()))
    good &= has_start
    no_end = good & (batch.end_ns == NO_TIME)
    losses.add("missing duration", int(no_end.sum()), dropped=False)
    end = np.where(no_end, batch.start_ns, batch.end_ns)
    negative = good & (end < batch.start_ns)
    losses.add("negative duration", int(negative.sum()))
    good &= ~negative
    rows = pa.array(np.flatnonzero(good))
    attributes = _attributes(builder, redactor, batch, good)
    columns = {
        "trace_id": trace.values.take(rows),
        "span_id": span.values.take(rows),
        "parent_span_id": parent.values.take(rows),
        "name": _names(batch.name.take(rows), redactor),
        "kind": batch.kind.take(rows).dictionary_encode(),
        "service": _none_for_empty(batch.service.take(rows)).dictionary_encode(),
        "scope": _none_for_empty(batch.scope.take(rows)).dictionary_encode(),
        "status": batch.status.take(rows).dictionary_encode(),
        "start_ns": batch.start_ns[good],
        "end_ns": end[good],
    }
    lengths = np.diff(attributes.offsets)
    maps = pa.MapArray.from_arrays(attributes.offsets, attributes.keys, attributes.texts)
    builder.add("span", {**columns, "attributes": maps})
    return Kept(
        *(columns[name] for name in ("trace_id", "span_id", "parent_span_id", "name", "kind")),
        columns["status"],
        columns["start_ns"],
        columns["end_ns"],
        np.repeat(np.arange(len(lengths)), lengths),
        attributes.keys,
        attributes.texts,
        attributes.numbers.to_numpy(zero_copy_only=False),
    )


def concat(parts: list[Kept]) -> Kept:
    """All spans of a file."""
    before = np.cumsum([0, *(len(part.start_ns) for part in parts[:-1])])
    moved = [part.span_of + at for part, at in zip(parts, before, strict=True)]

    def column(name: str) -> pa.Array:
        arrays = [getattr(part, name) for part in parts]
        plain = [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in arrays]
        return pa.concat_arrays(plain)

    return Kept(
        *(column(name) for name in ("trace_id", "span_id", "parent_id", "name", "kind", "status")),
        np.concatenate([part.start_ns for part in parts]),
        np.concatenate([part.end_ns for part in parts]),
        np.concatenate(moved),
        column("keys"),
        column("texts"),
        np.concatenate([part.numbers for part in parts]),
    )


@dataclass(frozen=True)
class _Attributes:
    offsets: NDArray[np.int32]
    keys: pa.Array
    texts: pa.Array
    numbers: pa.Array


def _attributes(
    builder: CaptureBuilder, redactor: Redactor, batch: SpanBatch, good: NDArray[np.bool_]
) -> _Attributes:
    """Attributes of the good spans, without those that may not or cannot be kept."""
    encoded = batch.keys.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    what = [keep(key) for key in encoded.dictionary.to_pylist()]
    lengths = np.diff(batch.offsets)
    wanted = np.repeat(good, lengths)
    losses = builder.losses
    for dropped in (Keep.NOT_USER_TEXT, Keep.NOT_MACHINE):
        of_kind = np.array([item is dropped for item in what], bool)
        if of_kind.any():
            found = of_kind[codes] & wanted
            losses.add(f"attribute: {dropped.value}", int(found.sum()), lost=False, dropped=False)
            wanted &= ~found
    valid = batch.texts.is_valid().to_numpy(zero_copy_only=False)
    losses.add("attribute without a value", int((wanted & ~valid).sum()), dropped=False)
    wanted &= valid
    num_before = np.concatenate([[0], np.cumsum(wanted)])
    kept_lengths = (num_before[batch.offsets[1:]] - num_before[batch.offsets[:-1]])[good]
    offsets = np.zeros(len(kept_lengths) + 1, np.int32)
    np.cumsum(kept_lengths, out=offsets[1:])
    at = pa.array(np.flatnonzero(wanted))
    texts, kept_codes = batch.texts.take(at), codes[wanted]
    texts = _replaced(texts, kept_codes, what, redactor)
    too_long = pc.greater(pc.utf8_length(texts), MAX_TEXT)
    if pc.any(too_long).as_py():
        losses.add("attribute text cut", int(pc.sum(too_long).as_py()), dropped=False)
        texts = pc.if_else(too_long, pc.utf8_slice_codeunits(texts, 0, MAX_TEXT), texts)
    return _Attributes(offsets, batch.keys.take(at), texts, batch.numbers.take(at))


def _replaced(
    texts: pa.Array, codes: NDArray[np.int32], what: list[Keep], redactor: Redactor
) -> pa.Array:
    """Hosts as pseudonyms, values of keys that hold secrets masked."""
    for action in (Keep.HOST, Keep.MASKED):
        of_kind = np.array([item is action for item in what], bool)
        if not of_kind.any():
            continue
        mask = of_kind[codes]
        values = pc.filter(texts, pa.array(mask))
        new = [
            MASK if action is Keep.MASKED else _pseudonym(text, redactor)
            for text in values.to_pylist()
        ]
        texts = pc.replace_with_mask(texts, pa.array(mask), pa.array(new, pa.string()))
    return texts


def _pseudonym(text: str, redactor: Redactor) -> str:
    found = _HOST_WITH_PORT.fullmatch(text)
    if found is None:
        return redactor.mask([text])[0] if redactor.keep_hosts else MASK
    is_address = re.fullmatch(r"[\d.]+|localhost", found["host"]) is not None
    host = found["host"] if is_address else redactor.host(found["host"])
    return host + (found["port"] or "")


def _names(names: pa.Array, redactor: Redactor) -> pa.Array:
    """Names without hosts; an unnamed span has the empty name."""
    encoded = names.fill_null("").dictionary_encode()
    distinct = [text[:MAX_NAME] for text in encoded.dictionary.to_pylist()]
    for text in distinct:
        found = _THREAD_HOST.search(text)
        if found is not None and found[1] != "unknown":
            redactor.host(found[1])
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(distinct, pa.string()))


def _none_for_empty(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _settings(builder: CaptureBuilder, batch: SpanBatch) -> None:
    """What the resources say once for all spans; hosts only if there is one."""
    for key in RESOURCE_SETTINGS:
        values = sorted({text for name, text in batch.resource if name == key})
        for text in values[:1]:
            builder.setting(f"resource.{key}", text[:MAX_NAME])
    hosts = {text for name, text in batch.resource if name in ("host.name", "k8s.node.name")}
    if hosts:
        builder.origin.host = min(hosts)
    if builder.origin.profiler is None:
        sdk = sorted(text for name, text in batch.resource if name == "telemetry.sdk.name")
        builder.origin.profiler = sdk[0] if sdk else None
