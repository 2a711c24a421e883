"""OpenTelemetry spans of requests: the client's, and vLLM's `llm_request` below it (docs/formats/otlp.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenpath.lab.serving.observers import Names
from tokenpath.lab.serving.records import NEVER, Run

_BATCH = 64


def write_spans(run: Run, names: Names, folder: Path) -> None:
    """One JSON line a batch, as the collector's file exporter writes."""
    answered = [k for k in range(len(run.sent_ns)) if run.ended_ns[k] != NEVER]
    order = sorted(answered, key=lambda k: int(run.answered_ns[k]))
    lines = []
    for at in range(0, len(order), _BATCH):
        part = order[at : at + _BATCH]
        engine = [_engine_span(run, names, k) for k in part]
        client = [_client_span(run, names, k) for k in part]
        lines.append(_line("vllm", "vllm.tracing.otel", engine))
        lines.append(_line("load-client", "opentelemetry.instrumentation.openai_v2", client))
    failed = run.load.is_failed.nonzero()[0].tolist()
    if failed:
        spans = [_failed_span(run, names, k) for k in failed]
        lines.append(_line("load-client", "opentelemetry.instrumentation.openai_v2", spans))
    (folder / "traces.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


def _line(service: str, scope: str, spans: list[dict[str, Any]]) -> str:
    resource = _attributes(
        {
            "telemetry.sdk.language": "python", "telemetry.sdk.name": "opentelemetry",
            "telemetry.sdk.version": "1.45.2", "service.name": service,
        }
    )  # fmt: skip
    return json.dumps(
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": resource},
                    "scopeSpans": [{"scope": {"name": scope}, "spans": spans}],
                }
            ]
        },
        separators=(",", ":"),
    )


def _attributes(values: dict[str, str | int | float]) -> list[dict[str, Any]]:
    def typed(value: str | int | float) -> dict[str, Any]:
        if isinstance(value, str):
            return {"stringValue": value}
        return {"intValue": str(value)} if isinstance(value, int) else {"doubleValue": value}

    return [{"key": key, "value": typed(value)} for key, value in values.items()]


def _span(
    names: Names, k: int, which: int, name: str, kind: str, start_ns: int, end_ns: int,
    attributes: dict[str, str | int | float], status: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    span = {
        "traceId": names.trace[k],
        "spanId": names.span[k][which],
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(names.t0_unix_ns + start_ns),
        "endTimeUnixNano": str(names.t0_unix_ns + end_ns),
        "attributes": _attributes(attributes),
        "status": status or {},
    }
    if which:
        span["parentSpanId"] = names.span[k][0]
    return span


def _engine_span(run: Run, names: Names, k: int) -> dict[str, Any]:
    """Latencies as vLLM states them: first token and end at the API server, the rest by the engine core."""

    def seconds(end_ns: int, start_ns: int) -> float:
        return (end_ns - start_ns) / 1e9

    arrived, added = int(run.arrived_ns[k]), int(run.added_ns[k])
    scheduled, first = int(run.scheduled_ns[k]), int(run.first_ns[k])
    last, answered = int(run.last_ns[k]), int(run.answered_ns[k])
    prefix = "gen_ai.latency."
    return _span(
        names, k, 1, "llm_request", "SPAN_KIND_SERVER", arrived, answered,
        {
            f"{prefix}time_to_first_token": seconds(int(run.first_sent_ns[k]), arrived),
            f"{prefix}e2e": seconds(answered, arrived),
            f"{prefix}time_in_queue": seconds(scheduled, added),
            "gen_ai.usage.prompt_tokens": int(run.load.prompt[k]),
            "gen_ai.usage.completion_tokens": int(run.load.output[k]),
            f"{prefix}time_in_model_prefill": seconds(first, scheduled),
            f"{prefix}time_in_model_decode": seconds(last, first),
            f"{prefix}time_in_model_inference": seconds(last, scheduled),
            "gen_ai.request.id": f"cmpl-{names.request[k]}-0",
            "gen_ai.request.top_p": 1.0,
            "gen_ai.request.max_tokens": int(run.load.output[k]),
            "gen_ai.request.n": 1,
        },
    )  # fmt: skip


def _client_attributes(run: Run, k: int) -> dict[str, str | int | float]:
    values: dict[str, str | int | float] = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": run.plan.model,
        "gen_ai.request.max_tokens": int(run.load.output[k]),
    }
    if run.plan.load.num_turns > 1 and run.load.group[k] >= 0:
        values["gen_ai.conversation.id"] = f"conv-{int(run.load.group[k]):04d}"
    return values


def _client_span(run: Run, names: Names, k: int) -> dict[str, Any]:
    sent, ended = int(run.sent_ns[k]), int(run.ended_ns[k])
    values = _client_attributes(run, k) | {
        "gen_ai.response.id": f"cmpl-{names.request[k]}",
        "gen_ai.usage.input_tokens": int(run.load.prompt[k]),
        "gen_ai.usage.output_tokens": int(run.load.output[k]),
        "gen_ai.response.time_to_first_chunk": (run.tokens_ns[k][0] - sent) / 1e9,
    }
    name = f"text_completion {run.plan.model}"
    return _span(names, k, 0, name, "SPAN_KIND_CLIENT", sent, ended, values)


def _failed_span(run: Run, names: Names, k: int) -> dict[str, Any]:
    sent = int(run.sent_ns[k])
    values = _client_attributes(run, k) | {
        "http.response.status_code": 400,
        "error.type": "400",
    }
    end = sent + 2_000_000
    name = f"text_completion {run.plan.model}"
    error = {"code": "STATUS_CODE_ERROR"}
    return _span(names, k, 0, name, "SPAN_KIND_CLIENT", sent, end, values, error)
