"""Files of tokenpath's own load generator."""

from __future__ import annotations

import json
from pathlib import Path

from ingest.samples import Sample

HEADER = (
    "req,group,shared_prefix,prompt_tokens,max_tokens,output_tokens,cached_tokens,arrival_us,"
    "engine_add_us,first_sched_us,first_token_us,last_token_us,end_us,ttft_ms,e2e_ms,tpot_ms,"
    "itl_p50_ms,itl_max_ms,preemptions,steps,trace_id"
)
ROWS = (
    "a-0,-1,0,652,200,200,0,0,5119,5230,276675,5216817,5216934,,,,,,2,9,bd0f162fa2dd2f99482e835be6eab292",
    "a-1,3,128,16,90,90,8,183034,,,276816,2640266,2640341,93.7,2457.3,26.5,17.9,211.2,,,",
    "a-2,not a whole row",
)
TOKENS = ('{"req":"a-0","token_us":[10,20,21]}', '{"req":"a-1","token_us":[15,null]}', "{}")


def requests(folder: Path) -> Path:
    path = folder / "a.requests.csv"
    path.write_text("\n".join((HEADER, *ROWS)) + "\n")
    return path


def tokens(folder: Path) -> Path:
    path = folder / "a.tokens.jsonl"
    path.write_text("\n".join(TOKENS) + "\n")
    return path


def planted_requests(folder: Path, secret: str) -> Path:
    quoted = '"' + secret.replace('"', '""').replace("\n", " ") + '"'
    row = ROWS[1].split(",")
    path = folder / "a.requests.csv"
    path.write_text("\n".join((HEADER, ",".join((quoted, *row[1:20], quoted)))) + "\n")
    return path


def planted_tokens(folder: Path, secret: str) -> Path:
    path = folder / "a.tokens.jsonl"
    texts = [TOKENS[0], json.dumps({"req": secret, "token_us": [1], secret: secret})]
    path.write_text("\n".join(texts))
    return path


def many(folder: Path, num_events: int) -> Path:
    path = folder / "a.tokens.jsonl"
    path.write_text(
        "".join(f'{{"req":"a-{n}","token_us":[{n},{n + 1}]}}\n' for n in range(num_events))
    )
    return path


SAMPLES = [
    Sample(
        "vllm_load_requests",
        "vllm_load",
        requests,
        {
            ("request", "request_id", "observer", "arrival_ns", "first_token_ns", "finished_ns"): [
                ("a-0", "client", 0, 276_675_000, 5_216_934_000),
                ("a-1", "client", 183_034_000, 276_816_000, 2_640_341_000),
            ],
            ("request", "last_token_ns", "queued_ns"): [
                (5_216_817_000, None),
                (2_640_266_000, None),
            ],
            ("request", "prompt_tokens", "cached_tokens", "output_tokens", "num_preemptions"): [
                (652, 0, 200, 2),
                (16, 8, 90, None),
            ],
            ("request", "trace_id"): ["bd0f162fa2dd2f99482e835be6eab292", None],
            ("source", "clock"): ["monotonic"],
        },
        {"damaged record": 1, "times of the engine": 1},
        planted_requests,
    ),
    Sample(
        "vllm_load_tokens",
        "vllm_load",
        tokens,
        {
            ("token", "request_id", "observer", "index", "at_ns"): [
                ("a-0", "client", 0, 10_000),
                ("a-0", "client", 1, 20_000),
                ("a-0", "client", 2, 21_000),
                ("a-1", "client", 0, 15_000),
            ],
        },
        {"damaged record": 1, "token without a time": 1},
        planted_tokens,
        many,
    ),
]
