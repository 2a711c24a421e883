"""Replays what SGLang's own scheduler decided (tests/engine/upstream/data) through ours, call by call.

The format is described in tools/differential/README.md. Passes are called one by one, as the recorder called
SGLang's: under overlap a pass is decided before the result of the one before it is known.
"""

from __future__ import annotations

import gzip
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tokenpath.engine.scheduler import EngineRequest
from tokenpath.engine.sglang import SglangScheduler, SglangSettings
from tokenpath.engine.sglang.step import Step

DATA = Path(__file__).parent.parent / "upstream" / "data"
FILES = sorted(path.name for path in DATA.glob("sglang-*.jsonl.gz"))
POSITIONS = 1 << 20
"""Ids of one segment of content are `segment * POSITIONS + place`."""

Record = list[Any]


def runs(name: str) -> Iterator[tuple[dict[str, Any], list[Record]]]:
    """The runs of a file: what opens each, and its records."""
    head: dict[str, Any] = {}
    records: list[Record] = []
    with gzip.open(DATA / name, "rt") as lines:
        for line in lines:
            record = json.loads(line)
            if isinstance(record, list):
                records.append(record)
                continue
            if head:
                yield head, records
            head, records = record, []
    yield head, records


def settings_of(recorded: dict[str, Any]) -> SglangSettings:
    names = (
        "max_running_requests",
        "page_size",
        "schedule_policy",
        "max_prefill_tokens",
        "enable_mixed_chunk",
        "disable_radix_cache",
        "radix_eviction_policy",
        "schedule_conservativeness",
        "disable_overlap_schedule",
        "ignore_eos",
    )
    chunk = recorded["chunked_prefill_size"]
    return SglangSettings(
        max_total_tokens=recorded["max_total_num_tokens"],
        context_length=1 << 30,
        chunked_prefill_size=chunk if chunk > 0 else None,
        **{name: recorded[name] for name in names},
    )


def request_of(record: Record, granule: int) -> EngineRequest:
    _, index, arrival_ns, prompt, output, priority, segments = record
    ids: list[int] = []
    for number, granules in zip(segments[::2], segments[1::2], strict=True):
        ids += [number * POSITIONS + len(ids) + place for place in range(granules)]
    return EngineRequest(
        index, prompt, output, arrival_ns, priority, np.array(ids, np.int64), granule
    )


class Replay:
    """One run through our scheduler."""

    def __init__(self, head: dict[str, Any], **changed: Any) -> None:
        self.scheduler = SglangScheduler(replace(settings_of(head["settings"]), **changed))
        self.granule = head["granule_tokens"]
        self.launched: deque[Step] = deque()
        """Decided and not completed."""
        self.was_idle_pass = True

    def answer(self, record: Record) -> Record | None:
        """What we say where SGLang said the record; None where it is no answer."""
        calls: dict[str, Callable[[Record], Record | None]] = {
            "a": self._add,
            "s": self._schedule,
            "c": self._complete,
        }
        return calls[record[0]](record)

    def _queues(self) -> list[int]:
        s = self.scheduler
        return [s.num_free_blocks * s.cache.page_size, s.num_waiting, s.num_running]

    def _add(self, record: Record) -> None:
        self.scheduler._idle_since_ns = (
            None  # the recorder jumps over idle time, as if there were none
        )
        self.scheduler.add(request_of(record, self.granule))

    def _schedule(self, record: Record) -> Record:
        s = self.scheduler
        s._under_way = self.launched[0] if self.launched else None
        step = s._decide()
        entries: list[int] = []
        lost = s._take_preempted() if step is None else step.decision.preempted.tolist()
        if step is not None:
            d = step.decision
            columns = (d.request, d.kind, d.num_computed_before, d.num_tokens)
            entries = np.stack(columns, 1).ravel().tolist()
            self.launched.append(step)
        answer = ["s", record[1], entries, lost, *self._queues(), round(s.ratio.current, 9)]
        overlapped = not s._settings.disable_overlap_schedule and not self.was_idle_pass
        if step is None and s._unfinished == 0 and not overlapped:
            s.ratio.reset()
        self.was_idle_pass = step is None
        return answer

    def _complete(self, record: Record) -> Record:
        s = self.scheduler
        s._under_way = self.launched.popleft()
        outcome = s.complete(s._under_way.decision, 0)
        silent = np.flatnonzero(outcome.num_emitted == 0).tolist()
        return ["c", record[1], silent, outcome.finished.tolist(), *self._queues()]


def first_difference(name: str, **changed: Any) -> str | None:
    """Where we first differ from a file; None if nowhere."""
    for head, records in runs(name):
        replay = Replay(head, **changed)
        for at, record in enumerate(records):
            answer = replay.answer(record)
            if answer is not None and answer != record:
                return f"{name}, seed {head['seed']}, record {at}: {record} is {answer}"
    return None
