"""Which spans are requests, and how each program names what it says about them."""

from __future__ import annotations

import re
from enum import IntEnum


class Role(IntEnum):
    """What a span is, told by its name."""

    OTHER = 0
    ENGINE = 1
    """One request in an engine: vLLM's `llm_request`, the root of SGLang's tree."""
    GATEWAY = 2
    """llm-d's gateway."""
    PD_PROXY = 3
    """llm-d's sidecar of a decode instance, as a whole."""
    PD_PART = 4
    """Its prefill or decode call, which carry the attributes."""
    STAGE = 5
    """A stage of an engine's request, see `STAGES`."""


_NAMES = {
    "llm_request": Role.ENGINE,
    "gateway.request": Role.GATEWAY,
    "llm_d.pd_proxy.request": Role.PD_PROXY,
    "llm_d.pd_proxy.prefill": Role.PD_PART,
    "llm_d.pd_proxy.decode": Role.PD_PART,
    "pd_proxy.request": Role.PD_PROXY,
    "pd_proxy.prefill": Role.PD_PART,
    "pd_proxy.decode": Role.PD_PART,
}
_SGLANG_ROOT = re.compile(r"(?:\S{0,32} )?Req \S{1,8}")
"""`<role> Req <first 8 of the id>`; the role of an undisaggregated server is empty (srt/observability/
trace.py of SGLang, commit 02a58088)."""

STAGES: dict[str, tuple[str | None, str | None]] = {
    "vllm_queue": ("queued_ns", "scheduled_ns"),
    "vllm_prefill": ("scheduled_ns", "prefilled_ns"),
    "vllm_decode": ("first_token_ns", "last_token_ns"),
    "prefill_waiting": ("queued_ns", "scheduled_ns"),
    "chunked_prefill": ("scheduled_ns", None),
    "prefill_forward": ("scheduled_ns", "prefilled_ns"),
    "decode_forward": (None, "last_token_ns"),
    "decode_loop": (None, "last_token_ns"),
}
"""What the start and the end of a stage give. vLLM's are those of its open pull request 44402. The end of
prefill is the first token where no decode stage says when it began."""

SECONDS = {
    "ttft": "gen_ai.latency.time_to_first_token",
    "e2e": "gen_ai.latency.e2e",
    "queue": "gen_ai.latency.time_in_queue",
    "prefill": "gen_ai.latency.time_in_model_prefill",
    "decode": "gen_ai.latency.time_in_model_decode",
}
"""Durations in seconds that vLLM and SGLang state (as recorded from vLLM 0.32; SpanAttributes of SGLang)."""
FIRST_CHUNK = ("gen_ai.response.time_to_first_chunk", "gen_ai.server.time_to_first_token")
"""Seconds to the first answer as clients state it."""
MILLISECONDS = {
    "ttft": ("llm_d.pd_proxy.true_ttft_ms", "pd_proxy.true_ttft_ms"),
    "prefill": (
        "llm_d.pd_proxy.prefill.duration_ms",
        "llm_d.pd_proxy.prefill_duration_ms",
        "pd_proxy.prefill.duration_ms",
    ),
    "decode": (
        "llm_d.pd_proxy.decode.duration_ms",
        "llm_d.pd_proxy.decode_duration_ms",
        "pd_proxy.decode.duration_ms",
    ),
    "e2e": ("llm_d.pd_proxy.total_duration_ms", "pd_proxy.total_duration_ms"),
}
"""Durations in milliseconds that llm-d's sidecar states (pkg/sidecar/proxy of llm-d-inference-scheduler)."""

PROMPT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT_TOKENS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
"""New name of the conventions first, then the old one, which vLLM 0.32 and SGLang 0.5.23 still write."""
CACHED_TOKENS = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.cached_tokens",
)
MODEL = ("gen_ai.request.model", "gen_ai.response.model")
FINISH = "gen_ai.response.finish_reasons"
ENGINE_IDS = ("gen_ai.request.id", "rid")
GATEWAY_IDS = ("gen_ai.request.id", "llm_d.pd_proxy.request_id", "request_id", "request.id")
CLIENT_IDS = ("gen_ai.response.id", "gen_ai.request.id", "request_id")
CLIENT_MARKS = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.system")
"""What a client span of the GenAI conventions has."""


def role(name: str) -> Role:
    """What a span of that name is."""
    known = _NAMES.get(name)
    if known is not None:
        return known
    if name in STAGES:
        return Role.STAGE
    return Role.ENGINE if _SGLANG_ROOT.fullmatch(name) else Role.OTHER
