"""Messages as rows of numbers to rows of `step`: gaps counted, heartbeats left out, each step placed in time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import dictionary, nullable
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.fpm.record import VERSION, as_map
from tokenpath.ingest.fpm.scan import NULL, Col, Int64s
from tokenpath.ingest.messages import Message

MAX_WALL_S = 10**6
"""No step takes longer."""

_LATEST_NS = 2**62
_MAX_WAITING = 1024
_PHASES = ("prefill", "decode", "mixed")
_COUNTS = (
    (Col.PREFILL_REQUESTS, "num_prefill_requests"), (Col.PREFILL_TOKENS, "sum_prefill_tokens"),
    (Col.PREFILL_KV, "sum_prefill_kv_tokens"), (Col.DECODE_REQUESTS, "num_decode_requests"),
    (Col.DECODE_KV, "sum_decode_kv_tokens"),
)  # fmt: skip
_WAITING = (
    (Col.QUEUED_PREFILL, "num_prefill_requests"),
    (Col.QUEUED_DECODE, "num_decode_requests"),
)


def wall_ns(seconds: float) -> int:
    """A length in nanoseconds, rounded as doubles are."""
    return round(seconds * 1e9)


class Steps:
    """Rows of `step` on their way to the builder."""

    def __init__(self, builder: CaptureBuilder) -> None:
        self._builder = builder
        self._workers: dict[str, int] = {}
        self._waiting: list[tuple[list[int], int, int]] = []
        self._expected: dict[tuple[int, int], int] = {}
        self._ends: dict[tuple[int, int], int] = {}
        self._has_receipt: bool | None = None
        self._has_gap = False
        self.num_idle = 0
        """Messages that say that there was nothing to do."""

    def worker(self, name: str) -> int:
        """The number of a worker."""
        return self._workers.setdefault(name, len(self._workers))

    def take(self, message: Message) -> None:
        """One decoded message; what is none is counted."""
        losses, offset = self._builder.losses, message.offset
        known = as_map(message.payload)
        if known is None:
            losses.add("damaged message", offset=offset)
            return
        version = known.get("version", VERSION)
        if version != VERSION:
            losses.add("unknown version", offset=offset, what=str(fields.integer(version)))
            return
        row = [NULL] * len(Col)
        row[Col.OFFSET] = offset
        scheduled, queued = known["scheduled_requests"], known["queued_requests"]
        for column, value in (
            (Col.RECEIVED, message.received_ns),
            (Col.SEQUENCE, message.sequence),
            (Col.RANK, fields.rank(known.get("dp_rank"))),
            (Col.COUNTER, fields.count(known.get("counter_id"))),
            *((column, fields.count(scheduled.get(name, 0))) for column, name in _COUNTS),
            *((column, fields.count(queued.get(name))) for column, name in _WAITING),
        ):
            row[column] = NULL if value is None else value
        seconds = fields.real(known.get("wall_time"))
        is_sound = seconds is not None and 0 <= seconds <= MAX_WALL_S
        is_sound = is_sound and NULL not in row[Col.PREFILL_REQUESTS : Col.QUEUED_PREFILL]
        if not is_sound:
            # Its number still counts.
            losses.add("damaged message", offset=offset)
        wall = wall_ns(seconds) if is_sound and seconds is not None else NULL
        worker = self.worker(fields.text(known.get("worker_id")) or "")
        self._waiting.append((row, wall, worker))
        if len(self._waiting) >= _MAX_WAITING:
            self.finish()

    def finish(self) -> None:
        """Hand on what is waiting."""
        if self._waiting:
            rows, walls, workers = zip(*self._waiting, strict=True)
            self._waiting.clear()
            self.take_rows(
                np.array(rows, np.int64), np.array(walls, np.int64), np.array(workers, np.int64)
            )

    def close(self) -> None:
        """Hand on what is waiting, and say what the steps need to be read with."""
        self.finish()
        if self._has_receipt is False:
            self._builder.note(
                "step-times-unknown",
                "The messages hold how long each step took, not when: the steps of a worker are laid end "
                "to end, without the gaps between them",
            )
        if self._has_gap:
            self._builder.note(
                "messages-dropped",
                "Numbers are missing in the sequence of messages: the subscriber was too slow or came "
                "late, and what they said is not in this file",
            )

    def take_rows(self, rows: Int64s, walls: Int64s, workers: Int64s) -> None:
        """Messages as the scanner gives them; a length of NULL is a message that only its number is of."""
        rank = rows[:, Col.RANK]
        rank = np.where((rank > 2**31 - 1) | (rank < 0), -1, rank)
        both = workers * 2**32 + rank + 1
        keys, key_of = np.unique(both, return_inverse=True)
        order = np.argsort(key_of, kind="stable")
        groups = np.split(order, np.cumsum(np.bincount(key_of, minlength=len(keys)))[:-1])
        names = [(key >> 32, key & 2**32 - 1) for key in keys.tolist()]
        for key, group in zip(names, groups, strict=True):
            self._count_gaps(key, rows[group])
        counts = rows[:, Col.PREFILL_REQUESTS : Col.QUEUED_PREFILL]
        is_idle = (walls == 0) & ~counts.any(axis=1)
        self._count_idle(rows[is_idle])
        is_step = (walls != NULL) & ~is_idle
        if not is_step.any():
            return
        start, end = self._place(rows, walls, is_step, names, groups)
        self._add(rows[is_step], rank[is_step], start[is_step], end[is_step])

    def _count_gaps(self, key: tuple[int, int], rows: Int64s) -> None:
        """Numbers that are missing are messages that were dropped; a smaller number is a restart."""
        counter = rows[:, Col.COUNTER]
        number = np.where(counter == NULL, rows[:, Col.SEQUENCE], counter)
        rows, number = rows[number != NULL], number[number != NULL]
        if not len(number):
            return
        expected = np.append(self._expected.get(key, number[0]), number[:-1] + 1)
        self._expected[key] = int(number[-1]) + 1
        missing = np.where(number > expected, number - expected, 0)
        if missing.any():
            first = int(np.argmax(missing > 0))
            total, offset = sum(missing[missing > 0].tolist()), int(rows[first, Col.OFFSET])
            self._builder.losses.add(
                "dropped by the publisher", min(total, 2**62), offset=offset, dropped=False
            )
            self._has_gap = True

    def _count_idle(self, rows: Int64s) -> None:
        if len(rows):
            # Once a second while there is nothing to do.
            self.num_idle += len(rows)
            offset = int(rows[0, Col.OFFSET])
            self._builder.losses.add("idle heartbeat", len(rows), lost=False, offset=offset)

    def _place(
        self,
        rows: Int64s,
        walls: Int64s,
        is_step: NDArray[np.bool_],
        names: list[tuple[int, int]],
        groups: list[NDArray[np.int64]],
    ) -> tuple[Int64s, Int64s]:
        """Start and end: the message is sent at the end; without its receipt one follows the other."""
        received = rows[:, Col.RECEIVED]
        known = (received > 0) & (received < _LATEST_NS)
        if self._has_receipt is None:
            self._has_receipt = bool(known[np.argmax(is_step)])
            if not self._has_receipt:
                self._builder.origin.clock = "monotonic"
        end = np.zeros(len(rows), np.int64)
        for key, group in zip(names, groups, strict=True):
            inside = group[is_step[group]]
            if not len(inside):
                continue
            lengths = np.cumsum(walls[inside])
            at = self._ends.get(key, 0) + lengths
            if self._has_receipt:
                # A step without its receipt follows the last one that has it.
                last = np.maximum.accumulate(np.where(known[inside], np.arange(len(inside)), -1))
                since = np.where(last < 0, at, received[inside][last] + lengths - lengths[last])
                at = np.where(known[inside], received[inside], since)
            end[inside] = at
            self._ends[key] = int(at[-1])
        return end - np.where(is_step, walls, 0), end

    def _add(self, rows: Int64s, rank: Int64s, start: Int64s, end: Int64s) -> None:
        size = len(rows)
        number = np.where(rows[:, Col.COUNTER] == NULL, rows[:, Col.SEQUENCE], rows[:, Col.COUNTER])
        prefill, decode = rows[:, Col.PREFILL_REQUESTS] > 0, rows[:, Col.DECODE_REQUESTS] > 0
        phase = np.where(prefill & decode, 2, np.where(decode, 1, np.where(prefill, 0, -1)))
        waiting = rows[:, [Col.QUEUED_PREFILL, Col.QUEUED_DECODE]]
        is_known = (waiting != NULL).all(axis=1) & (waiting < 2**40).all(axis=1)
        queued = np.where(is_known, np.where(is_known[:, None], waiting, 0).sum(axis=1), NULL)
        one = np.zeros(size, np.int32)
        self._builder.add(
            "step",
            {
                "name": dictionary(one, ["forward pass"]),
                "observer": dictionary(one, ["scheduler"]),
                "number": nullable(number, NULL),
                "engine_id": nullable(rank.astype(np.int32), -1),
                "phase": dictionary(phase.astype(np.int32), list(_PHASES)),
                "start_ns": start,
                "end_ns": end,
                "num_prefill_requests": rows[:, Col.PREFILL_REQUESTS].copy(),
                "num_prefill_tokens": rows[:, Col.PREFILL_TOKENS].copy(),
                "sum_prefill_kv_tokens": rows[:, Col.PREFILL_KV].copy(),
                "num_decode_requests": rows[:, Col.DECODE_REQUESTS].copy(),
                "sum_decode_kv_tokens": rows[:, Col.DECODE_KV].copy(),
                "num_queued": nullable(queued, NULL),
            },
        )
