"""A case through the simulator that users run: scenario, scheduler of the engine, physics step model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.scoreboard.cases import Case

from tokenpath.core.errors import TokenpathError
from tokenpath.simulate.deploy import deploy
from tokenpath.simulate.memory import plan_memory
from tokenpath.simulate.physics.model import Fitted, physics_model
from tokenpath.simulate.recorder import RequestRows
from tokenpath.simulate.scenario import Scenario, with_settings
from tokenpath.simulate.workload.workload import Workload

_TRTLLM_SLACK = 64


def answered(
    predict: Callable[[Case, Fitted, int], dict[str, float]], case: Case, fitted: Fitted, seed: int
) -> tuple[dict[str, float], str | None]:
    """What is predicted of a case, or nothing and the reason: a run that cannot be answered ends no job."""
    try:
        return predict(case, fitted, seed), None
    except TokenpathError as error:
        return {}, str(error)[:120]


def run_case(
    case: Case, fitted: Fitted, workload: Workload, *, prefix_caching: bool
) -> tuple[RequestRows, int]:
    """What became of each request at one data-parallel rank, and the time beside the engine in ns."""
    at = case.deployment
    model = physics_model(at, fitted)
    front_ns = model.frontend_ns_of(float(workload.prompt_tokens.mean()))
    tokens = case.kv_tokens
    if tokens is None:
        tokens = float(plan_memory(at, max_tokens=case.max_tokens, max_seqs=256).num_tokens)
    block, settings = _settings(case, workload, prefix_caching)
    scenario = Scenario(
        engine=at.engine,
        num_blocks=int(tokens // block),
        # SGLang's and TensorRT-LLM's schedulers look ahead themselves.
        async_steps=at.engine == "vllm",
        engine_settings=settings,
    )
    scenario = with_settings(scenario, [f"client.send_ns={front_ns}ns"])
    ran = deploy(scenario, workload, model).run(workload, detail="request", stops_on_overload=False)
    return ran.simulated.rows.requests[0], front_ns


def _settings(case: Case, workload: Workload, prefix_caching: bool) -> tuple[int, dict[str, Any]]:
    """Tokens of a block, and the engine's own settings."""
    longest_prompt = int(workload.prompt_tokens.max())
    longest = int((workload.prompt_tokens + workload.output_tokens).max())
    if case.deployment.engine == "vllm":
        return 16, {
            "max_num_batched_tokens": case.max_tokens,
            "max_num_seqs": case.max_seqs,
            "max_model_len": longest + 1,
            "enable_prefix_caching": prefix_caching,
            "async_scheduling": True,
        }
    if case.deployment.engine == "sglang":
        return 1, {
            "max_running_requests": case.max_seqs,
            "chunked_prefill_size": case.max_tokens,
            "disable_radix_cache": not prefix_caching,
        }
    room = longest_prompt + (workload.concurrency or 1) + _TRTLLM_SLACK
    return 32, {
        "max_batch_size": case.max_seqs,
        "max_num_tokens": max(case.max_tokens, room),
        "enable_block_reuse": prefix_caching,
    }


def latencies_ms(
    rows: RequestRows, workload: Workload, front_ns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Time to first token, time per output token after it, and end to end, as the client sees them."""
    sent = rows.queued_ns if workload.concurrency is not None else workload.arrival_ns
    first = (rows.first_token_ns - sent + front_ns) / 1e6
    decode = (rows.last_token_ns - rows.first_token_ns) / 1e6
    return first, decode / np.maximum(workload.output_tokens - 1, 1), first + decode
