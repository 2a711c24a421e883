"""The engines that can be simulated: their settings and their schedulers, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tokenpath.core.errors import UsageError
from tokenpath.engine.config import EngineConfig
from tokenpath.engine.scheduler import Scheduler
from tokenpath.engine.sglang import SglangScheduler, SglangSettings
from tokenpath.engine.trtllm import TrtllmScheduler, TrtllmSettings
from tokenpath.engine.vllm.scheduler import VllmScheduler

ENGINES: Mapping[str, type[Any]] = {
    "vllm": EngineConfig,
    "sglang": SglangSettings,
    "trtllm": TrtllmSettings,
}
"""Name of each engine, and the class of its settings."""


def settings_class(engine: str) -> type[Any]:
    """The settings of an engine; UsageError for a name that is none."""
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}", allowed=", ".join(ENGINES))
    return ENGINES[engine]


def block_tokens(engine: str, settings: Mapping[str, Any]) -> int:
    """Tokens of a KV block under these settings."""
    name = {"vllm": "block_size", "sglang": "page_size", "trtllm": "tokens_per_block"}[engine]
    default = next(f.default for f in fields(settings_class(engine)) if f.name == name)
    value: int = settings.get(name, default)
    return value


def batch_limits(engine: str, settings: Mapping[str, Any], is_large: bool) -> tuple[int, int]:
    """Most tokens and most requests of a step, for the memory plan.

    `is_large`: a GPU of 70 GiB or more other than the A100, for which vLLM's API server starts with 8,192
    tokens and 1,024 requests instead of 2,048 and 256 (vllm/engine/arg_utils.py, get_batch_defaults).
    """
    if engine == "vllm":
        tokens, seqs = (8192, 1024) if is_large else (2048, 256)
        return (
            settings.get("max_num_batched_tokens", tokens),
            settings.get("max_num_seqs", seqs),
        )
    if engine == "sglang":
        return settings.get("max_prefill_tokens", 16384), settings.get("max_running_requests", 1024)
    return settings.get("max_num_tokens", 8192), settings.get("max_batch_size", 2048)


def make_scheduler(
    engine: str,
    settings: Mapping[str, Any],
    *,
    num_blocks: int,
    max_tokens: int,
    max_seqs: int,
    longest: int,
    version: str | None,
) -> Scheduler:
    """A new scheduler. `longest` is the longest request, prompt and output, where no limit is set."""
    if engine == "vllm":
        named = {
            "max_num_batched_tokens": max_tokens,
            "max_num_seqs": min(max_seqs, max_tokens),
            "max_model_len": max(longest, 2),
            "num_blocks": num_blocks,
            **({} if version is None else {"version": version}),
        }
        return VllmScheduler(EngineConfig(**{**named, **settings}))
    if engine == "sglang":
        page = block_tokens(engine, settings)
        named = {
            "max_total_tokens": num_blocks * page,
            "max_running_requests": max_seqs,
            "context_length": longest + 2,  # SGLang keeps two tokens of the context back
        }
        return SglangScheduler(SglangSettings(**{**named, **settings}))
    named = {"num_blocks": num_blocks, "max_seq_len": longest, "max_batch_size": max_seqs}
    return TrtllmScheduler(TrtllmSettings(**{**named, **settings}))
