"""Where a rank's memory goes: weights, activations, buffers, and what is left as KV blocks.

The steps are those of vLLM's start-up (vllm/v1/worker/gpu_worker.py, determine_available_memory): budget =
utilisation x memory the device reports; minus weights, minus the peak of a profiling run, minus what is not
torch's; the rest is divided by the bytes of a block. SGLang's fraction is of weights and cache alone. What an
engine prints is exact and goes before this.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenpath.core.errors import InputError
from tokenpath.core.hardware import Hardware
from tokenpath.simulate.physics.deployment import Deployment

REPORTED_SHARE = {"b300-288gb": 0.933, "gb300-288gb": 0.963, "gb200-186gb": 0.995}
"""Memory that a device reports over the nominal, where it is not the usual 0.99."""
_USUAL_SHARE = 0.99
CONTEXT_BYTES = 0.25e9
"""CUDA context and library handles, not seen by the framework's allocator.

This, `COLLECTIVE_BYTES` and `LOGIT_BYTES` come from the block counts of nine vLLM 0.15 starts on H100
(7e9 to 70e9 parameters), which they meet within 1.3 %. Captured graphs are not in vLLM's budget.
"""
COLLECTIVE_BYTES = 0.35e9
"""Buffers of NCCL and custom all-reduce, where there are peers."""
LOGIT_BYTES = 50.0
"""Peak of the sampler's dry run for one logit: 32-bit logits and probabilities, sorted values and indices."""
_ACTIVATION_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of one rank; the fields add up to `budget_bytes`."""

    budget_bytes: float
    """What the engine may use."""
    weight_bytes: float
    """Parameters of this rank."""
    activation_bytes: float
    """Peak of the profiling run: widest layer and logits."""
    runtime_bytes: float
    """Context and collectives."""
    kv_bytes: float
    """Left for the cache."""
    block_bytes: float
    """One block of the cache on this rank."""
    block_tokens: int
    """Tokens of a block."""

    @property
    def num_blocks(self) -> int:
        """Whole blocks."""
        return int(self.kv_bytes // self.block_bytes)

    @property
    def num_tokens(self) -> int:
        """Tokens that they hold."""
        return self.num_blocks * self.block_tokens


def plan_memory(
    at: Deployment,
    *,
    utilisation: float = 0.9,
    block_tokens: int = 16,
    max_tokens: int = 8192,
    max_seqs: int = 256,
    max_model_tokens: int | None = None,
) -> MemoryPlan:
    """Account for one rank; InputError, with the nearest size that works, when nothing is left for KV."""
    if not 0 < utilisation <= 1:
        raise InputError(
            f"memory utilisation {utilisation}",
            allowed="above 0, at most 1",
            next_step="leave it out for 0.9",
        )
    plan = _plan(at, utilisation, block_tokens, max_tokens, max_seqs)
    needed = plan.block_bytes * -(-(max_model_tokens or block_tokens) // block_tokens)
    if plan.kv_bytes < needed:
        raise _does_not_fit(at, plan, needed, utilisation)
    return plan


def reported_bytes(hardware: Hardware) -> float:
    """Memory that a driver reports of a part."""
    return hardware.memory_bytes * REPORTED_SHARE.get(hardware.key, _USUAL_SHARE)


def weight_bytes_per_rank(at: Deployment) -> float:
    """Weights of one rank: experts over all ranks, the rest over the tensor-parallel ones."""
    parts, scheme = at.model.shape.parameters(), at.model.scheme
    head = (parts["embedding"] + parts["lm_head"]) * scheme.head.bits_per_param
    experts = parts["experts"] * scheme.experts.bits_per_param
    rest = sum(parts.values()) - parts["embedding"] - parts["lm_head"] - parts["experts"]
    everyone = at.tp * at.dp
    # The first and the last stage hold the embeddings; the fullest stage decides.
    return (
        (head / at.tp) / min(2, at.pp)
        + experts / everyone / at.pp
        + rest * scheme.linear.bits_per_param / at.tp / at.pp
    ) / 8


def _plan(
    at: Deployment, utilisation: float, block_tokens: int, max_tokens: int, max_seqs: int
) -> MemoryPlan:
    shape = at.model.shape
    budget = utilisation * reported_bytes(at.hardware)
    weights = weight_bytes_per_rank(at)
    widest = max(
        2 * shape.intermediate_size // at.tp,
        (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim // at.tp,
    )
    if shape.moe:
        assigned = shape.moe.experts_per_token * shape.moe.intermediate_size // at.expert_tp
        widest = max(widest, 2 * assigned + shape.hidden_size * shape.moe.experts_per_token)
    activations = max_tokens * (2 * shape.hidden_size + widest) * _ACTIVATION_BYTES
    activations += max_seqs * shape.vocab_size * LOGIT_BYTES
    runtime = CONTEXT_BYTES + (COLLECTIVE_BYTES if at.num_ranks > 1 else 0.0)
    if at.engine == "sglang":
        # Its mem_fraction_static is of weights and pool; the rest of the device is for everything else.
        activations = runtime = 0.0
    return MemoryPlan(
        budget_bytes=budget,
        weight_bytes=weights,
        activation_bytes=activations,
        runtime_bytes=runtime,
        kv_bytes=max(0.0, budget - weights - activations - runtime),
        block_bytes=at.kv_bytes_per_token() * block_tokens,
        block_tokens=block_tokens,
    )


def _does_not_fit(
    at: Deployment, plan: MemoryPlan, needed: float, utilisation: float
) -> InputError:
    """What is too large, the longest sequence that fits, or the smallest tensor parallelism that helps."""
    spent = plan.weight_bytes + plan.activation_bytes + plan.runtime_bytes
    working = None
    heads = at.model.shape.num_heads
    for tp in range(at.tp + 1, 65):
        if heads % tp == 0 and at.dp == 1:
            scale = at.tp / tp
            if spent * scale + 1e9 + needed * scale < plan.budget_bytes:
                working = tp
                break
    hints = [f"nearest that works: tp = {working}"] if working else []
    if plan.num_tokens:
        hints.append(f"requests of at most {plan.num_tokens:,} tokens fit")
    hint = ", or ".join(hints) or "use a larger part or fewer bits"
    return InputError(
        f"{at.model.name} does not fit: a rank needs {spent / 1e9:.1f} GB for weights and work and "
        f"{needed / 1e9:.2f} GB of KV cache, and may use {plan.budget_bytes / 1e9:.1f} GB "
        f"({utilisation:g} of {at.hardware.name})",
        allowed=f"at most {plan.budget_bytes / 1e9:.1f} GB a rank",
        next_step=hint,
    )
