"""Protobuf through the compiled scanner."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenpath.core.errors import LimitExceeded
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.otlp.batch import KINDS, SpanBatch
from tokenpath.ingest.otlp.protobuf import attributes_of, scope_names, status_of, value_of
from tokenpath.ingest.otlp.scan import Found, Int64s, scan
from tokenpath.ingest.otlp.scanned import Declined, Float64s, Value, batch_of, named
from tokenpath.ingest.otlp.state import PADDING, Op
from tokenpath.ingest.wire import WireError


def decode(data: bytes, parts: list[slice]) -> SpanBatch | None:
    """The spans of these ResourceSpans messages, or None when they need another way."""
    begin, end = parts[0].start, parts[-1].stop
    places = np.array([(part.start - begin, part.stop - begin) for part in parts], np.int64)
    found = scan(data[begin:end] + bytes(PADDING), Op.PROTOBUF, places)
    return None if found is None else batch_of(found, _PROTOBUF)


class _ProtobufDecoder:
    """See `scanned.Decoder`."""

    def text(self, data: bytes) -> str:
        return data.decode("utf-8", "replace")

    def value(self, data: bytes) -> Value:
        try:
            return value_of(data, slice(0, len(data)))
        except (WireError, LimitExceeded):
            raise Declined from None

    def resource(self, data: bytes) -> list[tuple[str, str]]:
        losses = Losses()
        try:
            found = list(attributes_of(data, slice(0, len(data)), 1, losses))
        except WireError:
            raise Declined from None
        texts = [(k, repr(n) if t is None and n is not None else t) for k, t, n in found]
        # Of several services the last one counts, even one without a text.
        if losses.rows() or any(text is None for _, text in texts):
            raise Declined
        return [(key, text) for key, text in texts if text is not None]

    def scope(self, data: bytes) -> str | None:
        try:
            names = list(scope_names(data, slice(0, len(data))))
        except WireError:
            raise Declined from None
        return names[-1] if names else None

    def kinds(self, kinds: Int64s, _found: Found, /) -> pa.Array:
        return named(kinds, dict(KINDS))

    def status(self, data: bytes) -> tuple[str | None, str | None]:
        try:
            return status_of(data, slice(0, len(data)))
        except WireError:
            raise Declined from None

    def wholes(self, _texts: pa.Array, values: Int64s, /) -> tuple[pa.Array, Float64s]:
        return pc.cast(pa.array(values), pa.string()), values.astype(np.float64)

    def short_reals(self, _texts: pa.Array, values: Int64s, /) -> Float64s:
        return values.view(np.float64)

    def reals(self, found: Found) -> Float64s:
        return np.ascontiguousarray(found.reals[:, 0]).view(np.float64)


_PROTOBUF = _ProtobufDecoder()
