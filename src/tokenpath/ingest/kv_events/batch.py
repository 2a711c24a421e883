"""Batches of KV cache events to rows of `kv_event`.

The encoding changed between versions: batches and events come as arrays and as maps
(vllm/distributed/kv_events.py; sglang/srt/disaggregation/kv_events.py). Arrays hold the fields in the
order of the declaration, after the event's type.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.messages import Message, messages
from tokenpath.ingest.reader import Options, Reader
from tokenpath.ingest.run_list import place_on_epoch

_STORED, _REMOVED, _CLEARED = "BlockStored", "BlockRemoved", "AllBlocksCleared"
_FIELDS = {
    _STORED: ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"),
    _REMOVED: ("block_hashes", "medium"),
    _CLEARED: (),
}
_MEDIA = {"GPU": "gpu", "CPU": "host", "CPU_TIER1": "host", "CPU_TIER2": "host", "DISK": "disk"}
_MEDIA |= {"STORAGE": "disk"}
_MAX_S = 9_000_000_000
_BATCH = 8192
_COLUMNS = ("at_ns", "action", "block_hash", "parent_hash", "num_tokens", "medium", "engine_id")


def is_batch(value: object) -> bool:
    """Whether a decoded payload is a batch of events."""
    if isinstance(value, dict):
        return "events" in value and "ts" in value
    if not isinstance(value, list) or len(value) not in (2, 3):
        return False
    return isinstance(value[0], float) and isinstance(value[1], list)


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of one file. DamagedInput when no event of it can be read."""
    builder = CaptureBuilder(reader, path, options)
    rows: list[tuple[Any, ...]] = []
    expected: dict[int | None, int] = {}
    t0_ns: int | None = None
    num_events = num_batches = 0
    for message in messages(path, options, builder):
        batch = _Batch.of(message)
        if batch is None:
            builder.losses.add("damaged message", offset=message.offset)
            continue
        if batch.is_after_start and t0_ns is None:
            t0_ns = place_on_epoch(builder, path, path.name.split(".")[0])
        num_batches += 1
        _count_gap(builder, batch, message, expected)
        for event in batch.events:
            num_events += 1
            rows += _rows(builder, event, batch, t0_ns or 0, message.offset)
        if len(rows) >= _BATCH:
            _flush(builder, rows)
    _flush(builder, rows)
    # Events are counted, not the batches that bring them.
    builder.num_events += num_events - num_batches
    if not builder.num_rows("kv_event") and builder.losses.num_dropped():
        raise DamagedInput("no event can be read", where=str(path))
    return builder.finish()


class _Batch:
    """The events of one message."""

    def __init__(
        self, at_ns: int, events: list[Any], rank: int | None, is_after_start: bool
    ) -> None:
        self.at_ns, self.events, self.rank = at_ns, events, rank
        self.is_after_start = is_after_start

    @classmethod
    def of(cls, message: Message) -> _Batch | None:
        payload = message.payload
        if isinstance(payload, list) and is_batch(payload):
            names = ("ts", "events", "data_parallel_rank")
            payload = dict(zip(names, payload, strict=False))
        if not isinstance(payload, dict) or not isinstance(payload.get("events"), list):
            return None
        rank = fields.rank(payload.get("data_parallel_rank", payload.get("dp_rank")))
        after_us = fields.count(payload.get("ts_us"))
        if after_us is not None:
            at = after_us * 1000 if after_us <= _MAX_S * 10**5 else None
        else:
            at = fields.duration_ns(payload.get("ts"))
        if at is None or at > _MAX_S * 10**9:
            return None
        return cls(at, payload["events"], rank, after_us is not None)


def _count_gap(
    builder: CaptureBuilder, batch: _Batch, message: Message, expected: dict[int | None, int]
) -> None:
    """Numbers that are missing between two messages of a publisher are messages that were dropped."""
    if message.sequence is None:
        return
    missing = message.sequence - expected.get(batch.rank, message.sequence)
    expected[batch.rank] = message.sequence + 1
    if missing > 0:
        builder.losses.add(
            "dropped by the publisher", missing, offset=message.offset, dropped=False
        )
        builder.note(
            "messages-dropped",
            "Numbers are missing in the sequence of messages: the subscriber was too slow or came late, "
            "and what they said is not in this file",
        )


def _rows(
    builder: CaptureBuilder, event: Any, batch: _Batch, t0_ns: int, offset: int
) -> Iterator[tuple[Any, ...]]:
    """A row a block: at_ns, action, block_hash, parent_hash, num_tokens, medium, engine_id."""
    known = _as_map(event)
    kind = known.get("type")
    at, rank = batch.at_ns + t0_ns, batch.rank
    if kind == _CLEARED:
        yield at, "cleared", None, None, None, None, rank
        return
    hashes = known.get("block_hashes")
    texts = [_hash(value) for value in hashes] if isinstance(hashes, list) else []
    if kind not in _FIELDS or not texts or None in texts:
        builder.losses.add("damaged event" if kind in _FIELDS else "unknown event", offset=offset)
        return
    medium = known.get("medium")
    where = _MEDIA.get(medium.upper(), fields.text(medium)) if isinstance(medium, str) else None
    if kind == _REMOVED:
        for text in texts:
            yield at, "removed", text, None, None, where, rank
        return
    tokens = _num_tokens(known, len(texts))
    parent = _hash(known.get("parent_block_hash"))
    for text, number in zip(texts, tokens, strict=True):
        yield at, "stored", text, parent, number, where, rank
        parent = text


def _as_map(event: Any) -> dict[str, Any]:
    if isinstance(event, list) and event and isinstance(event[0], str):
        return {"type": event[0], **dict(zip(_FIELDS.get(event[0], ()), event[1:], strict=False))}
    return fields.mapping(event)


def _hash(value: object) -> str | None:
    """A hash as text: a number of up to 64 bits, or bytes as hexadecimal digits."""
    if isinstance(value, bytes):
        return value.hex() if 0 < len(value) <= 64 else None
    return fields.text(value)


def _num_tokens(known: dict[str, Any], num_blocks: int) -> list[int | None]:
    """Tokens of each block: the block's size, less for the last one if the ids do not fill it."""
    ids = known.get("token_ids")
    total = len(ids) if isinstance(ids, list) else fields.count(ids)
    size = fields.count(known.get("block_size"))
    if size is None or size == 0:
        return [total if num_blocks == 1 else None] * num_blocks
    if total is None:
        return [size] * num_blocks
    return [max(0, min(size, total - size * number)) for number in range(num_blocks)]


def _flush(builder: CaptureBuilder, rows: list[tuple[Any, ...]]) -> None:
    if rows:
        columns = zip(*rows, strict=True)
        builder.add("kv_event", dict(zip(_COLUMNS, map(list, columns), strict=True)))
        rows.clear()
