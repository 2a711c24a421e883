"""Board: runs of the simulator comparison on H100 (vLLM 0.15.1, inference-perf), with all rivals' predictions."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.scoreboard.blis_cases import METRICS, load_cases
from benchmarks.scoreboard.board import OURS, Board, Key, Score
from benchmarks.scoreboard.cases import Case, Stages
from benchmarks.scoreboard.fits import Columns
from benchmarks.scoreboard.predict_many import TOKENISER_SHARE
from benchmarks.scoreboard.run_case import answered, latencies_ms, run_case

from tokenpath.simulate.physics.model import Fitted, load_fitted
from tokenpath.simulate.workload.inference_perf import LoadStage, SharedPrefixChat, inference_perf

BOARD = Board(
    name="blis",
    title="vLLM under inference-perf on H100 (26 runs of the BLIS comparison)",
    metrics=(
        "e2e_mean_ms",
        "itl_mean_ms",
        "ttft_mean_ms",
        "ttft_p99_ms",
        "e2e_p90_ms",
        "e2e_p99_ms",
    ),
    targets={
        "e2e_mean_ms": 0.06,
        "itl_mean_ms": 0.055,
        "ttft_mean_ms": 0.13,
        "ttft_p99_ms": 0.25,
    },
)
_BLOCK = 16
_RIVALS = "serving/blis_eval38/rival_predictions.csv"
_WHOLE = "-1"


def score(data: Path, seed: int, done: frozenset[Key], columns: Columns) -> Iterator[Score]:
    """Ours by simulation, rivals' as published."""
    cases = [case for case in load_cases(data) if case.split == "test"]
    yield from rival_scores(data, cases, done)
    for case in cases:
        cell = cell_of(case)
        for column, fitted in columns.of(case.family):
            keys = {m: Key(BOARD.name, OURS, column, case.run, m) for m in BOARD.metrics}
            if all(key in done for key in keys.values()):
                continue
            predicted, reason = answered(simulate_case, case, fitted, seed)
            for metric, key in keys.items():
                measured, value = case.measured[metric], predicted.get(metric)
                yield Score(key, measured, value, seed, fitted.version, reason, cell)


def note(data: Path) -> str:
    """What a reader of the table must know of its runs."""
    cases = [case for case in load_cases(data) if case.split == "test"]
    families = set(load_fitted().families)
    num_same = sum(case.family not in families for case in cases)
    return (
        f"{len(cases)} runs of {len({cell_of(case) for case in cases})} cells (model, ranks, workload); what else "
        "differs (token budget, offload, memory share) moves no prediction, so cells are resampled. "
        f"{num_same} runs are of families that no training run has: their column B is A.\n"
    )


def cell_of(case: Case) -> str:
    """Model, ranks and workload: runs that differ in nothing else get nearly one prediction."""
    at = case.deployment
    return f"{at.model.name} tp{at.tp} {at.hardware.key} {case.tags['workload']}"


def rival_scores(data: Path, cases: list[Case], done: frozenset[Key]) -> Iterator[Score]:
    """Predictions that the comparison published, whole runs."""
    measured = {case.run: case.measured for case in cases}
    cells = {case.run: cell_of(case) for case in cases}
    with (data / _RIVALS).open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            run, metric = row["exp_id"].removesuffix(".0"), METRICS.get(row["metric_name"])
            if row["stage_index"].removesuffix(".0") != _WHOLE or metric not in BOARD.metrics:
                continue
            key = Key(BOARD.name, row["simulator"], "published", run, str(metric))
            if run in measured and key not in done and row["predicted"]:
                # LLMServingSim ran a part of the requests and was held against that part's measurement.
                numbers = float(row["actual"]), float(row["predicted"])
                yield Score(key, *numbers, cell=cells[run])


def simulate_case(case: Case, fitted: Fitted, seed: int) -> dict[str, float]:
    """One run through the simulator that users run; metrics of the whole run in ms."""
    load = case.load
    if not isinstance(load, Stages) or case.kv_tokens is None:
        raise TypeError("a run of rate-driven stages with a known cache is needed")
    workload = inference_perf(
        [LoadStage(r, d) for r, d in zip(load.rates, load.durations_s, strict=True)],
        SharedPrefixChat(
            num_unique_system_prompts=load.num_system_prompts,
            num_users_per_system_prompt=load.num_prompts // load.num_system_prompts,
            system_prompt_tokens=load.system_tokens,
            question_tokens=load.input_tokens - load.system_tokens,
            output_tokens=load.output_tokens,
            retokenised=TOKENISER_SHARE,
        ),
        between_stages_s=5.0,
        granule_tokens=_BLOCK,
        seed=seed,
    )
    rows, front_ns = run_case(case, fitted, workload, prefix_caching=True)
    first, gaps, whole = latencies_ms(rows, workload, front_ns)
    return {
        "e2e_mean_ms": float(whole.mean()),
        "e2e_p90_ms": float(np.quantile(whole, 0.9)),
        "e2e_p99_ms": float(np.quantile(whole, 0.99)),
        "itl_mean_ms": float(gaps.mean()),
        "ttft_mean_ms": float(first.mean()),
        "ttft_p99_ms": float(np.quantile(first, 0.99)),
    }
