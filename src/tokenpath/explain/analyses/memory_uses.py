"""What an allocation is for, by the frames that asked for it."""

from __future__ import annotations

import re

_USES = (
    ("KV cache", re.compile(r"kv_?cache|kv_pool|memory_pool\.py|cache_engine", re.IGNORECASE)),
    ("graphs", re.compile(r"cuda/graphs\.py|cudagraph|cuda_graph|graph_capture", re.IGNORECASE)),
    ("optimizer", re.compile(r"torch/optim/|optimizers?\.py\(\d+\): step|_init_state", re.IGNORECASE)),
    ("communication", re.compile(r"fsdp_collectives|all_gather|reduce_scatter|all_reduce|distributed_c10d|nccl", re.IGNORECASE)),
    ("weights", re.compile(r"load_weights|create_weights|weight_loader|load_model|init_weights|to_empty|_apply\b|parameter\.py|reset_parameters|safetensors", re.IGNORECASE)),
    ("gradients", re.compile(r"AccumulateGrad|accumulate_grad|_engine_run_backward|run_backward|autograd::engine|Backward\d*::apply|: backward\b")),
    ("activations", re.compile(r": forward\b|: _call_impl|functional\.py|forward_backward_step|: __call__|loss\.py")),
)  # fmt: skip
"""The first that fits any frame is the use: what is special before what is general."""


def use_of(call_stack: str) -> str:
    """One of the uses above, `other` where no frame says, `unknown` without frames."""
    if not call_stack:
        return "unknown"
    for use, names in _USES:
        if names.search(call_stack):
            return use
    return "other"
