"""Board: rows of the silicon sample, closed loop on six GPUs and three engines, with AIConfigurator's answers."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.scoreboard.board import OURS, Board, Key, Score
from benchmarks.scoreboard.cases import Case, ClosedLoop
from benchmarks.scoreboard.fits import Columns
from benchmarks.scoreboard.predict_many import (
    WAVES,
    Predictor,
    in_flight,
    predict_disaggregated,
    scales_of,
    traffic,
)
from benchmarks.scoreboard.run_case import answered, latencies_ms, run_case
from benchmarks.scoreboard.silicon_cases import kept_rows, load_cases

from tokenpath.simulate.physics.model import Fitted, load_fitted
from tokenpath.simulate.workload.workload import NO_REQUEST, Workload

BOARD = Board(
    name="silicon",
    title="Silicon sample, fully specified rows of a fixed sixth (closed loop, H100 to GB300)",
    metrics=("tpot_mean_ms", "ttft_mean_ms"),
    targets={"tpot_mean_ms": 0.12, "ttft_mean_ms": 0.25},
)
_BLOCK = 16
LONG_TOKENS = 2**14
"""Output tokens in flight from which a run that is not in machine code takes long: the light loop of the fit
answers then. On the rows that both ran they agree: median difference 0, within 2 % on nine of ten times per
token."""
_RIVALS = {
    "aiconfigurator 0.12": (
        "serving/aic_silicon/rival_aic0.12.csv",
        "aic012_ttft_ms",
        "aic012_tpot_ms",
    ),
    "aisimulate 0.13": (
        "serving/aic_silicon/rival_aisimulate0.13.csv",
        "p_ttft_mean",
        "p_tpot_mean",
    ),
}


def score(data: Path, seed: int, done: frozenset[Key], columns: Columns) -> Iterator[Score]:
    """Ours by simulation, rivals' as stored for the same rows."""
    cases = [case for case in load_cases(data) if case.split == "test"]
    yield from rival_scores(data, cases, done)
    # Those that run in machine code first, then the quick ones.
    for case in sorted(cases, key=lambda c: (c.deployment.engine != "vllm", _work(c))):
        cell = cell_of(case)
        for column, fitted in columns.of(case.family):
            keys = {m: Key(BOARD.name, OURS, column, case.run, m) for m in BOARD.metrics}
            if all(key in done for key in keys.values()):
                continue
            # Column B takes the light loop of the fit, which agrees with the simulator and takes no time.
            run = predict_quickly if column == "B" or is_light(case) else simulate_case
            predicted, reason = answered(run, case, fitted, seed)
            for metric, key in keys.items():
                measured, value = case.measured[metric], predicted.get(metric)
                yield Score(key, measured, value, seed, fitted.version, reason, cell)


def note(data: Path) -> str:
    """What a reader of the table must know of its rows."""
    _, num_twins, num_copies = kept_rows(data)
    cases = [case for case in load_cases(data) if case.split == "test"]
    classes = load_fitted().classes
    num_known = sum(case.classes[0] in classes for case in cases)
    num_apart = sum(case.decode is not None for case in cases)
    num_waits = sum(case.recv_interval > 1 or case.wait_steps > 0 for case in cases)
    num_light = sum(is_light(case) and case.decode is None for case in cases)
    return (
        f"Interpolation inside measured classes: of {len(cases)} test rows {num_known} are of a class (engine, part, "
        "model, storage) that the other five sixths measured too; column B is what an unmeasured model gets. Left out "
        f"of the fit: {num_twins} training rows that repeat a test row and {num_copies} that repeat another training "
        "row (same model, part, engine and lengths, both metrics equal to four digits: one measurement exported "
        f"twice). {num_apart} rows are disaggregated and answered by a closed form, {num_light} by the light loop of "
        f"the fit: {num_waits} whose recipe makes requests wait by settings that the simulator has not, and long ones. "
        "Resampled are cells: class, layout and lengths.\n"
    )


def cell_of(case: Case) -> str:
    """Class, layout and lengths: rows of one cell differ in the requests in flight alone."""
    load = case.load
    return f"{case.classes[0]} {case.tags} {load.input_tokens} {load.output_tokens}"


def is_light(case: Case) -> bool:
    """Whether the light loop of the fit answers: rows that would take long, and those whose recipe makes requests
    wait by settings that the simulator has not (SGLang's receive interval, TensorRT-LLM's batch waiting).
    """
    is_long = case.deployment.engine != "vllm" and _work(case) >= LONG_TOKENS
    return is_long or case.recv_interval > 1 or case.wait_steps > 0


def _work(case: Case) -> int:
    load = case.load
    return load.concurrency * load.output_tokens if isinstance(load, ClosedLoop) else 0


def rival_scores(data: Path, cases: list[Case], done: frozenset[Key]) -> Iterator[Score]:
    """Stored answers; a row that a rival was asked and did not answer counts as not answered."""
    measured = {case.run: case.measured for case in cases}
    cells = {case.run: cell_of(case) for case in cases}
    for system, (file, ttft, tpot) in _RIVALS.items():
        with (data / file).open(encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                for metric, name in (("ttft_mean_ms", ttft), ("tpot_mean_ms", tpot)):
                    key = Key(BOARD.name, system, "stored", row["id"], metric)
                    if row["id"] in measured and key not in done:
                        value = float(row[name]) if row[name] else None
                        reason = None if value else (row.get("err") or "no answer")[:80]
                        actual, cell = measured[row["id"]][metric], cells[row["id"]]
                        yield Score(key, actual, value, reason=reason, cell=cell)


def predict_quickly(case: Case, fitted: Fitted, seed: int) -> dict[str, float]:
    """One row through the loop that the fit uses."""
    return Predictor([case], seed).predict(fitted.logs, scales_of([case], fitted))[0]


def simulate_case(case: Case, fitted: Fitted, seed: int) -> dict[str, float]:
    """One row through the simulator that users run; means in ms."""
    if not isinstance(case.load, ClosedLoop):
        raise TypeError("a closed loop is needed")
    if case.decode is not None:
        return predict_disaggregated(case, fitted)
    _, prompt, _, output, _ = traffic(case, seed)
    workload = closed_loop(in_flight(case.load), prompt, output)
    rows, front_ns = run_case(case, fitted, workload, prefix_caching=False)
    first, gaps, _ = latencies_ms(rows, workload, front_ns)
    skipped = 2 * in_flight(case.load) if case.load.is_steady else 0
    return {
        "ttft_mean_ms": float(first[skipped:].mean()),
        "tpot_mean_ms": float(gaps[skipped:].mean()),
    }


def closed_loop(concurrency: int, prompt: np.ndarray, output: np.ndarray) -> Workload:
    """Requests of given lengths, so many in flight, nothing shared."""
    count = len(prompt)
    zero = np.zeros(count, np.int64)
    return Workload(
        name=f"closed loop of {concurrency}, {WAVES * concurrency} requests",
        state="synthetic",
        arrival_ns=zero,
        prompt_tokens=prompt.astype(np.int64),
        output_tokens=output.astype(np.int64),
        priority=zero,
        after=np.full(count, NO_REQUEST, np.int64),
        think_ns=zero,
        session=np.arange(count, dtype=np.int64),
        hash_start=np.zeros(count + 1, np.int64),
        hashes=np.zeros(0, np.int64),
        hash_granule_tokens=_BLOCK,
        concurrency=concurrency,
    )
