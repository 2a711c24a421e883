"""Spans from JSON lines without an object a span: Arrow's parser fills columns of a known schema.

It reads the spellings that exporters write. Whatever it does not take (`None`) goes the way of
`json_rows`, which gives the same columns and says what is wrong.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from numpy.typing import NDArray

from tokenpath.ingest.otlp.batch import (
    NO_TIME,
    SpanBatch,
    encoded,
    kind_of,
    numbers_as_text,
    plain_numbers,
    status_of,
)

_KIND_NUMBER = re.compile(rb'"kind"\s*:\s*\d')
_CODE_NUMBER = re.compile(rb'"code"\s*:\s*\d')
_INT_NUMBER = re.compile(rb'"intValue"\s*:\s*[-\d]')
_TIME_NUMBER = re.compile(rb'"startTimeUnixNano"\s*:\s*\d')
_HEAD_BYTES = 2**16
"""Exporters write each field in one way, so a few spans show how; if not, all of the lines are searched."""


def decode(lines: bytes) -> SpanBatch | None:
    """The spans of whole lines, or None when these lines need the other way.

    They do when anything is not as the schema has it: values that are no text, number or truth value,
    names in another spelling, lines that are damaged. All of that shows as NULL or as an error here.
    """
    try:
        # Arrow checks no UTF-8; text that is none would fail much later.
        str(lines, "utf-8")
    except UnicodeDecodeError:
        return None
    schema = _schema(lines[:_HEAD_BYTES])
    batch = _decode(lines, schema)
    if batch is None and len(lines) > _HEAD_BYTES:
        thorough = _schema(lines)
        batch = None if thorough == schema else _decode(lines, thorough)
    return batch


def _decode(lines: bytes, schema: pa.Schema) -> SpanBatch | None:
    try:
        table = pj.read_json(
            io.BytesIO(lines),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
        return _batch(table["resourceSpans"].combine_chunks())
    except pa.ArrowException:
        return None


@dataclass(frozen=True)
class _Attributes:
    """The attributes of a column of lists."""

    offsets: NDArray[np.int32]
    keys: pa.Array
    texts: pa.Array
    numbers: pa.Array


def _schema(lines: bytes) -> pa.Schema:
    """Fields that are read, with the types that these lines give them."""
    whole = pa.int64() if _INT_NUMBER.search(lines) else pa.string()
    time = pa.int64() if _TIME_NUMBER.search(lines) else pa.string()
    kind = pa.int64() if _KIND_NUMBER.search(lines) else pa.string()
    code = pa.int64() if _CODE_NUMBER.search(lines) else pa.string()
    value = [
        pa.field("stringValue", pa.string()),
        pa.field("boolValue", pa.bool_()),
        pa.field("intValue", whole),
        pa.field("doubleValue", pa.float64()),
    ]
    items = pa.list_(pa.struct([pa.field("stringValue", pa.string())]))
    value.append(pa.field("arrayValue", pa.struct([pa.field("values", items)])))
    attributes = pa.list_(
        pa.struct([pa.field("key", pa.string()), pa.field("value", pa.struct(value))])
    )
    span = pa.struct(
        [
            *(pa.field(name, pa.string()) for name in ("traceId", "spanId", "parentSpanId")),
            pa.field("name", pa.string()),
            pa.field("kind", kind),
            pa.field("startTimeUnixNano", time),
            pa.field("endTimeUnixNano", time),
            pa.field("attributes", attributes),
            pa.field("status", pa.struct([("code", code), ("message", pa.string())])),
            pa.field("events", pa.list_(pa.struct([("name", pa.string())]))),
            pa.field("links", pa.list_(pa.struct([("spanId", pa.string())]))),
        ]
    )
    scope = pa.struct(
        [
            pa.field("scope", pa.struct([("name", pa.string())])),
            pa.field("spans", pa.list_(span)),
        ]
    )
    resource = pa.struct(
        [
            pa.field("resource", pa.struct([("attributes", attributes)])),
            pa.field("scopeSpans", pa.list_(scope)),
        ]
    )
    return pa.schema([pa.field("resourceSpans", pa.list_(resource))])


def _batch(requests: pa.Array) -> SpanBatch | None:
    if requests.null_count:
        return None
    resources = pc.list_flatten(requests)
    if pc.struct_field(resources, ["scopeSpans"]).null_count:
        return None
    scopes = pc.list_flatten(pc.struct_field(resources, ["scopeSpans"]))
    resource_of_scope = pc.list_parent_indices(pc.struct_field(resources, ["scopeSpans"]))
    spans = pc.list_flatten(pc.struct_field(scopes, ["spans"]))
    scope_of_span = pc.list_parent_indices(pc.struct_field(scopes, ["spans"]))
    nulls = (column.null_count for column in (resources, scopes, spans))
    if any(nulls) or pc.struct_field(scopes, ["spans"]).null_count:
        return None
    if pc.struct_field(spans, ["traceId"]).null_count:
        return None
    of_resource = _attributes(pc.struct_field(resources, ["resource", "attributes"]))
    attributes = _attributes(pc.struct_field(spans, ["attributes"]))
    if of_resource is None or attributes is None:
        return None
    message = pc.struct_field(spans, ["status", "message"])
    if pc.any(pc.not_equal(message, "")).as_py():
        return None
    start, end = (_times(spans, name) for name in ("startTimeUnixNano", "endTimeUnixNano"))
    service = _services(of_resource, len(resources)).take(resource_of_scope)
    scope = pc.struct_field(scopes, ["scope", "name"])
    return SpanBatch(
        *(pc.struct_field(spans, [name]) for name in ("traceId", "spanId", "parentSpanId")),
        pc.struct_field(spans, ["name"]).dictionary_encode(),
        _named(pc.struct_field(spans, ["kind"]), kind_of),
        _named(pc.struct_field(spans, ["status", "code"]), status_of),
        encoded(service).take(scope_of_span),
        encoded(scope).take(scope_of_span),
        start,
        end,
        attributes.offsets,
        attributes.keys.dictionary_encode(),
        attributes.texts.dictionary_encode(),
        plain_numbers(attributes.numbers),
        frozenset(_distinct(of_resource)),
        _num_items(spans, "events"),
        _num_items(spans, "links"),
    )


def _attributes(lists: pa.Array) -> _Attributes | None:
    """None if a value is not one of the kinds that the schema knows."""
    items = pc.list_flatten(lists)
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    keys = pc.struct_field(items, ["key"])
    value = pc.struct_field(items, ["value"])
    if items.null_count or keys.null_count or value.null_count:
        return None
    whole, real = (pc.struct_field(value, [name]) for name in ("intValue", "doubleValue"))
    numbers = pc.coalesce(real, pc.cast(whole, pa.float64()))
    flags = pc.cast(pc.struct_field(value, ["boolValue"]), pa.string())
    texts = pc.coalesce(pc.struct_field(value, ["stringValue"]), pc.cast(whole, pa.string()), flags)
    lists = pc.struct_field(value, ["arrayValue", "values"])
    if lists.null_count < len(lists):
        arrays = _arrays(lists)
        if arrays is None:
            return None
        texts = pc.coalesce(texts, arrays)
    texts = numbers_as_text(texts, numbers)
    if texts.null_count or pc.any(pc.equal(keys, "")).as_py():
        return None
    return _Attributes(offsets, keys, texts, numbers)


def _arrays(lists: pa.Array) -> pa.Array | None:
    """Arrays of texts as JSON; None if one holds something else, or needs escapes."""
    items = pc.struct_field(pc.list_flatten(lists), ["stringValue"])
    if items.null_count or pc.any(pc.match_substring_regex(items, '["\\\\[:cntrl:]]')).as_py():
        return None
    lengths = pc.list_value_length(lists)
    if pc.any(pc.equal(lengths, 0)).as_py():
        return None
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(lengths.fill_null(0).to_numpy(zero_copy_only=False), out=offsets[1:])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, items), '","')
    quoted = pc.binary_join_element_wise('["', joined, '"]', "")
    return pc.if_else(lists.is_valid(), quoted, pa.scalar(None, pa.string()))


def _times(spans: pa.Array, name: str) -> NDArray[np.int64]:
    times = pc.cast(pc.struct_field(spans, [name]), pa.int64()).fill_null(NO_TIME)
    array = times.to_numpy(zero_copy_only=False)
    return np.where(array > 0, array, NO_TIME)


def _named(values: pa.Array, name_of: Callable[[object], str | None]) -> pa.DictionaryArray:
    """Numbers or words of an enumeration as our names."""
    codes = values.dictionary_encode()
    own = pa.array([name_of(value) for value in codes.dictionary.to_pylist()], pa.string())
    names = own.take(codes.indices) if len(own) else pa.nulls(len(values), pa.string())
    return names.dictionary_encode()


def _services(resources: _Attributes, num_resources: int) -> pa.Array:
    """service.name of each resource; the last one counts if there are several."""
    found = np.full(num_resources, -1, np.int64)
    at = np.flatnonzero(pc.equal(resources.keys, "service.name").to_numpy(zero_copy_only=False))
    found[np.searchsorted(resources.offsets, at, "right") - 1] = at
    return resources.texts.take(pa.array(found, mask=found < 0))


def _distinct(resources: _Attributes) -> list[tuple[str, str]]:
    table = pa.table({"key": resources.keys, "text": resources.texts})
    rows = table.group_by(["key", "text"]).aggregate([])
    return list(zip(rows["key"].to_pylist(), rows["text"].to_pylist(), strict=True))


def _num_items(spans: pa.Array, name: str) -> int:
    return int(pc.sum(pc.list_value_length(pc.struct_field(spans, [name]))).as_py() or 0)
