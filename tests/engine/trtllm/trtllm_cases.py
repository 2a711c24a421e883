"""Random workloads for TensorRT-LLM's scheduler, and short ways to say a request."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tokenpath.engine.scheduler import EngineRequest
from tokenpath.engine.trtllm import TrtllmSettings
from tokenpath.engine.trtllm.settings import CAPACITY_POLICIES, CHUNKING_POLICIES


def request(
    index: int,
    prompt: int,
    output: int,
    hashes: list[int] | tuple[int, ...] = (),
    *,
    granule: int = 1,
    at: int = 0,
) -> EngineRequest:
    return EngineRequest(index, prompt, output, at, 0, np.array(hashes, np.int64), granule)


def settings(**changed: Any) -> TrtllmSettings:
    base = {
        "num_blocks": 100,
        "max_seq_len": 1000,
        "tokens_per_block": 4,
        "max_batch_size": 16,
        "max_num_tokens": 200,
        "disable_overlap_scheduler": True,
    }
    return TrtllmSettings(**{**base, **changed})


@st.composite
def workloads(draw: st.DrawFn) -> list[EngineRequest]:
    """Requests with shared prefixes: ids along a random path of a binary tree."""
    granule = draw(st.sampled_from([1, 3, 4, 16]))
    requests = []
    for index in range(draw(st.integers(1, 12))):
        prompt = draw(st.integers(1, 40))
        branches = draw(st.lists(st.booleans(), max_size=prompt // granule + 1))
        path, ids = 1, []
        for branch in branches:
            path = path * 2 + branch
            ids.append(path)
        arrival = draw(st.integers(0, 30))
        output = draw(st.integers(1, 12))
        requests.append(request(index, prompt, output, ids, granule=granule, at=arrival))
    return requests


@st.composite
def all_settings(draw: st.DrawFn) -> TrtllmSettings:
    """Any settings under which a request of 52 tokens fits."""
    size = draw(st.sampled_from([1, 4, 8]))
    return TrtllmSettings(
        num_blocks=-(-draw(st.integers(52, 150)) // size),
        max_seq_len=1000,
        tokens_per_block=size,
        max_batch_size=draw(st.integers(1, 12)),
        max_num_tokens=draw(st.integers(52, 80)),
        capacity_scheduler_policy=draw(st.sampled_from(CAPACITY_POLICIES)),
        enable_chunked_context=draw(st.booleans()),
        context_chunking_policy=draw(st.sampled_from(CHUNKING_POLICIES)),
        chunk_unit_size=draw(st.sampled_from([None, size * 2])),
        enable_block_reuse=draw(st.booleans()),
        enable_partial_reuse=draw(st.booleans()),
        copy_on_partial_reuse=draw(st.booleans()),
        enable_prefix_aware_scheduling=draw(st.booleans()),
        context_retention_priority=draw(st.sampled_from([None, 50])),
        decode_retention_priority=draw(st.sampled_from([35, 10])),
        two_step_lookahead=draw(st.booleans()),
        disable_overlap_scheduler=draw(st.booleans()),
        max_new_tokens=draw(st.sampled_from([None, 20])),
    )
