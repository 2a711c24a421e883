"""JSON lines through the compiled scanner."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenpath.ingest.losses import Losses
from tokenpath.ingest.otlp.batch import SpanBatch, kind_of, status_of
from tokenpath.ingest.otlp.json_rows import attributes_of, text_of, value_of
from tokenpath.ingest.otlp.scan import Found, Int64s, scan, texts_at
from tokenpath.ingest.otlp.scanned import Declined, Float64s, Value, batch_of, named
from tokenpath.ingest.otlp.state import PADDING, Op


def decode(pieces: list[bytes]) -> SpanBatch | None:
    """The spans of whole lines, or None when these lines need another way."""
    data = b"".join([*pieces, bytes(PADDING)])
    if not data.isascii():
        try:
            str(data, "utf-8")
        except UnicodeDecodeError:
            return None
    found = scan(data, Op.JSON)
    return None if found is None else batch_of(found, _JSON)


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise Declined from None


class _JsonDecoder:
    """See `scanned.Decoder`."""

    def text(self, data: bytes) -> str:
        return str(_parsed(b'"' + data + b'"'))

    def value(self, data: bytes) -> Value:
        losses = Losses()
        found = value_of(_parsed(data), losses, 0)
        if losses.rows():
            raise Declined
        return found

    def resource(self, data: bytes) -> list[tuple[str, str]]:
        value, losses = _parsed(data), Losses()
        attributes = value.get("attributes") if isinstance(value, dict) else None
        found = attributes_of(attributes, losses, 0)
        if losses.rows():
            raise Declined
        texts = [(k, repr(n) if t is None and n is not None else t) for k, t, n in found]
        # Of several services the last one counts, even one without a text.
        if any(text is None for _, text in texts):
            raise Declined
        return [(key, text) for key, text in texts if text is not None]

    def scope(self, data: bytes) -> str | None:
        value = _parsed(data)
        return text_of(value.get("name")) if isinstance(value, dict) else None

    def kinds(self, kinds: Int64s, found: Found, /) -> pa.Array:
        codes = [code for code in np.unique(kinds).tolist() if code >= 0]
        return named(kinds, {code: kind_of(_parsed(found.text(code))) for code in codes})

    def status(self, data: bytes) -> tuple[str | None, str | None]:
        value = _parsed(data)
        if not isinstance(value, dict):
            return None, None
        return status_of(value.get("code")), text_of(value.get("message"))

    def wholes(self, texts: pa.Array, _values: Int64s, /) -> tuple[pa.Array, Float64s]:
        numbers = pc.cast(pc.cast(texts, pa.int64()), pa.float64(), safe=False)
        return texts, numbers.to_numpy()

    def short_reals(self, texts: pa.Array, _values: Int64s, /) -> Float64s:
        numbers: Float64s = pc.cast(texts, pa.float64()).to_numpy()
        return numbers

    def reals(self, found: Found) -> Float64s:
        numbers: Float64s = pc.cast(texts_at(found, found.reals), pa.float64()).to_numpy()
        return numbers


_JSON = _JsonDecoder()
