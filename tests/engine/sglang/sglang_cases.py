"""Random workloads for SGLang's scheduler, and short ways to say a request."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tokenpath.engine.scheduler import EngineRequest
from tokenpath.engine.sglang.settings import (
    EVICTION_POLICIES,
    PRIORITY_POLICIES,
    RETRACTION_POLICIES,
    SCHEDULE_POLICIES,
    SglangSettings,
)


def request(
    index: int,
    prompt: int,
    output: int,
    hashes: list[int] | tuple[int, ...] = (),
    *,
    granule: int = 1,
    at: int = 0,
    priority: int = 0,
) -> EngineRequest:
    ids = np.array(hashes, np.int64)
    return EngineRequest(index, prompt, output, at, priority, ids, granule)


def settings(**changed: Any) -> SglangSettings:
    base = {
        "max_total_tokens": 1000,
        "max_running_requests": 16,
        "context_length": 1000,
        "disable_overlap_schedule": True,
    }
    return SglangSettings(**{**base, **changed})


@st.composite
def workloads(draw: st.DrawFn, max_tokens: int = 60) -> list[EngineRequest]:
    """Requests with shared prefixes: ids along a random path of a binary tree."""
    granule = draw(st.sampled_from([1, 4, 16]))
    requests = []
    for index in range(draw(st.integers(1, 12))):
        prompt = draw(st.integers(1, max_tokens))
        branches = draw(st.lists(st.booleans(), max_size=prompt // granule + 1))
        path, ids = 1, []
        for branch in branches:
            path = path * 2 + branch
            ids.append(path)
        requests.append(
            request(
                index,
                prompt,
                draw(st.integers(1, 12)),
                ids,
                granule=granule,
                at=draw(st.integers(0, 30)),
                priority=draw(st.integers(-2, 2)),
            )
        )
    return requests


@st.composite
def all_settings(draw: st.DrawFn) -> SglangSettings:
    """Any settings under which a request of 72 tokens fits into the pool."""
    page = draw(st.sampled_from([1, 4, 16]))
    chunk = draw(st.one_of(st.none(), st.integers(1, 4).map(lambda n: n * 16)))
    running = draw(st.integers(1, 12))
    policy = draw(st.sampled_from(SCHEDULE_POLICIES))
    return SglangSettings(
        max_total_tokens=draw(st.integers(108, 300)),
        max_running_requests=running,
        context_length=1000,
        page_size=page,
        schedule_policy=policy,
        chunked_prefill_size=chunk,
        max_prefill_tokens=draw(st.sampled_from([50, 16384])),
        enable_mixed_chunk=draw(st.booleans()),
        prefill_decode_interval=draw(st.sampled_from([0, 0, 2])),
        disable_overlap_schedule=draw(st.booleans()),
        schedule_conservativeness=draw(st.sampled_from([0.1, 0.3, 1.0, 1.4])),
        ignore_eos=draw(st.booleans()),
        disable_radix_cache=draw(st.booleans()),
        radix_eviction_policy=draw(st.sampled_from(EVICTION_POLICIES)),
        tlru_threshold=draw(st.sampled_from([0, 20])),
        enable_priority_scheduling=policy in PRIORITY_POLICIES and draw(st.booleans()),
        priority_scheduling_preemption_threshold=draw(st.sampled_from([0, 1])),
        retraction_policy=draw(st.sampled_from(RETRACTION_POLICIES)),
        max_new_tokens=draw(st.sampled_from([None, 50])),
        in_batch_prefix_caching_deprioritize_threshold=draw(st.sampled_from([4, 32])),
    )
