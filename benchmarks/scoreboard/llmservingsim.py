"""LLMServingSim's three vLLM 0.19 runs on RTX PRO 6000: calibrated on half of the requests, scored on the rest.

What is calibrated is the scale of the physics model's parts, on the times of requests. Two halves: every other
request (the same minute is seen by both), and the first half in time (the second is another load). Physics
alone, which knows nothing of this machine, stands beside them. Rival: LLMServingSim's own predictions of all
300 requests, from its validation summary; it was profiled on the machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.scoreboard.board import OURS, Board, Key, Score

from tokenpath.core.model_catalogue import find_model
from tokenpath.engine.config import EngineConfig
from tokenpath.engine.vllm import VllmScheduler
from tokenpath.simulate.calibrate.requests import (
    RequestTimes,
    SimulatedSteps,
    fit_requests,
    simulated_steps,
)
from tokenpath.simulate.calibrate.scaled import PRIOR_SIGMA, ScaledForm
from tokenpath.simulate.deploy import find_gpu
from tokenpath.simulate.loop_run import simulate_workload
from tokenpath.simulate.physics.deployment import Deployment
from tokenpath.simulate.physics.model import physics_model
from tokenpath.simulate.replica import Replica
from tokenpath.simulate.step_model import StepCurve
from tokenpath.simulate.workload.files import read_workload
from tokenpath.simulate.workload.workload import Workload

BOARD = Board(
    name="llmservingsim",
    title="LLMServingSim's vLLM 0.19 runs (RTX PRO 6000, ShareGPT), calibrated on half",
    metrics=("tpot_mean_ms", "e2e_mean_ms", "ttft_mean_ms"),
    targets={"tpot_mean_ms": 0.03, "e2e_mean_ms": 0.03},
)
RUNS = {
    "RTXPRO6000__Llama-3.1-8B": "sharegpt-llama-3.1-8b-300-sps10.jsonl",
    "RTXPRO6000__Qwen3-30B-A3B-Instruct-2507": "sharegpt-qwen3-30b-a3b-300-sps10.jsonl",
    "RTXPRO6000__Qwen3-32B": "sharegpt-qwen3-32b-300-sps10.jsonl",
}
"""Folder of each run, and its workload."""
HALVES = ("A", "later half", "physics alone")
"""Fitted on every other request; on the first half in time; on nothing."""
_GPU = "rtx-pro-6000-server"
_NUM_BLOCKS = 20_000
"""More than the runs ever need at once (`running` reaches max_num_seqs without KV pressure)."""
_RIVAL = "llmservingsim"
_SUMMARY = {"TTFT Mean": "ttft_mean_ms", "TPOT Mean": "tpot_mean_ms", "Latency Mean": "e2e_mean_ms"}


def score(data: Path, seed: int, done: frozenset[Key]) -> Iterator[Score]:
    """Scores of all runs."""
    del seed  # Nothing here is drawn.
    for run in RUNS:
        yield from _rival(data, run)
        for column in HALVES:
            keys = {m: Key(BOARD.name, OURS, column, run, m) for m in BOARD.metrics}
            if not done.issuperset(keys.values()):
                for metric, (measured, predicted) in figures(data, run, column).items():
                    yield Score(keys[metric], measured, predicted)


def figures(data: Path, run: str, column: str) -> dict[str, tuple[float, float]]:
    """(measured, predicted) of the requests that were not fitted."""
    workload, measured = read_run(data, run)
    index = np.arange(workload.num_requests)
    form = ScaledForm(physics(data, run))
    simulate = simulator(workload, data, run)
    if column == "physics alone":
        return compared(measured, simulate(form.base).times, index >= 0)
    fitted = index % 2 == 0 if column == "A" else index < len(index) // 2
    fit = fit_requests(
        measured, simulate, form, form.unscaled(), use=fitted, prior_sigma=PRIOR_SIGMA
    )
    return compared(measured, simulate(fit.curve).times, ~fitted)


def physics(data: Path, run: str) -> StepCurve:
    """What the physics model says of the deployment."""
    stated = _engine_settings(data, run)
    dp = stated["data_parallel_size"]
    at = Deployment(
        find_model(stated["model"]),
        find_gpu(_GPU),
        tp=stated["tensor_parallel_size"],
        dp=dp,
        ep=dp if stated["enable_expert_parallel"] else 1,
    )
    return physics_model(at).curve


def _engine_settings(data: Path, run: str) -> dict[str, Any]:
    meta = data / "serving" / "llmservingsim" / "bench" / run / "vllm__meta.json"
    settings: dict[str, Any] = json.loads(meta.read_text("utf-8"))["engine_kwargs"]
    return settings


def read_run(data: Path, run: str) -> tuple[Workload, RequestTimes]:
    """The workload as it was sent, and what vLLM did with it."""
    folder = data / "serving" / "llmservingsim"
    workload = read_workload(folder / "workloads" / RUNS[run]).workload
    text = (folder / "bench" / run / "vllm__requests.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in text.splitlines()]

    def column(name: str) -> np.ndarray:
        return np.array([row[name] for row in rows])

    sent = column("arrival_time")
    # Two clocks: the shortest way from the client to the queue is taken as no time.
    offset = (column("queued_ts") - sent).min()
    begin = sent[0] + offset

    def ns(times: np.ndarray) -> np.ndarray:
        return np.round((times - begin) * 1e9).astype(np.int64)

    at = ns(sent + offset)
    sent_as = Workload(
        **{name: getattr(workload, name) for name in Workload.__dataclass_fields__}
        | {"arrival_ns": at}
    )
    times = RequestTimes(
        queued_ns=at,
        scheduled_ns=ns(column("scheduled_ts")),
        first_token_ns=ns(column("first_token_ts")),
        last_token_ns=ns(column("last_token_ts")),
        output_tokens=column("output_toks").astype(np.int64),
    )
    return sent_as, times


def simulator(workload: Workload, data: Path, run: str):
    """A function from a curve to simulated steps, with the settings that the run states."""
    stated = _engine_settings(data, run)
    config = EngineConfig(
        num_blocks=_NUM_BLOCKS,
        max_num_batched_tokens=stated["max_num_batched_tokens"],
        max_num_seqs=stated["max_num_seqs"],
        max_model_len=131_072,
    )

    def simulate(curve: StepCurve) -> SimulatedSteps:
        ranks = [VllmScheduler(config) for _ in range(stated["data_parallel_size"])]
        done = simulate_workload(workload, [Replica(ranks, curve)], detail="request")
        return simulated_steps(done.rows)

    return simulate


def compared(
    measured: RequestTimes, simulated: RequestTimes, mask: np.ndarray
) -> dict[str, tuple[float, float]]:
    """Mean of each latency over the marked requests, ms."""
    found = {}
    for name in ("tpot", "e2e", "ttft"):
        pair = [
            float(np.nanmean(getattr(times, f"{name}_ns")()[mask])) / 1e6
            for times in (measured, simulated)
        ]
        found[f"{name}_mean_ms"] = (pair[0], pair[1])
    return found


def _rival(data: Path, run: str) -> Iterator[Score]:
    path = data / "serving" / "llmservingsim" / "bench" / run / "validation__summary.txt"
    for line in path.read_text("utf-8").splitlines():
        match = re.match(r"(\w+ Mean)\s+([\d.]+)\s+([\d.]+)", line)
        if match and match[1] in _SUMMARY:
            key = Key(BOARD.name, _RIVAL, "profiled", run, _SUMMARY[match[1]])
            yield Score(key, float(match[2]), float(match[3]))


if __name__ == "__main__":
    import sys

    for found in score(Path(sys.argv[1]), 0, frozenset()):
        print(found.key.run, found.key.system, found.key.column, found.key.metric, found.relative)
