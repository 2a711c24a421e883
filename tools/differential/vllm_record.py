"""Record what vLLM's own V1 scheduler decides on random workloads, without a model and without a GPU.

Runs in an environment of its own (see README.md), never in CI:

    python tools/differential/vllm_record.py FOLDER [--only NAME]

The real `Scheduler` and `AsyncScheduler` schedule; a step "runs" by handing back tokens that are a function of
the request's content, so prefix caching hashes real ids.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import deque
from pathlib import Path
from random import Random
from typing import Any

os.environ.update(
    HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR", PYTHONHASHSEED="0"
)

import torch
from fixture import Record, write
from vllm import SamplingParams
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from workload import Shape, WorkRequest, requests_of

VERSION = "0.32.0"
RUN, NEW, RESUMED = 0, 1, 2
GRANULE = 4
"""Tokens of one granule of content; divides every block size used."""


class NoGrammar:
    """Stands in for the structured-output manager: no request here has a grammar."""

    def accept_tokens(self, *_: Any) -> bool:
        """Accept all."""
        return True


class NotePreemptions:
    """Notes the order of preemptions of one call; the scheduler itself keeps only a set."""

    order: list[str]

    def _preempt_request(self, request: Request, *more: Any, **named: Any) -> None:
        self.order.append(request.request_id)
        super()._preempt_request(request, *more, **named)


class Synchronous(NotePreemptions, Scheduler):
    """vLLM's scheduler."""


class Asynchronous(NotePreemptions, AsyncScheduler):
    """vLLM's asynchronous scheduler."""


def model_folder() -> Path:
    """A folder with the smallest Llama configuration that vLLM accepts; it has no weights."""
    folder = Path(tempfile.mkdtemp())
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "num_hidden_layers": 1,
        "vocab_size": 128,
        "max_position_embeddings": 65536,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def build(model: ModelConfig, settings: dict[str, Any]) -> Scheduler:
    """The real scheduler with these settings (vLLM's own names, `num_gpu_blocks` with the null block)."""
    model.max_model_len = settings["max_model_len"]
    scheduler_config = SchedulerConfig.default_factory(
        max_model_len=settings["max_model_len"],
        max_num_seqs=settings["max_num_seqs"],
        max_num_active_seqs=settings["max_num_active_seqs"],
        max_num_batched_tokens=settings["max_num_batched_tokens"],
        enable_chunked_prefill=settings["enable_chunked_prefill"],
        long_prefill_token_threshold=settings["long_prefill_token_threshold"],
        long_prefill_token_threshold_adaptive=settings["long_prefill_token_threshold_adaptive"],
        policy=settings["policy"],
        scheduler_reserve_full_isl=settings["scheduler_reserve_full_isl"],
        watermark=settings["watermark"],
        async_scheduling=False,
    )
    cache_config = CacheConfig(enable_prefix_caching=settings["enable_prefix_caching"])
    config = VllmConfig(
        model_config=model, cache_config=cache_config, scheduler_config=scheduler_config
    )
    # The platform's checks may have changed these (a CPU has no asynchronous scheduling): say them again.
    block_size = settings["block_size"]
    config.cache_config.block_size = block_size
    config.cache_config.num_gpu_blocks = settings["num_gpu_blocks"]
    config.cache_config.enable_prefix_caching = settings["enable_prefix_caching"]
    config.scheduler_config.enable_chunked_prefill = settings["enable_chunked_prefill"]
    config.scheduler_config.async_scheduling = settings["async_scheduling"]
    for name in ("max_num_batched_tokens", "max_num_seqs", "watermark", "policy"):
        assert getattr(config.scheduler_config, name) == settings[name], name
    spec = FullAttentionSpec(
        block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    cache = KVCacheConfig(
        num_blocks=settings["num_gpu_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
    which = Asynchronous if settings["async_scheduling"] else Synchronous
    return which(config, cache, NoGrammar(), block_size=block_size, log_stats=False)


class Recorder:
    """One run: a scheduler, its workload and the records."""

    def __init__(self, model: ModelConfig, settings: dict[str, Any], seed: int) -> None:
        self.scheduler = build(model, settings)
        self.settings = settings
        self.hasher = get_request_block_hasher(settings["block_size"], sha256)
        self.requests: dict[str, tuple[WorkRequest, list[int], Request]] = {}
        self.records: list[Record] = [
            {
                "engine": "vllm",
                "version": VERSION,
                "seed": seed,
                "granule_tokens": GRANULE,
                "settings": settings,
            }
        ]
        self.steps = 0

    def add(self, work: WorkRequest) -> None:
        """Queue a request, recorded."""
        ids = work.granule_ids()
        prompt = [work.token_at(at, GRANULE, ids) for at in range(work.prompt_tokens)]
        request = Request(
            request_id=f"{work.index:06d}",
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(max_tokens=work.output_tokens, ignore_eos=True),
            pooling_params=None,
            arrival_time=work.arrival_ns / 1e9,
            priority=work.priority,
            block_hasher=self.hasher if self.settings["enable_prefix_caching"] else None,
        )
        self.requests[request.request_id] = (work, ids, request)
        self.scheduler.add_request(request)
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

    def schedule(self, now_ns: int) -> tuple[Any, list[bool]]:
        """One call of `schedule`, recorded. Also says which entries will emit a token."""
        self.scheduler.order = []
        output = self.scheduler.schedule()
        new = {item.req_id: item.num_computed_tokens for item in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        known = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        entries: list[int] = []
        emits: list[bool] = []
        for name, tokens in output.num_scheduled_tokens.items():
            kind = NEW if name in new else RESUMED if name in cached.resumed_req_ids else RUN
            computed = new[name] if name in new else known[name]
            entries += [int(name), kind, computed, tokens]
            emits.append(not self.requests[name][2].is_prefill_chunk)
        preempted = [int(name) for name in self.scheduler.order]
        running, waiting = self.scheduler.get_request_counts()
        self.records.append(["s", now_ns, entries, preempted, self.free(), waiting, running])
        self.steps += 1
        return output, emits

    def free(self) -> int:
        """Blocks that could be taken now."""
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

    def complete(self, output: Any, emits: list[bool], step: int) -> None:
        """The step has run: hand back a token for each entry that ends a prompt or decodes."""
        names = list(output.num_scheduled_tokens)
        tokens: list[list[int]] = []
        for name, emit in zip(names, emits, strict=True):
            work, ids, request = self.requests[name]
            place = work.prompt_tokens + request.num_output_tokens
            tokens.append([work.token_at(place, GRANULE, ids)] if emit else [])
        result = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: at for at, name in enumerate(names)},
            sampled_token_ids=tokens,
        )
        counts = {name: self.requests[name][2].num_output_tokens for name in names}
        self.scheduler.update_from_output(output, result)
        emitted = [self.requests[name][2].num_output_tokens - counts[name] for name in names]
        finished = [int(name) for name in names if name not in self.scheduler.requests]
        finished = [index for index in finished if f"{index:06d}" not in self.gone]
        self.gone.update(f"{index:06d}" for index in finished)
        silent = [at for at, count in enumerate(emitted) if count == 0]
        assert all(count in (0, 1) for count in emitted)
        running, waiting = self.scheduler.get_request_counts()
        self.records.append(["c", step, silent, finished, self.free(), waiting, running])

    def run(self, work: list[WorkRequest]) -> list[Record]:
        """The loop of the engine core: one step at a time, or one ahead with asynchronous scheduling."""
        self.gone: set[str] = set()
        depth = 2 if self.settings["async_scheduling"] else 1
        queue: deque[tuple[Any, list[bool], int]] = deque()
        ahead = deque(work)
        now = 0
        while ahead or self.scheduler.has_unfinished_requests() or queue:
            if not self.scheduler.has_unfinished_requests() and not queue:
                now = max(now, ahead[0].arrival_ns)
            while ahead and ahead[0].arrival_ns <= now:
                self.add(ahead.popleft())
            if self.scheduler.has_unfinished_requests():
                output, emits = self.schedule(now)
                if output.total_num_scheduled_tokens > 0:
                    queue.appendleft((output, emits, self.steps - 1))
                    if len(queue) < depth:
                        now += 100_000
                        continue
                elif self.records[-1][
                    3
                ]:  # it preempted itself: the next call starts from another state
                    continue
                elif not queue:
                    assert ahead, f"nothing can run: {self.records[-1]}"
                    now = max(now, ahead[0].arrival_ns)
                    continue
            if queue:
                output, emits, step = queue.pop()
                now += 1_000_000 + 100_000 * (output.total_num_scheduled_tokens // 4)
                self.complete(output, emits, step)
        assert len(self.gone) == len(work)
        return self.records


def settings_of(theme: str, random: Random) -> dict[str, Any]:
    """Draw the settings of a run."""
    block_size = random.choice([4, 8, 16, 16, 32])
    chunked = random.random() < 0.8
    longest = block_size * random.randint(6, 24)
    batched = random.choice([longest // 3, longest // 2, longest, longest * 2])
    batched = max(batched, longest if not chunked else 8)
    seqs = random.choice([2, 4, 6, 8, 8, 16, 32])
    seqs = min(seqs, batched)
    blocks = longest // block_size
    return {
        "policy": theme
        if theme == "priority"
        else random.choice(["fcfs", "fcfs", "priority"])
        if theme == "async"
        else "fcfs",
        "async_scheduling": theme == "async",
        "block_size": block_size,
        "num_gpu_blocks": 1
        + blocks
        + random.choice([0, 1, 2, blocks // 3, blocks // 2, blocks, 2 * blocks, 5 * blocks]),
        "max_model_len": longest,
        "max_num_seqs": seqs,
        "max_num_active_seqs": random.choice([None, None, None, None, 1 + seqs // 2]),
        "max_num_batched_tokens": batched,
        "enable_chunked_prefill": chunked,
        "enable_prefix_caching": random.random() < 0.75,
        "long_prefill_token_threshold": random.choice([0, 0, max(1, batched // 4), block_size + 3]),
        "long_prefill_token_threshold_adaptive": random.random() < 0.4,
        "scheduler_reserve_full_isl": random.random() < 0.65,
        "watermark": random.choice([0.0, 0.0, 0.01, 0.07, 0.2]),
    }


def shape_of(settings: dict[str, Any], random: Random) -> Shape:
    """Draw the shape of a workload that presses on these settings."""
    longest = settings["max_model_len"]
    block_size = settings["block_size"]
    return Shape(
        requests=random.randint(20, 32),
        granule_tokens=GRANULE,
        longest_prompt_tokens=longest - 1,
        # A quarter longer than the model: some requests end at max_model_len.
        longest_sequence_tokens=longest + longest // 4,
        mean_gap_ns=random.choice([100_000, 400_000, 2_000_000]),
        mean_output_tokens=random.choice([3, 1 + longest // 16, 1 + longest // 8]),
        sharing=random.choice([0.0, 0.5, 0.9]) if settings["enable_prefix_caching"] else 0.0,
        priorities=random.choice([1, 3, 5]) if settings["policy"] == "priority" else 1,
        steps_of=[1, block_size],
    )


THEMES = {"fcfs": 60, "priority": 55, "async": 65}
"""Name of a file: number of runs in it."""


def main() -> None:
    """Record the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=sorted(THEMES))
    parser.add_argument("--runs", type=int, help="fewer runs, to try the harness")
    options = parser.parse_args()
    init_none_hash(sha256)
    model = ModelConfig(
        model=str(model_folder()),
        skip_tokenizer_init=True,
        max_model_len=8192,
        dtype="bfloat16",
        seed=0,
    )
    for at, (theme, runs) in enumerate(THEMES.items()):
        if options.only not in (None, theme):
            continue
        records: list[Record] = []
        steps = preemptions = 0
        for run in range(options.runs or runs):
            seed = 1000 * at + run
            random = Random(seed)
            settings = settings_of(theme, random)
            recorder = Recorder(model, settings, seed)
            work = list(requests_of(shape_of(settings, random), random))
            part = recorder.run(work)
            records += part
            steps += recorder.steps
            preemptions += sum(len(record[3]) for record in part[1:] if record[0] == "s")
        path = options.folder / f"vllm-{theme}.jsonl.gz"
        write(path, records)
        print(f"{path.name}: {steps} steps, {preemptions} preemptions, {path.stat().st_size} bytes")
    sys.stdout.flush()
    os._exit(0)  # vLLM's helper threads would keep the process


if __name__ == "__main__":
    main()
