"""Runs of the simulator comparison (vLLM 0.15 on H100 under inference-perf) as cases.

Column A is fitted to the training runs alone. Runs of the training set that the evaluation set repeats
(same measured values), and every other run of their models in that set, are left out of it.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.scoreboard.cases import Case, Stages, family_of

from tokenpath.core.hardware import load_catalogue
from tokenpath.core.model_catalogue import find_model
from tokenpath.simulate.memory import plan_memory
from tokenpath.simulate.physics.deployment import Deployment

GPUS = {
    "H100": "h100-sxm5-80gb",
    "A100-80": "a100-sxm4-80gb",
    "A100": "a100-sxm4-80gb",
    "L40S": "l40s",
}
WORKLOADS: Mapping[str, tuple[int, int, int, int, int]] = {
    "general": (9, 5, 100, 447, 248),
    "codegen": (11, 4, 100, 466, 247),
    "roleplay": (10, 5, 150, 600, 251),
    "reasoning": (23, 1, 100, 934, 1448),
}
"""System prompts, users of each, tokens of the system prompt, question and output."""
STAGES: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "general": ((8.0, 20.0), (600.0, 600.0)),
    "general-lite": ((2.5, 6.0), (600.0, 600.0)),
    "codegen": ((5.0, 10.0), (600.0, 600.0)),
    "roleplay": ((6.0,), (1200.0,)),
    "reasoning": ((4.0,), (1200.0,)),
    "reasoning-lite": ((1.0,), (1200.0,)),
}
"""Rates and durations, from the training runs of the same names."""
MAX_SEQS = 128
METRICS = {
    "e2e_mean": "e2e_mean_ms",
    "e2e_p90": "e2e_p90_ms",
    "e2e_p99": "e2e_p99_ms",
    "ttft_mean": "ttft_mean_ms",
    "ttft_p90": "ttft_p90_ms",
    "ttft_p99": "ttft_p99_ms",
    "itl_mean": "itl_mean_ms",
}
OVERLOADED_SHARE = 0.2
"""A run with more failures than this is overload and not fitted to."""


def load_cases(data: Path) -> Iterator[Case]:
    """Evaluation runs, then training runs."""
    with (data / "serving/blis_eval38/measured.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    models = {row["model"] for row in rows}
    for run, part in _by(rows, "exp_id").items():
        yield _case(run, part, "test", None)
    with (data / "serving/blis_trainval_h100/measured.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    specs = json.loads((data / "serving/blis_trainval_h100/specs.json").read_text("utf-8"))
    known = set()
    for run, part in _by(rows, "exp_id").items():
        known.add(run)
        yield _case(run, part, "train", specs.get(run))
    with (data / "serving/blis_training_h100/stage_metrics.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    for name, part in _by(rows, "exp").items():
        failed = sum(int(r["failures"]) for r in part) / sum(int(r["requests"]) for r in part)
        run = "-".join(name.split("-")[:2])
        if run in known or part[0]["model"] in models or failed > OVERLOADED_SHARE:
            continue
        yield _training_case(run, part)


def _by(rows: list[dict[str, str]], key: str) -> dict[str, list[dict[str, str]]]:
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        groups[row[key]].append(row)
    return groups


def _stages(workload: str, lite: bool, outputs: int | None = None) -> Stages:
    workload = workload.removesuffix("-lite")
    systems, users, system, question, output = WORKLOADS[workload]
    name = f"{workload}-lite" if lite and f"{workload}-lite" in STAGES else workload
    rates, durations = STAGES[name]
    return Stages(
        rates=rates,
        durations_s=durations,
        num_prompts=systems * users,
        num_system_prompts=systems,
        system_tokens=system,
        input_tokens=system + question,
        output_tokens=outputs or output,
    )


def _case(run: str, rows: list[dict[str, str]], split: Any, spec: dict[str, Any] | None) -> Case:
    row = rows[0]
    measured = {}
    for r in rows:
        stage = r.get("stage_index", "-1")
        prefix = "" if stage == "-1" else f"{stage}:"
        measured[prefix + METRICS[r["metric_name"]]] = float(r["actual"])
    implied = None
    if split == "train":
        # Base models stop early here; the evaluation's lengths are taken as nominal.
        decode = measured["e2e_mean_ms"] - measured["ttft_mean_ms"]
        implied = round(decode / measured["itl_mean_ms"]) + 1
    at = Deployment(
        model=find_model(row["model"]),
        hardware=load_catalogue()[GPUS[row["hardware"]]],
        engine="vllm",
        engine_version="0.15.1",
        tp=int(row["tp"]),
    )
    tokens = int(row["max_num_batched_tokens"])
    kv = spec["total_kv_blocks"] * 16.0 if spec else None
    if kv is None:
        share = float(row.get("gpu_mem_util") or 0.9)
        plan = plan_memory(at, utilisation=share, max_tokens=tokens, max_seqs=MAX_SEQS)
        kv = float(plan.num_tokens)
    return Case(
        run=run,
        deployment=at,
        load=_stages(row["workload"], "lite" in row["experiment_folder"], implied),
        max_seqs=MAX_SEQS,
        max_tokens=tokens,
        kv_tokens=kv,
        measured=measured,
        family=family_of(row["model"]),
        classes=(),
        split=split,
        tags={"folder": row["experiment_folder"], "workload": row["workload"]},
    )


def _training_case(run: str, rows: list[dict[str, str]]) -> Case:
    row = rows[0]
    at = Deployment(
        model=find_model(row["model"]),
        hardware=load_catalogue()["h100-sxm5-80gb"],
        engine="vllm",
        engine_version="0.15.1",
        tp=int(row["tp"]),
    )
    measured = {}
    outputs = []
    for r in rows:
        prefix = f"{r['stage']}:"
        tokens = float(r["out_len_mean"])
        first, whole = float(r["ttft_s_mean"]) * 1e3, float(r["e2e_s_mean"]) * 1e3
        measured |= {
            f"{prefix}ttft_mean_ms": first,
            f"{prefix}ttft_p99_ms": float(r["ttft_s_p99"]) * 1e3,
            f"{prefix}e2e_mean_ms": whole,
            f"{prefix}itl_mean_ms": (whole - first) / (tokens - 1),
        }
        outputs.append(tokens)
    return Case(
        run=run,
        deployment=at,
        load=_stages(row["workload"], False, round(sum(outputs) / len(outputs))),
        max_seqs=int(row["max_num_seqs"]),
        max_tokens=int(row["max_num_batched_tokens"]),
        kv_tokens=None,
        measured=measured,
        family=family_of(row["model"]),
        classes=(),
        split="train",
        tags={"folder": row["exp"], "workload": row["workload"]},
    )
