"""The engines that can be simulated: their settings and their schedulers, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from tokenpath.core.errors import UsageError
from tokenpath.engine.baselines import (
    StaticScheduler,
    StaticSettings,
    WindowScheduler,
    WindowSettings,
)
from tokenpath.engine.config import EngineConfig
from tokenpath.engine.scheduler import Scheduler
from tokenpath.engine.sglang import SglangScheduler, SglangSettings
from tokenpath.engine.trtllm import TrtllmScheduler, TrtllmSettings
from tokenpath.engine.vllm.scheduler import VllmScheduler

ENGINES: Mapping[str, type[Any]] = {
    "vllm": EngineConfig,
    "sglang": SglangSettings,
    "trtllm": TrtllmSettings,
    "static": StaticSettings,
    "window": WindowSettings,
}
"""Name of each engine, and the class of its settings."""


def settings_class(engine: str) -> type[Any]:
    """The settings of an engine; UsageError for a name that is none."""
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}", allowed=", ".join(ENGINES))
    return ENGINES[engine]


def block_tokens(engine: str, settings: Mapping[str, Any]) -> int:
    """Tokens of a KV block under these settings."""
    name = {"sglang": "page_size", "trtllm": "tokens_per_block"}.get(engine, "block_size")
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
    if engine == "trtllm":
        return settings.get("max_num_tokens", 8192), settings.get("max_batch_size", 2048)
    return 8192, settings.get("max_batch_size", 32)


def engine_settings(
    engine: str,
    settings: Mapping[str, Any],
    *,
    num_blocks: int,
    max_tokens: int,
    max_seqs: int,
    longest: int,
    version: str | None,
) -> Any:
    """The settings of one scheduler. `longest` is the longest request, prompt and output, where no limit is set.

    UsageError or InputError for settings that no engine would run with.
    """
    if engine == "vllm":
        named = {
            "max_num_batched_tokens": max_tokens,
            "max_num_seqs": min(max_seqs, max_tokens),
            "max_model_len": max(longest, 2),
            "num_blocks": num_blocks,
            **({} if version is None else {"version": version}),
        }
    elif engine == "sglang":
        page = block_tokens(engine, settings)
        # Two tokens of the context are kept back.
        named = {
            "max_total_tokens": num_blocks * page,
            "max_running_requests": max_seqs,
            "context_length": longest + 2,
        }
    else:
        named = {"num_blocks": num_blocks, "max_seq_len": longest, "max_batch_size": max_seqs}
    return settings_class(engine)(**{**named, **settings})


def make_scheduler(settings: Any) -> Scheduler:
    """A new scheduler of the engine whose settings these are."""
    makers: dict[type[Any], Callable[[Any], Scheduler]] = {
        EngineConfig: VllmScheduler,
        SglangSettings: SglangScheduler,
        TrtllmSettings: TrtllmScheduler,
        StaticSettings: StaticScheduler,
        WindowSettings: WindowScheduler,
    }
    return makers[type(settings)](settings)
