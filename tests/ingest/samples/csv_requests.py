"""Requests in plain tables: our own names, and those of public traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ingest.samples import Sample

OWN = """\
request_id,group,arrival_us,prompt_tokens,output_tokens,ttft_ms,e2e_ms,tpot_ms
a-1,0,1500,10,3,0.25,1.5,0.5
cmpl-b-2,1,2500.125,20,,0.5,,x
broken
"""
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2024-05-10 00:00:00.009930+00:00,110,27
"""
BURSTGPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45.5,GPT-4,300,0,300,API log
"""
MOONCAKE = """\
{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 27.5, "input_length": 10, "output_length": 1, "hash_ids": []}
{"timestamp": 28, "input_length": -1, "output_length": true, "hash_ids": []}
[
"""


def table(text: str, name: str = "requests.csv") -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        path = folder / name
        path.write_text(text, encoding="utf-8")
        return path

    return build


def planted(folder: Path, secret: str) -> Path:
    cell = '"' + secret.replace('"', '""').replace("\n", " ") + '"'
    rows = f"{cell},1,{cell},{cell},stop,{cell}\nx,{cell},m,10,{cell},{cell}\n"
    return table(
        "request_id,arrival_s,model,prompt_tokens,finish_reason,note\n" + rows, "plain.csv"
    )(folder)


def many(folder: Path, num_events: int) -> Path:
    rows = "".join(f"{number}.5,100,{number % 7}\n" for number in range(num_events))
    return table("arrival_s,prompt_tokens,output_tokens\n" + rows)(folder)


COLUMNS = ("request", "request_id", "arrival_ns", "prompt_tokens", "output_tokens")

SAMPLES = [
    Sample(
        "csv with our names",
        "csv_requests",
        table(OWN),
        {
            (
                *("request", "request_id", "arrival_ns", "first_token_ns", "finished_ns"),
                *("prompt_tokens", "output_tokens", "stated_ttft_ns", "stated_tpot_ns"),
            ): [
                ("a-1", 1_500_000, 1_750_000, 3_000_000, 10, 3, None, 500_000),
                ("b", 2_500_125, 3_000_125, None, 20, None, None, None),
            ],
            ("source", "clock"): ["monotonic"],
        },
        {"column that is not read": 2, "damaged row": 1, "length that is none": 1},
        planted,
        many,
    ),
    Sample(
        "azure trace",
        "csv_requests",
        table(AZURE),
        {
            COLUMNS: [
                ("#0", 1_700_158_623_979_960_000, 4808, 10),
                ("#1", 1_715_299_200_009_930_000, 110, 27),
            ],
            ("source", "clock", "profiler"): [("epoch", "azure")],
            ("source_note", "code"): ["workload-without-latencies", "time-zone-assumed"],
        },
        {},
        planted,
    ),
    Sample(
        "burstgpt trace",
        "csv_requests",
        table(BURSTGPT),
        {
            COLUMNS: [("#0", 5_000_000_000, 472, 18), ("#1", 45_500_000_000, 300, None)],
            ("request", "model", "finish_reason"): [("ChatGPT", None), ("GPT-4", "error")],
        },
        {"column that is not read": 4},
        planted,
    ),
    Sample(
        "mooncake trace",
        "csv_requests",
        table(MOONCAKE, "trace.jsonl"),
        {
            COLUMNS: [
                ("#0", 0, 6758, 500),
                ("#1", 27_500_000, 10, 1),
                ("#2", 28_000_000, None, None),
            ],
        },
        {"column that is not read": 3, "count that is none": 2, "damaged row": 1},
        planted,
    ),
]
