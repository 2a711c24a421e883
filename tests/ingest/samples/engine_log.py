"""Server logs of vLLM and SGLang."""

from __future__ import annotations

from pathlib import Path

from ingest.samples import Sample

VLLM = """\
(EngineCore pid=0) INFO 11-30 14:33:12 [perf.py:1478] Instantiated ComponentMetrics [attn]
(APIServer pid=0) INFO 11-30 14:33:29 [loggers.py:199] Engine 000: Iteration(7): 1 context requests, \
512 context tokens, 2 generation requests, 2 generation tokens, iteration elapsed time: 26.25 ms, \
GPU KV cache usage: 50.0%
(APIServer pid=0) INFO 11-30 14:33:34 [loggers.py:335] Engine 001: Avg prompt throughput: 278.5 tokens/s, \
Avg generation throughput: 101.5 tokens/s, Running: 5 reqs, Waiting: 9 reqs, \
GPU KV cache usage: 25.0%, Prefix cache hit rate: 12.5%
(APIServer pid=0) INFO 12-99 14:33:34 [loggers.py:335] Engine 001: Avg prompt throughput: 1.0 tokens/s,
"""
SGLANG = """\
[2026-04-20 20:24:27.500 DP1 TP0] Prefill batch [10], #new-seq: 1, #new-token: 6, #cached-token: 2, \
token usage: 0.50, #running-req: 3, #queue-req: 4, cuda graph: False, input throughput (token/s): 1.5
[2026-04-20 20:24:28.250 DP1 TP0] Decode batch, #running-req: 2, #token: 84, token usage: 0.25, \
cuda graph: True, gen throughput (token/s): 3.5, #queue-req: 1
[2026-04-20 20:24:29] INFO: 127.0.0.1:63737 - "GET /model_info HTTP/1.1" 200 OK
"""
ZONED = (
    "2026-04-20T20:24:27.123456Z INFO TP0] Decode batch, #running-req: 2, #token: 84\n"
    "2026-04-20T22:24:27.123457+02:00 INFO TP0] Decode batch, #running-req: 3, #token: 84\n"
    "[2026-04-20 20:24:27] Decode batch, #running-req: 3, #token: 84\n"
)
IN_2000 = 975_594_809_000_000_000
"""30 November 2000, 14:33:29 UTC: the year is not written."""
DAY = 1_776_716_667_000_000_000
"""20 April 2026, 20:24:27 UTC."""


def write(folder: Path, text: str) -> Path:
    path = folder / "server.log"
    path.write_text(text)
    return path


def planted(folder: Path, secret: str) -> Path:
    text = secret.replace("\n", " ")
    return write(
        folder, f"{SGLANG}[2026-04-20 20:24:29] Decode batch, #{text}: 3, {text}: 4\n{text}\n"
    )


def many(folder: Path, num_events: int) -> Path:
    return write(folder, VLLM.splitlines(keepends=True)[1] * num_events)


SAMPLES = [
    Sample(
        "engine_log_vllm",
        "engine_log",
        lambda folder: write(folder, VLLM),
        {
            ("step", "number", "engine_id", "phase", "start_ns", "end_ns"): [
                (7, 0, "mixed", IN_2000 - 26_250_000, IN_2000),
            ],
            ("step", "num_prefill_tokens", "num_decode_requests", "num_decode_tokens"): [
                (512, 2, 2)
            ],
            ("counter_sample", "at_ns", "name", "value", "unit", "labels"): [
                (IN_2000, "kv.usage", 0.5, "ratio", '{"engine": "0"}'),
                *(
                    (IN_2000 + 5_000_000_000, name, value, unit, '{"engine": "1"}')
                    for name, value, unit in (
                        ("Avg prompt throughput", 278.5, "token/s"),
                        ("Avg generation throughput", 101.5, "token/s"),
                        ("requests.running", 5.0, "request"),
                        ("requests.waiting", 9.0, "request"),
                        ("kv.usage", 0.25, "ratio"),
                        ("prefix.hit_rate", 0.125, "ratio"),
                    )
                ),
            ],
            ("source", "clock"): ["monotonic"],
            ("source_note", "code"): [
                "context-is-not-prefill",
                "clock-unknown",
                "log-times-coarse",
            ],
        },
        {"other line": 1, "line without a time": 1},
        planted,
        many,
    ),
    Sample(
        "engine_log_sglang",
        "engine_log",
        lambda folder: write(folder, SGLANG),
        {
            ("counter_sample", "at_ns", "name", "value", "unit"): [
                (DAY + 500_000_000, "#new-seq", 1.0, "request"),
                (DAY + 500_000_000, "#new-token", 6.0, "token"),
                (DAY + 500_000_000, "#cached-token", 2.0, "token"),
                (DAY + 500_000_000, "kv.usage", 0.5, "ratio"),
                (DAY + 500_000_000, "requests.running", 3.0, "request"),
                (DAY + 500_000_000, "requests.waiting", 4.0, "request"),
                (DAY + 500_000_000, "input throughput (token/s)", 1.5, "token/s"),
                (DAY + 1_250_000_000, "requests.running", 2.0, "request"),
                (DAY + 1_250_000_000, "#token", 84.0, None),
                (DAY + 1_250_000_000, "kv.usage", 0.25, "ratio"),
                (DAY + 1_250_000_000, "gen throughput (token/s)", 3.5, "token/s"),
                (DAY + 1_250_000_000, "requests.waiting", 1.0, "request"),
            ],
            ("counter_sample", "labels"): [
                '{"batch": "prefill", "dp_rank": "1", "tp_rank": "0"}',
            ]
            * 7
            + ['{"batch": "decode", "dp_rank": "1", "tp_rank": "0"}'] * 5,
            ("source_note", "code"): ["clock-unknown"],
        },
        {"other line": 1},
        planted,
    ),
    Sample(
        "engine_log_zoned",
        "engine_log",
        lambda folder: write(folder, ZONED),
        {
            ("counter_sample", "at_ns", "name", "value"): [
                (DAY + 123_456_000, "requests.running", 2.0),
                (DAY + 123_456_000, "#token", 84.0),
                (DAY + 123_457_000, "requests.running", 3.0),
                (DAY + 123_457_000, "#token", 84.0),
            ],
            ("source", "clock"): ["epoch"],
            ("source_note", "code"): [],
        },
        {"line without a time": 1},
        planted,
    ),
]
