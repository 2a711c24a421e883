"""A file of forward-pass metrics to rows of `step`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.fpm.record import VERSION, as_map
from tokenpath.ingest.messages import Message, messages
from tokenpath.ingest.reader import Options, Reader

_BATCH = 8192
_MAX_WALL_NS = 10**15
_MAX_WORKERS = 100_000
_TOKENS = ("num_prefill_requests", "sum_prefill_tokens", "sum_prefill_kv_tokens")
_DECODES = ("num_decode_requests", "sum_decode_kv_tokens")
_COLUMNS = (
    *("number", "engine_id", "phase", "start_ns", "end_ns"),
    *("num_prefill_requests", "num_prefill_tokens", "sum_prefill_kv_tokens"),
    *("num_decode_requests", "sum_decode_kv_tokens", "num_queued"),
)
_Row = tuple[Any, ...]
_Key = tuple[str, int | None]


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of one file. DamagedInput when no message of it can be read."""
    builder = CaptureBuilder(reader, path, options)
    steps = _Steps(builder)
    for message in messages(path, options, builder):
        steps.take(message)
    steps.finish()
    if not builder.num_rows("step") and not steps.num_idle:
        raise DamagedInput("no message can be read", where=str(path))
    return builder.finish()


class _Steps:
    """Rows of `step` on their way to the builder."""

    def __init__(self, builder: CaptureBuilder) -> None:
        self._builder = builder
        self._rows: list[_Row] = []
        self._expected: dict[_Key, int] = {}
        self._ends: dict[_Key, int] = {}
        self._has_receipt: bool | None = None
        self.num_idle = 0
        """Messages that say that there was nothing to do."""

    def take(self, message: Message) -> None:
        losses, offset = self._builder.losses, message.offset
        known = as_map(message.payload)
        if known is None:
            losses.add("damaged message", offset=offset)
            return
        version = known.get("version", VERSION)
        if version != VERSION:
            losses.add("unknown version", offset=offset, what=str(fields.integer(version)))
            return
        key = (fields.text(known.get("worker_id")) or "", fields.rank(known.get("dp_rank")))
        counter = fields.count(known.get("counter_id"))
        number = message.sequence if counter is None else counter
        self._count_gap(key, number, offset)
        wall = fields.duration_ns(known.get("wall_time"))
        scheduled, queued = known["scheduled_requests"], known["queued_requests"]
        prefill = [fields.count(scheduled.get(name, 0)) for name in _TOKENS]
        decode = [fields.count(scheduled.get(name, 0)) for name in _DECODES]
        if wall is None or wall > _MAX_WALL_NS or None in prefill or None in decode:
            losses.add("damaged message", offset=offset)
            return
        if not wall and not any(prefill) and not any(decode):
            # Once a second while there is nothing to do.
            self.num_idle += 1
            losses.add("idle heartbeat", lost=False, offset=offset)
            return
        waiting = [
            fields.count(queued.get(name))
            for name in ("num_prefill_requests", "num_decode_requests")
        ]
        num_queued = None if None in waiting else sum(n or 0 for n in waiting)
        start, end = self._place(key, wall, message.received_ns)
        phase = _phase(prefill[0], decode[0])
        rank = key[1]
        self._rows.append((number, rank, phase, start, end, *prefill, *decode, num_queued))
        if len(self._rows) >= _BATCH:
            self.finish()

    def finish(self) -> None:
        """Hand the rows on."""
        if not self._rows:
            return
        columns = dict(zip(_COLUMNS, map(list, zip(*self._rows, strict=True)), strict=True))
        size = len(self._rows)
        names = {"name": ["forward pass"] * size, "observer": ["scheduler"] * size}
        self._builder.add("step", {**names, **columns})
        self._rows.clear()

    def _place(self, key: _Key, wall: int, received: int | None) -> tuple[int, int]:
        """Start and end: the message is sent at the end; without its receipt one follows the other."""
        if self._has_receipt is None:
            self._has_receipt = received is not None
            if not self._has_receipt:
                self._builder.origin.clock = "monotonic"
                self._builder.note(
                    "step-times-unknown",
                    "The messages hold how long each step took, not when: the steps of a worker are laid "
                    "end to end, without the gaps between them",
                )
        if self._has_receipt and received is not None and received < 2**62:
            self._ends[key] = received
            return received - wall, received
        start = self._ends.get(key, 0) if len(self._ends) < _MAX_WORKERS else 0
        self._ends[key] = start + wall
        return start, start + wall

    def _count_gap(self, key: _Key, number: int | None, offset: int) -> None:
        """Numbers that are missing are messages that were dropped; a smaller number is a restart."""
        if number is None:
            return
        missing = number - self._expected.get(key, number)
        self._expected[key] = number + 1
        if missing > 0:
            self._builder.losses.add(
                "dropped by the publisher", missing, offset=offset, dropped=False
            )
            self._builder.note(
                "messages-dropped",
                "Numbers are missing in the sequence of messages: the subscriber was too slow or came "
                "late, and what they said is not in this file",
            )


def _phase(num_prefill: int | None, num_decode: int | None) -> str | None:
    if num_prefill:
        return "mixed" if num_decode else "prefill"
    return "decode" if num_decode else None
