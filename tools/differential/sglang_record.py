"""Record what SGLang's own scheduler decides on random workloads, without a model and without a GPU.

Runs in an environment of its own (see README.md), never in CI:

    PYTHONPATH=UNPACKED_WHEEL python tools/differential/sglang_record.py FOLDER [--only NAME]

The loop is that of `event_loop_normal` and `event_loop_overlap`; what is real is told in `sglang_scheduler.py`.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from array import array
from collections import deque
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from absent_modules import ABSENT
from fixture import Record, write
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.runtime_context import get_context
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang_scheduler import Recorded, published
from workload import Shape, WorkRequest, requests_of

VERSION = "0.5.23"
RUN, NEW, RESUMED = 0, 1, 2
GRANULE = 1
"""Tokens of one granule of content: pages may have one token."""


class StepResult:
    """What the model worker hands back: tokens, and None for all else."""

    can_run_cuda_graph = False

    def __init__(self, next_token_ids: torch.Tensor) -> None:
        """One token a request of the batch."""
        self.next_token_ids = next_token_ids

    def __getattr__(self, _: str) -> None:
        """None."""

    def get_num_generated_tokens(self, size: int) -> int:
        """One each."""
        return size


class UndeterminedError(Exception):
    """Equals preempted together by priority: the engine queues them in the order of a set, by address."""


class Recorder:
    """One run: a scheduler, its workload and the records."""

    def __init__(self, settings: dict[str, Any], seed: int, *, has_idle_passes: bool) -> None:
        self.settings = settings
        self.has_idle_passes = has_idle_passes
        self.has_priorities = settings.get("enable_priority_scheduling", False)
        self.scheduler = Recorded(settings)
        self.requests: dict[str, tuple[WorkRequest, list[int], Req]] = {}
        self.admitted: set[str] = set()
        self.done: set[str] = set()
        self.steps = 0
        self.records: list[Record] = [
            {
                "engine": "sglang",
                "version": VERSION,
                "seed": seed,
                "granule_tokens": GRANULE,
                "settings": settings,
            }
        ]

    def add(self, work: WorkRequest) -> None:
        """Queue a request, recorded."""
        ids = work.granule_ids()
        prompt = array("q", (work.token_at(at, GRANULE, ids) for at in range(work.prompt_tokens)))
        parameters = SamplingParams(
            max_new_tokens=work.output_tokens, ignore_eos=self.settings["ignore_eos"]
        )
        parameters.normalize(None)
        name = f"{work.index:06d}"
        priority = work.priority if self.has_priorities else None
        request = Req(
            name,
            "",
            prompt,
            parameters,
            vocab_size=1 << 60,
            eos_token_ids=set(),
            priority=priority,
        )
        self.requests[name] = (work, ids, request)
        self.scheduler.enqueue(request)
        segments = [number for part in work.segments for number in (part.number, part.granules)]
        self.records.append(
            [
                "a",
                work.index,
                work.arrival_ns,
                work.prompt_tokens,
                work.output_tokens,
                work.priority,
                segments,
            ]
        )

    def free(self) -> int:
        """Tokens that could be taken now, those with cached content included."""
        pool = self.scheduler.token_to_kv_pool_allocator
        return pool.available_size() + self.scheduler.tree_cache.evictable_size()

    def queues(self) -> list[int]:
        """Free tokens, waiting requests, admitted requests."""
        waiting = len(self.scheduler.waiting_queue)
        return [self.free(), waiting, len(self.requests) - len(self.done) - waiting]

    def schedule(self, now_ns: int) -> ScheduleBatch | None:
        """One call of `get_next_batch_to_run`, recorded."""
        scheduler = self.scheduler
        retracted = {
            name: request.retraction_count for name, (_, _, request) in self.requests.items()
        }
        plan = scheduler.get_next_batch_to_run(
            running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
        )
        scheduler.running_batch = plan.running_batch
        batch = plan.batch_to_run
        entries: list[int] = []
        if batch is not None:
            decoding = batch.forward_mode.is_decode()
            tail = set(batch.decoding_reqs or ()) if not decoding else set(batch.reqs)
            for at, request in enumerate(batch.reqs):
                if request in tail:
                    entries += [int(request.rid), RUN, int(batch.seq_lens_cpu[at]) - 1, 1]
                    continue
                kind = RUN
                if request.rid not in self.admitted:
                    kind = RESUMED if request.retraction_count else NEW
                    self.admitted.add(request.rid)
                entries += [int(request.rid), kind, request.prefix_len, request.extend_len]
        lost = [
            request.rid
            for request in scheduler.waiting_queue
            if request.retraction_count > retracted[request.rid]
        ]
        self.admitted.difference_update(lost)
        if len(lost) > 1 and batch is not None and not batch.forward_mode.is_decode():
            ranks = {name: self.requests[name][0].priority for name in lost}
            if len(set(ranks.values())) < len(lost):
                raise UndeterminedError
            lost.sort(key=ranks.__getitem__, reverse=True)  # the order in which they were chosen
        ratio = round(scheduler.new_token_ratio_tracker.current, 9)
        self.records.append(
            ["s", now_ns, entries, [int(name) for name in lost], *self.queues(), ratio]
        )
        self.steps += 1
        return batch

    def pass_idle(self) -> None:
        """A pass of the loop without a request, as often as the engine likes; not recorded."""
        scheduler = self.scheduler
        plan = scheduler.get_next_batch_to_run(
            running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
        )
        assert plan.batch_to_run is None
        scheduler.running_batch, scheduler.last_batch = plan.running_batch, None
        scheduler.new_token_ratio_tracker.reset()  # the engine's own `on_idle`

    def launch(self, batch: ScheduleBatch) -> StepResult:
        """What the model worker would hand back: the token that follows in the request's content."""
        scheduler = self.scheduler
        scheduler.forward_ct += 1
        batch.forward_iter = scheduler.forward_ct
        if batch.extend_num_tokens:
            scheduler.processed_tokens_counter += batch.extend_num_tokens
        batch.input_ids = batch.req_pool_indices
        lengths = batch.seq_lens_cpu.tolist()
        tokens = []
        for request, length in zip(batch.reqs, lengths, strict=True):
            work, ids, _ = self.requests[request.rid]
            tokens.append(work.token_at(length, GRANULE, ids))
        return StepResult(torch.tensor(tokens, dtype=torch.int64))

    def complete(self, batch: ScheduleBatch, result: StepResult, step: int) -> None:
        """The step has run: the real processor takes its tokens."""
        counts = [len(request.output_ids) for request in batch.reqs]
        processor = self.scheduler.batch_result_processor
        if batch.forward_mode.is_decode():
            processor.process_batch_result_decode(batch, result)
        else:
            processor.process_batch_result_prefill(batch, result)
        self.scheduler.tree_cache.flush_pending_backups()
        silent = [
            at
            for at, (request, count) in enumerate(zip(batch.reqs, counts, strict=True))
            if len(request.output_ids) == count
        ]
        finished = [
            request.rid
            for request in batch.reqs
            if request.finished() and request.rid not in self.done
        ]
        self.done.update(finished)
        self.records.append(["c", step, silent, [int(name) for name in finished], *self.queues()])

    def run(self, work: list[WorkRequest]) -> list[Record]:
        """The engine's loop, plain or with overlap."""
        scheduler = self.scheduler
        ahead = deque(work)
        now = 0
        while ahead or len(self.done) < len(self.requests) or scheduler.result_queue:
            idle = len(self.done) == len(self.requests) and not scheduler.result_queue
            if idle:
                if self.has_idle_passes and ahead[0].arrival_ns > now:
                    self.pass_idle()
                now = max(now, ahead[0].arrival_ns)
            while ahead and ahead[0].arrival_ns <= now:
                self.add(ahead.popleft())
            batch = self.schedule(now)
            for _ in range(self.settings.get("prefill_decode_interval", 0)):
                # Passes in which the prefill waits for decodes that do not come: the loop goes round at once.
                if batch is None and not self.records[-1][3]:
                    scheduler.last_batch = None
                    self.records.pop()
                    self.steps -= 1
                    batch = self.schedule(now)
            step = self.steps - 1
            if batch:
                now += 1_000_000 + 100_000 * (sum(self.records[-1][2][3::4]) // 4)
                result = self.launch(batch)
                if scheduler.enable_overlap:
                    scheduler.result_queue.append((batch.copy(), (result, step)))
                else:
                    self.complete(batch, result, step)
            if scheduler.enable_overlap and scheduler.last_batch:
                earlier, (result, at) = scheduler.result_queue.popleft()
                self.complete(earlier, result, at)
            elif batch is None:
                if scheduler.waiting_queue and not self.records[-1][3]:
                    assert ahead, f"nothing can run: {self.records[-1]}"
                    now = max(now, ahead[0].arrival_ns)
                elif len(self.done) == len(self.requests):
                    scheduler.new_token_ratio_tracker.reset()  # the engine's own `on_idle`
            scheduler.last_batch = batch
        assert len(self.done) == len(work)
        return self.records


def settings_of(theme: str, random: Random) -> dict[str, Any]:
    """Draw the settings of a run, by the engine's own names."""
    page = random.choice([1, 1, 4, 16])
    size = page * (random.choice([192, 320, 640]) // page)
    chunked = random.choice([-1, 32, 64, 128, 256])
    tight = theme == "idle" or random.random() < 0.6
    return {
        "schedule_policy": theme if theme in POLICIES else random.choice(["fcfs", "lpm"]),
        "page_size": page,
        "max_total_num_tokens": size,
        "max_running_requests": random.choice([16, 32] if tight else [4, 8, 16]),
        "max_prefill_tokens": random.choice([64, 256, 512]),
        "chunked_prefill_size": chunked,
        "enable_mixed_chunk": chunked > 0 and random.random() < 0.4,
        "disable_radix_cache": theme == "fcfs" and random.random() < 0.3,
        "radix_eviction_policy": "lfu" if theme == "lfu" else "lru",
        "schedule_conservativeness": random.choice([0.05, 0.2] if tight else [0.4, 1.0, 1.3]),
        "disable_overlap_schedule": theme != "overlap",
        "ignore_eos": not tight and random.random() < 0.4,
    }


def add_priorities(settings: dict[str, Any], random: Random) -> None:
    """Draw what has to do with priorities, and the rounds between prefills."""
    settings["schedule_policy"] = random.choice(["fcfs", "lof"])
    settings["enable_priority_scheduling"] = True
    settings["disable_priority_preemption"] = random.random() < 0.25
    settings["priority_scheduling_preemption_threshold"] = random.choice([0, 1])
    settings["retraction_policy"] = random.choice(["length", "priority"])
    settings["prefill_decode_interval"] = random.choice([0, 0, 2, 5])
    settings["prefill_decode_interval_min_bs"] = random.choice([0, 3])
    settings["max_running_requests"] = random.choice([2, 4, 8])


def shape_of(settings: dict[str, Any], random: Random) -> Shape:
    """Draw the shape of a workload that presses on these settings; every request fits the pool alone."""
    size = settings["max_total_num_tokens"]
    longest = size - settings["page_size"] * 2 - 2
    tight = settings["schedule_conservativeness"] < 0.4
    return Shape(
        requests=random.randint(20, 32),
        granule_tokens=GRANULE,
        longest_prompt_tokens=longest
        // (random.choice([6, 10]) if tight else random.choice([2, 4])),
        longest_sequence_tokens=longest - 1,
        mean_gap_ns=random.choice([100_000, 1_000_000, 4_000_000]),
        mean_output_tokens=size // 8 if tight else random.choice([4, size // 16]),
        sharing=random.choice([0.0, 0.6, 0.9]),
        priorities=9 if "enable_priority_scheduling" in settings else 1,
        steps_of=[1, 1, settings["page_size"]],
    )


POLICIES = ("fcfs", "lpm", "dfs-weight")
THEMES = {
    "fcfs": 34,
    "lpm": 12,
    "dfs-weight": 10,
    "overlap": 30,
    "lfu": 12,
    "idle": 5,
    "priority": 30,
}
"""Theme: number of runs of it."""
NAMES = {"idle": "idle-sglang.jsonl.gz", "priority": "priority-sglang.jsonl.gz"}
"""Files that need more than the settings that all others have."""


def main() -> None:
    """Record the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=sorted(THEMES))
    parser.add_argument("--runs", type=int, help="fewer runs, to try the harness")
    options = parser.parse_args()
    print("without", *ABSENT)
    logging.disable(logging.WARNING)  # the engine tells of every retraction
    for at, (theme, runs) in enumerate(THEMES.items()):
        if options.only not in (None, theme):
            continue
        records: list[Record] = []
        steps = retractions = 0
        for run in range(options.runs or runs):
            seed = 10_000 + 1000 * at + run
            random = Random(seed)
            settings = settings_of(theme, random)
            if theme == "priority":
                add_priorities(settings, random)
            with get_context().override_server_args(**published(settings)):
                recorder = Recorder(settings, seed, has_idle_passes=theme == "idle")
                shape = shape_of(settings, random)
                if theme == "idle":
                    shape = replace(shape, mean_gap_ns=shape.mean_output_tokens * 400_000)
                if theme == "priority":
                    shape = replace(shape, mean_output_tokens=16, mean_gap_ns=4_000_000)
                try:
                    part = recorder.run(list(requests_of(shape, random)))
                except UndeterminedError:
                    continue
            records += part
            steps += recorder.steps
            retractions += sum(len(record[3]) for record in part[1:] if record[0] == "s")
        path = options.folder / NAMES.get(theme, f"sglang-{theme}.jsonl.gz")
        write(path, records)
        print(f"{path.name}: {steps} steps, {retractions} retractions, {path.stat().st_size} bytes")
    sys.stdout.flush()
    os._exit(0)  # helper threads would keep the process


if __name__ == "__main__":
    main()
