"""Every decision of upstream's own schedulers on random workloads, asked of ours by nothing but the protocol.

The recordings were made without sight of our schedulers (tools/differential). SGLang with overlap decides a step
ahead of the protocol's turns: tests/engine/sglang replays those.
"""

from __future__ import annotations

import collections
from dataclasses import replace

import pytest

from engine.upstream.recorded import DATA, NEVER_NS, Run, answers, difference, runs_of
from tokenpath.engine.config import EngineConfig
from tokenpath.engine.sglang import SglangScheduler, SglangSettings
from tokenpath.engine.vllm import VllmScheduler

VLLM = {"vllm-fcfs": 60, "vllm-priority": 55, "vllm-async": 65}
SGLANG = {
    "sglang-fcfs": 34,
    "sglang-lpm": 12,
    "sglang-dfs-weight": 10,
    "sglang-lfu": 12,
    "priority-sglang": 26,
}
FILES = [*VLLM, *SGLANG, "sglang-overlap", "idle-sglang"]


def vllm(run: Run) -> VllmScheduler:
    """Our scheduler with the settings of a run, in plain Python."""
    settings = dict(run.settings)
    config = EngineConfig(num_blocks=settings.pop("num_gpu_blocks"), **settings)
    return VllmScheduler(config, is_compiled=False)


def sglang(run: Run) -> SglangScheduler:
    """Our scheduler with the settings of a run. Lengths were drawn so that no context is too short."""
    settings = dict(run.settings)
    chunk = settings.pop("chunked_prefill_size")
    return SglangScheduler(
        SglangSettings(
            max_total_tokens=settings.pop("max_total_num_tokens"),
            context_length=1 << 30,
            chunked_prefill_size=chunk if chunk > 0 else None,
            **settings,
        )
    )


def sglang_difference(run: Run, now_ns: int | None = None) -> str | None:
    """The first call of a run with another answer; the ratio of new tokens is part of an answer."""
    scheduler = sglang(run)
    return difference(
        run,
        answers(
            run,
            scheduler,
            tokens_per_block=run.settings["page_size"],
            now_ns=now_ns,
            more=lambda: [round(scheduler.ratio.current, 9)],
        ),
    )


@pytest.mark.parametrize(("name", "count"), VLLM.items())
def test_vllm_decides_the_same(name: str, count: int):
    runs = runs_of(f"{name}.jsonl.gz")
    assert len(runs) == count
    assert [found for run in runs if (found := difference(run, answers(run, vllm(run))))] == []


@pytest.mark.parametrize(("name", "count"), SGLANG.items())
def test_sglang_decides_the_same(name: str, count: int):
    # The recorder jumps over idle time: said to end at NEVER_NS, a step is followed by no idle pass.
    runs = runs_of(f"{name}.jsonl.gz")
    assert len(runs) == count
    assert [found for run in runs if (found := sglang_difference(run, NEVER_NS))] == []


def test_sglang_forgets_what_it_learned_when_idle():
    # In this file the engine's loop had its passes without a request, which reset the ratio.
    runs = runs_of("idle-sglang.jsonl.gz")
    assert len(runs) == 5
    assert [found for run in runs if (found := sglang_difference(run))] == []
    assert any(sglang_difference(run, NEVER_NS) for run in runs)


VLLM_LEFT_OUT = {
    "watermark": 0.0,
    "long_prefill_token_threshold": 0,
    "long_prefill_token_threshold_adaptive": False,
    "scheduler_reserve_full_isl": True,
    "max_num_active_seqs": None,
    "enable_prefix_caching": False,
    "policy": "fcfs",
}


@pytest.mark.parametrize(("setting", "value"), VLLM_LEFT_OUT.items())
def test_a_setting_of_vllm_left_out_is_noticed(setting: str, value: object):
    runs = runs_of("vllm-priority.jsonl.gz")
    changed = [replace(run, settings=run.settings | {setting: value}) for run in runs]
    assert any(difference(run, answers(run, vllm(run))) for run in changed)


SGLANG_LEFT_OUT = {
    "schedule_policy": ("sglang-lpm", "fcfs"),
    "enable_mixed_chunk": ("sglang-fcfs", False),
    "max_prefill_tokens": ("sglang-fcfs", 16384),
    "disable_radix_cache": ("sglang-fcfs", False),
    "ignore_eos": ("sglang-fcfs", False),
    "schedule_conservativeness": ("sglang-lpm", 1.0),
    "radix_eviction_policy": ("sglang-lfu", "lru"),
    "enable_priority_scheduling": ("priority-sglang", False),
    "disable_priority_preemption": ("priority-sglang", True),
    "priority_scheduling_preemption_threshold": ("priority-sglang", 10),
    "prefill_decode_interval": ("priority-sglang", 0),
}


@pytest.mark.parametrize("setting", SGLANG_LEFT_OUT)
def test_a_setting_of_sglang_left_out_is_noticed(setting: str):
    name, value = SGLANG_LEFT_OUT[setting]
    runs = runs_of(f"{name}.jsonl.gz")
    changed = [replace(run, settings=run.settings | {setting: value}) for run in runs]
    assert any(sglang_difference(run, NEVER_NS) for run in changed)


@pytest.mark.parametrize("name", FILES)
def test_recordings_obey_the_laws_of_an_engine(name: str):
    # What a recording breaks, no replica can be judged by.
    for run in runs_of(f"{name}.jsonl.gz"):
        wanted: dict[int, list[int]] = {}
        emitted: collections.Counter[int] = collections.Counter()
        entries: list[list[int]] = []
        done: list[int] = []
        for event in run.events:
            if event[0] == "a":
                wanted[event[1]] = event[3:5]
            elif event[0] == "s":
                entries.append(event[2])
                assert set(event[2][::4]).isdisjoint(done)
                assert min(event[2][3::4], default=1) >= 1
            else:
                requests = entries[event[1]][::4]
                emitted.update(r for at, r in enumerate(requests) if at not in event[2])
                done += event[3]
        longest = run.settings.get("max_model_len", 1 << 62)
        assert sorted(done) == sorted(wanted)
        for request, (prompt, output) in wanted.items():
            assert emitted[request] == min(output, longest - prompt)


def test_every_file_is_judged():
    assert {path.name for path in DATA.glob("*.gz")} >= {f"{name}.jsonl.gz" for name in FILES}
