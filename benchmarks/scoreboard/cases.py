"""A measured run as prediction needs it: what was served, how it was loaded, what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tokenpath.simulate.physics.deployment import Deployment


@dataclass(frozen=True)
class ClosedLoop:
    """A fixed number of requests in flight."""

    concurrency: int
    """Requests in flight at one data-parallel rank."""
    input_tokens: int
    """Nominal prompt length."""
    output_tokens: int
    """Nominal output length."""
    least_ratio: float
    """Lengths are uniform from this share of the nominal ..."""
    most_ratio: float = 1.0
    """... to this one; both 1: fixed, and requests that start together stay together."""
    is_steady: bool = False
    """Whether the first wave, which starts at once, was left out of the measurement."""
    num_queued: int = 0
    """Requests that the client keeps in flight beyond `concurrency`, which the engine runs at once."""


@dataclass(frozen=True)
class Stages:
    """Constant-rate stages of inference-perf with shared prefixes."""

    rates: tuple[float, ...]
    """Requests per second, by stage."""
    durations_s: tuple[float, ...]
    """Length of each stage."""
    num_prompts: int
    """Distinct prompts (system prompts x users), sent in turn: after its first time each is cached."""
    num_system_prompts: int
    """Distinct prefixes among them."""
    system_tokens: int
    """Nominal length of the shared prefix."""
    input_tokens: int
    """Nominal prompt length, prefix included."""
    output_tokens: int
    """Nominal output length."""


@dataclass(frozen=True)
class Case:
    """One measured run."""

    run: str
    """Its name in its set."""
    deployment: Deployment
    """One data-parallel rank's view of the replica."""
    load: ClosedLoop | Stages
    """The traffic."""
    max_seqs: int
    """Requests that run at once."""
    max_tokens: int
    """Tokens of a step."""
    kv_tokens: float | None
    """Tokens the cache holds as the engine printed it; None: from memory accounting."""
    measured: Mapping[str, float]
    """By metric, in ms."""
    family: str
    """Model family, what column B leaves out."""
    classes: tuple[str, ...]
    """Class of deployment, and release, whose measured scales hold; empty: none are fitted."""
    split: Literal["train", "test"]
    """Whether it may be fitted to."""
    recv_interval: int = 1
    """Decode steps between two looks of the scheduler at what has arrived, as the recipe says (SGLang)."""
    wait_steps: int = 0
    """Steps that new requests are held back for more to come, as the recipe says (TensorRT-LLM)."""
    decode: Deployment | None = None
    """Disaggregated: the deployment that decodes; `deployment` prefills."""
    workers: tuple[int, int] = (1, 1)
    """Prefill and decode workers."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Facts of the set, for grouping residuals."""


def family_of(model: str) -> str:
    """Family of a model's name: layers of one design, whatever their size."""
    lowered = model.lower()
    for key, family in (
        ("deepseek", "deepseek"),
        ("minimax", "minimax"),
        ("qwen3.5", "qwen3.5"),
        ("qwen3-235b", "qwen3-moe"),
        ("qwen3-30b", "qwen3-moe"),
        ("qwen3", "qwen3"),
        ("qwen2", "qwen2"),
        ("gpt-oss", "gpt-oss"),
        ("kimi", "kimi"),
        ("glm", "glm"),
        ("llama-4", "llama-4"),
        # CodeLlama is Llama 2 trained on.
        ("codellama", "llama-2"),
        ("llama-2", "llama-2"),
        ("llama", "llama-3"),
        ("mixtral", "mixtral"),
        ("mistral", "mistral"),
        ("yi", "yi"),
    ):
        if key in lowered:
            return family
    return lowered
