"""Pages of GPUStack's lab on Ascend 910B: a part and an engine (MindIE) that nothing here was fitted on.

The part: a die of the 910C as its makers describe it (arXiv 2506.12708, table 1). The engines: what they are documented
to do. MindIE Service puts prefill before decode, up to 50 requests and 8,192 tokens a step, and runs 200 at once
(its service API and configuration manual); MindIE and vLLM-Ascend have no efficiencies of their own, so both take
those that no engine is told apart by. What is left to tell configurations apart is scheduling and storage alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import MappingProxyType

from benchmarks.scoreboard.gpustack_cases import Config

from tokenpath.core.hardware import Hardware, load_catalogue
from tokenpath.core.model_catalogue import find_model
from tokenpath.simulate.deploy import deploy
from tokenpath.simulate.memory import plan_memory
from tokenpath.simulate.physics.curve import build_curve
from tokenpath.simulate.physics.deployment import Deployment
from tokenpath.simulate.physics.efficiency import resolve
from tokenpath.simulate.physics.model import PhysicsModel, load_fitted
from tokenpath.simulate.physics.terms import terms_of
from tokenpath.simulate.scenario import Scenario
from tokenpath.simulate.summary import summarise
from tokenpath.simulate.workload.workload import Workload

_NO_ENGINE = "none of those fitted"
_SEQS = {"vllm": 256, "mindie": 200}
_TOKENS = {"vllm": 2048, "mindie": 8192}
"""Defaults of vLLM on parts below 70 GB, and of MindIE."""


@cache
def ascend_910b() -> Hardware:
    """One die: 376 TFLOPS of 16 bits, twice that of INT8, 64 GB at 1.6 TB/s, 196 GB/s to its peers."""
    return replace(
        load_catalogue()["a100-sxm4-80gb"],
        key="ascend-910b",
        name="Huawei Ascend 910B",
        vendor="Huawei",
        peak_flops=MappingProxyType({"bf16": 376e12, "fp16": 376e12, "int8": 752e12}),
        memory_bytes=64 * 10**9,
        memory_bytes_per_s=1.6e12,
        scale_up="HCCS",
        scale_up_bytes_per_s=196e9,
    )


def predict_ascend(config: Config, workload: Workload) -> float | None:
    """Output tokens/s of a configuration."""
    model = find_model(config.model)
    if "quantised" in config.flags:
        model = model.quantised("int8")
    at = Deployment(model, ascend_910b(), tp=config.tp, dp=config.dp, ep=config.ep)
    eff = resolve(load_fitted().logs, _NO_ENGINE, None)
    physics = PhysicsModel(
        build_curve(terms_of(at), eff),
        None,
        "physics of a part that was not fitted",
        eff.frontend_ns,
        eff.frontend_token_ns,
    )
    seqs, tokens = _SEQS[config.engine], _TOKENS[config.engine]
    plan = plan_memory(at, max_tokens=tokens, max_seqs=seqs)
    longest = int((workload.prompt_tokens + workload.output_tokens).max())
    if config.engine == "vllm":
        settings = {"max_num_seqs": seqs, "max_num_batched_tokens": tokens}
        scenario = Scenario(
            engine="vllm",
            num_blocks=plan.num_blocks,
            engine_settings=settings | {"max_model_len": longest + 1},
        )
    else:
        # Of the schedulers here SGLang's is the one that puts prefill first.
        settings = {"max_running_requests": seqs, "chunked_prefill_size": tokens}
        scenario = Scenario(engine="sglang", num_blocks=plan.num_tokens, engine_settings=settings)
    ran = deploy(scenario, workload, physics).run(
        workload, detail="request", stops_on_overload=False
    )
    summary = summarise(ran.capture)
    return None if summary is None else summary.output_tokens_per_s
