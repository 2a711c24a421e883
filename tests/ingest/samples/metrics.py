"""Metrics: Prometheus text, OpenMetrics, answers of the query API."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from ingest.samples import Sample

TEXT = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="small"} 3.0
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_bucket{engine="0",le="0.3"} 2.0
vllm:request_queue_time_seconds_bucket{engine="0",le="+Inf"} 3.0
vllm:request_queue_time_seconds_sum{engine="0"} 1.5
vllm:request_queue_time_seconds_count{engine="0"} 3.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0"} NaN
# TYPE process_open_fds gauge
process_open_fds 35
this is no sample
"""
OPEN_METRICS = """\
# TYPE DCGM_FI_DEV_FB_USED gauge
# UNIT DCGM_FI_DEV_FB_USED mebibytes
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1"} 2 1700000000.5
# TYPE sglang_num_requests counter
sglang_num_requests_total{tp_rank="0"} 5 1700000000.25 # {trace_id="abc"} 1.0 1699999999.0
# EOF
"""
MATRIX = {
    "status": "success",
    "data": {
        "resultType": "matrix",
        "result": [
            {
                "metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0"},
                "values": [[1435781430.781, "50"], [1435781445.781, "NaN"]],
            }
        ],
    },
}


def _write(name: str, text: str) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        path = folder / name
        path.write_text(text, encoding="utf-8")
        return path

    return build


def planted(folder: Path, secret: str) -> Path:
    value = secret.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    labels = f'model_name="{value}",instance="{value}",api_key="{value}",user="{value}"'
    text = f"# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{{labels}}} 1\n"
    return _write(
        "a.prom", f"{text}vllm:other{{{labels}}} 2\n# HELP x {value}\n# TYPE x {value}\n"
    )(folder)


def planted_in_answer(folder: Path, secret: str) -> Path:
    metric = {"__name__": secret, "model": secret, "node": secret, secret: "x", "user": secret}
    result = [{"metric": metric, "value": [1.5, "1"]}]
    data = {"resultType": "vector", "result": result}
    return _write("a.json", json.dumps({"status": "success", "data": data}))(folder)


def many(folder: Path, num_events: int) -> Path:
    lines = [f'm{{a="{number}"}} {number}' for number in range(num_events)]
    return _write("a.prom", "# TYPE m gauge\n" + "\n".join(lines) + "\n")(folder)


SAMPLES = [
    Sample(
        "metrics-text",
        "metrics",
        _write("a.prom.txt", TEXT),
        {
            ("counter_sample", "name", "kind", "value", "unit"): [
                ("requests.running", "gauge", 3.0, "request"),
                ("latency.queue", "bucket", 2.0, "1"),
                ("latency.queue", "bucket", 3.0, "1"),
                ("latency.queue", "sum", 1.5, "s"),
                ("latency.queue", "count", 3.0, "1"),
                ("tokens.prompt", "counter", None, "token"),
                ("process_open_fds", "gauge", 35.0, None),
            ],
            ("counter_sample", "at_ns"): [0] * 7,
            ("counter_sample", "labels"): [
                '{"engine":"0","model_name":"small"}',
                '{"engine":"0","le":"0.3"}',
                '{"engine":"0","le":"+Inf"}',
                '{"engine":"0"}',
                '{"engine":"0"}',
                '{"engine":"0"}',
                None,
            ],
            ("source_note", "code"): ["no-sample-time", "histogram-resolution"],
            ("source", "clock"): ["monotonic"],
        },
        {"damaged line": 1},
        planted,
        many,
        # Each line of this one is a series of its own, with its labels as objects.
        3_000,
    ),
    Sample(
        "metrics-open",
        "metrics",
        _write("a.prom", OPEN_METRICS),
        {
            ("counter_sample", "name", "source_name", "value", "unit", "at_ns"): [
                ("gpu.memory_used", "DCGM_FI_DEV_FB_USED", 2097152.0, "byte", 1_700_000_000_500_000_000),
                ("requests.finished", "sglang_num_requests_total", 5.0, "request", 1_700_000_000_250_000_000),
            ],
            ("counter_sample", "labels"): ['{"gpu":"0"}', '{"tp_rank":"0"}'],
            ("source", "clock"): ["epoch"],
        },
        {"exemplar": 1},
        planted,
    ),
    Sample(
        "metrics-range",
        "metrics",
        _write("a.json", json.dumps(MATRIX)),
        {
            ("counter_sample", "name", "value", "unit", "at_ns"): [
                ("gpu.resident", 0.5, "ratio", 1_435_781_430_781_000_000),
                ("gpu.resident", None, "ratio", 1_435_781_445_781_000_000),
            ],
            ("source_note", "code"): ["mixed-units", "gpu-util-is-residency"],
        },
        {},
        planted_in_answer,
    ),
]  # fmt: skip
