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
from tokenpath.ingest.otlp.batch import NO_TIME, SpanBatch, dictionary_of
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
    keys: pa.DictionaryArray
    texts: pa.DictionaryArray
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
    rows = None if good.all() else pa.array(np.flatnonzero(good))

    def kept(column: pa.Array) -> pa.Array:
        return column if rows is None else column.take(rows)

    attributes = _attributes(builder, redactor, batch, good)
    columns = {
        "trace_id": kept(trace.values),
        "span_id": kept(span.values),
        "parent_span_id": kept(parent.values),
        "name": _names(kept(batch.name), redactor),
        "kind": kept(batch.kind),
        "service": kept(batch.service),
        "scope": kept(batch.scope),
        "status": kept(batch.status),
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
        attributes.numbers,
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
        _unified([part.keys for part in parts]),
        _unified([part.texts for part in parts]),
        np.concatenate([part.numbers for part in parts]),
    )


def _unified(parts: list[pa.DictionaryArray]) -> pa.DictionaryArray:
    """One column; texts that several parts have are in its dictionary several times."""
    if len(parts) == 1:
        return parts[0]
    before = np.cumsum([0, *(len(part.dictionary) for part in parts[:-1])], dtype=np.int32)
    codes = [_codes(part) + at for part, at in zip(parts, before, strict=True)]
    texts = pa.concat_arrays([part.dictionary for part in parts])
    return pa.DictionaryArray.from_arrays(pa.array(np.concatenate(codes)), texts)


@dataclass(frozen=True)
class _Attributes:
    offsets: NDArray[np.int32]
    keys: pa.DictionaryArray
    texts: pa.DictionaryArray
    numbers: NDArray[np.float64]


def _attributes(
    builder: CaptureBuilder, redactor: Redactor, batch: SpanBatch, good: NDArray[np.bool_]
) -> _Attributes:
    """Attributes of the good spans, without those that may not or cannot be kept."""
    codes = _codes(batch.keys)
    what = [keep(key) for key in batch.keys.dictionary.to_pylist()]
    lengths = np.diff(batch.offsets)
    wanted = np.ones(len(codes), bool) if good.all() else np.repeat(good, lengths)
    losses = builder.losses
    for dropped in (Keep.NOT_USER_TEXT, Keep.NOT_MACHINE):
        of_kind = np.array([item is dropped for item in what], bool)
        if of_kind.any():
            found = of_kind[codes] & wanted
            losses.add(f"attribute: {dropped.value}", int(found.sum()), lost=False, dropped=False)
            wanted &= ~found
    values = _codes(batch.texts)
    if batch.texts.null_count:
        losses.add("attribute without a value", int((wanted & (values < 0)).sum()), dropped=False)
        wanted &= values >= 0
    if good.all() and wanted.all():
        return _Attributes(
            batch.offsets,
            batch.keys,
            _kept_texts(builder, redactor, values, batch.texts.dictionary, codes, what),
            batch.numbers,
        )
    num_before = np.concatenate([[0], np.cumsum(wanted)])
    kept_lengths = (num_before[batch.offsets[1:]] - num_before[batch.offsets[:-1]])[good]
    offsets = np.zeros(len(kept_lengths) + 1, np.int32)
    np.cumsum(kept_lengths, out=offsets[1:])
    codes, values = codes[wanted], values[wanted]
    return _Attributes(
        offsets,
        dictionary_of(codes, batch.keys.dictionary),
        _kept_texts(builder, redactor, values, batch.texts.dictionary, codes, what),
        batch.numbers[wanted],
    )


def _codes(column: pa.DictionaryArray) -> NDArray[np.int32]:
    """Codes of a column, -1 for NULL."""
    codes: NDArray[np.int32] = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes


def _kept_texts(
    builder: CaptureBuilder,
    redactor: Redactor,
    values: NDArray[np.int32],
    texts: pa.Array,
    codes: NDArray[np.int32],
    what: list[Keep],
) -> pa.DictionaryArray:
    """Hosts as pseudonyms, values of keys that hold secrets masked, long texts cut."""
    for action in (Keep.HOST, Keep.MASKED):
        of_kind = np.array([item is action for item in what], bool)
        rows = np.flatnonzero(of_kind[codes]) if of_kind.any() else np.zeros(0, np.int64)
        if not len(rows):
            continue
        distinct, first, at = np.unique(values[rows], return_index=True, return_inverse=True)
        new = [MASK] * len(distinct)
        if action is Keep.HOST:
            # Pseudonyms are numbered in the order of the file.
            for number in np.argsort(first).tolist():
                new[number] = _pseudonym(texts[int(distinct[number])].as_py(), redactor)
        values = values.copy()
        values[rows] = len(texts) + at
        texts = pa.concat_arrays([texts, pa.array(new, pa.string())])
    kept = dictionary_of(values, texts)
    longest_bytes = pc.max(pc.binary_length(kept.dictionary)).as_py() or 0
    if longest_bytes <= MAX_TEXT:  # counting characters takes twenty times as long
        return kept
    too_long = pc.greater(pc.utf8_length(kept.dictionary), MAX_TEXT)
    if not pc.any(too_long).as_py():
        return kept
    is_cut = too_long.to_numpy(zero_copy_only=False)
    builder.losses.add("attribute text cut", int(is_cut[_codes(kept)].sum()), dropped=False)
    cut = pc.if_else(
        too_long, pc.utf8_slice_codeunits(kept.dictionary, 0, MAX_TEXT), kept.dictionary
    )
    return pa.DictionaryArray.from_arrays(kept.indices, cut)


def _pseudonym(text: str, redactor: Redactor) -> str:
    found = _HOST_WITH_PORT.fullmatch(text)
    if found is None:
        return redactor.mask([text])[0] if redactor.keep_hosts else MASK
    is_address = re.fullmatch(r"[\d.]+|localhost", found["host"]) is not None
    host = found["host"] if is_address else redactor.host(found["host"])
    return host + (found["port"] or "")


def _names(names: pa.DictionaryArray, redactor: Redactor) -> pa.Array:
    """Names without hosts; an unnamed span has the empty name."""
    encoded = names.dictionary_decode().fill_null("").dictionary_encode()
    distinct = [text[:MAX_NAME] for text in encoded.dictionary.to_pylist()]
    for text in distinct:
        found = _THREAD_HOST.search(text)
        if found is not None and found[1] != "unknown":
            redactor.host(found[1])
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(distinct, pa.string()))


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
