"""What a device scenario is made of before any fault: GPU, model, program, batch, length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpath.core.errors import InputError
from tokenpath.core.hardware import Hardware, find_hardware
from tokenpath.lab.kernels.times import Efficiencies

PROGRAMS = ("vllm", "sglang", "vllm-moe", "hf", "ddp", "fsdp")


@dataclass(frozen=True)
class Model:
    """Shape of a decoder, whole; ranks take their share."""

    name: str
    """Class name as frames show it."""
    hidden: int
    """Width of the residual stream."""
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads."""
    head_dim: int
    """Width of a head."""
    intermediate: int
    """Width of the MLP, or of one expert."""
    layers: int
    """Layers that are run; profiles of large models are often taken with fewer than the model has."""
    vocab: int
    """Rows of the embedding."""
    experts: int = 0
    """Routed experts; 0: dense."""
    experts_per_token: int = 0
    """Experts that a token passes."""


@dataclass(frozen=True)
class Gpu:
    """How a device presents itself."""

    name: str
    """Name that the driver reports."""
    memory_bytes: int
    """Memory that the driver reports."""
    pcie_bytes_per_s: float
    """Rate of pinned copies between host and device."""
    hardware: Hardware
    """Entry of the catalogue."""


@dataclass(frozen=True)
class Setup:
    """Everything drawn before the fault."""

    seed: int
    """Seed of the scenario."""
    program: str
    """One of PROGRAMS."""
    gpu: Gpu
    """The devices, all alike."""
    ranks: int
    """Processes, one device each."""
    model: Model
    """What is run."""
    steps: int
    """Steps in the trace."""
    batch: int
    """Requests that decode, or sequences of a training batch."""
    context: int
    """Mean tokens in the cache of a request, or the length of a sequence."""
    chunk: int
    """Tokens of a prefill chunk."""
    prefill_every: int
    """Steps between two steps with a chunk; 0: decode only."""
    with_stack: bool
    """Whether Python frames are recorded."""
    with_memory: bool
    """Whether the allocator's events are recorded."""
    gemm_style: str
    """Generation of cuBLAS."""
    host_speed: float
    """Factor on host work: the CPU and the interpreter."""
    shares: Efficiencies
    """What libraries reach of the peaks."""
    bus_share: float
    """What large collectives reach of the link."""
    alpha_ns: float
    """Latency of a collective."""
    with_syncs: bool
    """Whether waits for events are recorded (enable_cuda_sync_events)."""
    split_kv: bool = True
    """Whether decode attention splits the keys of a request over several blocks."""
    input_bytes: int = 0
    """Bytes of further inputs (images, adapters) that each step copies from pinned memory; 0: none."""


_MODELS = {
    "8b": Model("LlamaForCausalLM_0", 4096, 32, 8, 128, 14336, 32, 128256),
    "14b": Model("Qwen2ForCausalLM_0", 5120, 40, 8, 128, 13824, 40, 152064),
    "70b": Model("LlamaForCausalLM_0", 8192, 64, 8, 128, 28672, 40, 128256),
    "moe": Model("Qwen3MoeForCausalLM_0", 2048, 32, 8, 128, 768, 24, 151936, 128, 8),
    "mixtral": Model("MixtralForCausalLM_0", 4096, 32, 8, 128, 14336, 16, 32000, 8, 2),
    "1b": Model("LlamaForCausalLM_0", 2048, 32, 8, 64, 8192, 16, 128256),
    "gpt": Model("GPT_0", 2048, 16, 16, 128, 8192, 12, 50304),
}
_GPUS = (
    ("NVIDIA H100 80GB HBM3", 85_017_624_576, 53e9, "h100-sxm5-80gb"),
    ("NVIDIA H100 80GB HBM3", 85_017_624_576, 51e9, "h100-sxm5-80gb"),
    ("NVIDIA H200", 150_109_880_320, 54e9, "h200-sxm-141gb"),
    ("NVIDIA H800", 85_174_190_080, 52e9, "h800-sxm5-80gb"),
)


def draw_setup(
    seed: int,
    programs: tuple[str, ...] = PROGRAMS,
    *,
    min_ranks: int = 1,
    stack: bool | None = None,
    small_batch: bool = False,
) -> Setup:
    """The healthy part of a scenario; `programs`, `min_ranks` and so on are what a fault needs."""
    rng = np.random.Generator(np.random.PCG64([seed, 7]))
    program = str(rng.choice(programs))
    name, memory, pcie, part = _GPUS[int(rng.integers(len(_GPUS)))]
    hardware = find_hardware(part)
    if hardware is None:
        raise InputError(f"the catalogue has no {part}", next_step="name another part")
    sizes = [size for size in (1, 2, 4, 8) if size >= min_ranks]
    if program in ("ddp", "fsdp"):
        sizes = [size for size in sizes if size >= 2]
    elif program == "hf":
        sizes = [1]
    elif program == "vllm-moe":
        sizes = [size for size in sizes if size >= 2]
    weights = np.array([{1: 6, 2: 4, 4: 3, 8: 2}[size] for size in sizes], float)
    ranks = int(rng.choice(sizes, p=weights / weights.sum()))
    key = _model_key(program, ranks, rng)
    model = _MODELS[key]
    steps = int(rng.integers(20, 41))
    per_layer = {"ddp": 34, "fsdp": 38, "hf": 22}.get(program, 12)
    # No more than some 36,000 kernels in all: fewer layers, then fewer steps.
    budget = 36_000 / (ranks * per_layer)
    if program in ("ddp", "fsdp"):
        steps = int(rng.integers(8, 15))
    layers = min(model.layers, max(4, int(budget / steps)))
    model = Model(**{**model.__dict__, "layers": layers})
    if small_batch:
        batch, context = int(rng.choice([1, 2, 4])), int(rng.integers(24_000, 64_000))
    elif program in ("ddp", "fsdp"):
        batch, context = int(rng.choice([2, 4])), int(rng.choice([2048, 4096]))
    elif program == "hf":
        # As much cache as fits: short steps would not hide what an eager loop spends between them.
        per_token = 4 * model.kv_heads * model.head_dim * _MODELS[key].layers
        batch = int(rng.choice([128, 160]))
        context = int(rng.uniform(0.8, 1.0) * 46e9 / per_token / batch)
    else:
        batch, context = int(rng.choice([64, 96, 128, 192])), int(rng.integers(1_500, 5_000))
    chunk = int(rng.choice([1024, 2048]))
    every = int(rng.integers(4, 9)) if rng.random() < 0.6 and not small_batch else 0
    with_stack = bool(rng.random() < 0.6)
    return Setup(
        seed=seed,
        program=program,
        gpu=Gpu(name, memory, pcie, hardware),
        ranks=ranks,
        model=model,
        steps=steps,
        batch=batch,
        context=context,
        chunk=chunk,
        prefill_every=every if program in ("vllm", "sglang", "vllm-moe") else 0,
        with_stack=with_stack if stack is None else stack,
        with_memory=bool(rng.random() < 0.3),
        gemm_style=str(rng.choice(["nvjet", "xmma"])),
        host_speed=float(rng.uniform(0.7, 1.1)),
        shares=Efficiencies.draw(rng),
        bus_share=float(rng.uniform(0.62, 0.82)),
        alpha_ns=float(rng.uniform(5_000, 9_000)),
        with_syncs=bool(rng.random() < 0.7 or program in ("ddp", "fsdp")),
    )


def _model_key(program: str, ranks: int, rng: np.random.Generator) -> str:
    if program == "vllm-moe":
        return str(rng.choice(["moe", "mixtral"]))
    if program == "hf":
        return str(rng.choice(["1b", "8b"]))
    if program in ("ddp", "fsdp"):
        return str(rng.choice(["gpt", "1b"]))
    return str(rng.choice(["8b", "14b"] if ranks <= 2 else ["70b", "70b", "14b"]))
