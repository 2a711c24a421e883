"""Fits without a part of the training runs: column B, and how wrong a prediction is where nothing was fitted.

    python -m benchmarks.scoreboard.folds --data FOLDER --fit fit.json --out FOLDER-B

Writes `raw-FAMILY.json`, a fit without any run of a model family, and `held-out.json`: logarithms of measured over
predicted time per output token of training runs, predicted by fits that had not seen them: a quarter of the runs of
each class at a time (their classes were measured), and a family at a time (they were not). Leaving out nothing
must change nothing: the script ends with an error where it does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from benchmarks.scoreboard.fit import (
    PER_CELL,
    Fit,
    Problem,
    read_fit,
    training_cases,
    write_fit,
)

NUM_FOLDS = 4
NUM_STEPS = 3
"""Damped steps from the full fit, with its slopes."""
MOST_CHANGE = 0.005
"""Most that a prediction may move when nothing is left out, at the 95th percentile of all of them."""
_PER_TOKEN = ("tpot_mean_ms", "itl_mean_ms")


def without_families(problem: Problem, fit: Fit) -> Iterator[tuple[str, Fit]]:
    """By family: a fit without its runs, and without scales of its classes; first, as "", without nothing."""
    linear = problem.linearise(fit.logs, problem.cells_array(fit))
    families = np.array([problem.cases[i].family for i in problem.row_case])
    for family in ["", *sorted(set(families.tolist()))]:
        other = problem.refit(linear, fit, families != family, NUM_STEPS)
        own = {key for case in problem.cases if case.family == family for key in case.classes}
        yield family, Fit(other.logs, {n: v for n, v in other.cells.items() if n not in own})


def changes(problem: Problem, fit: Fit, other: Fit) -> np.ndarray:
    """How far predictions of two fits are apart, relatively."""
    errors = [problem.errors(f.logs, problem.cells_array(f)) for f in (fit, other)]
    return np.asarray(np.abs(np.expm1(errors[1] - errors[0])))


def held_out(problem: Problem, fit: Fit, others: Mapping[str, Fit]) -> dict[str, list[float]]:
    """Logarithms of measured over predicted time per token of runs not fitted, by whether classes were measured."""
    is_token = np.array([metric in _PER_TOKEN for _, metric, _ in problem.rows])
    families = np.array([problem.cases[i].family for i in problem.row_case])
    unmeasured = np.zeros(len(families))
    for family, other in others.items():
        mine = families == family
        unmeasured[mine] = -problem.errors(other.logs, problem.cells_array(other))[mine]
    linear = problem.linearise(fit.logs, problem.cells_array(fit))
    # Runs of a class go round the folds, so that every class stays measured.
    fold_of_case = np.zeros(len(problem.cases), dtype=int)
    counts: dict[tuple[str, ...], int] = {}
    for i, case in enumerate(problem.cases):
        counts[case.classes] = counts.get(case.classes, -1) + 1
        fold_of_case[i] = counts[case.classes] % NUM_FOLDS
    fold = fold_of_case[problem.row_case]
    measured = np.zeros(len(families))
    for number in range(NUM_FOLDS):
        other = problem.refit(linear, fit, fold != number, NUM_STEPS)
        mine = fold == number
        measured[mine] = -problem.errors(other.logs, problem.cells_array(other))[mine]
    has_class = np.array([bool(problem.cases[i].classes) for i in problem.row_case])
    return {
        "measured": measured[is_token & has_class].tolist(),
        "unmeasured": unmeasured[is_token].tolist(),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--fit", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--per-class", type=int, default=PER_CELL)
    args = parser.parse_args()
    began = time.perf_counter()
    args.out.mkdir(parents=True, exist_ok=True)
    problem = Problem(training_cases(args.data, per_class=args.per_class))
    fit = read_fit(args.fit)
    others = {}
    for family, other in without_families(problem, fit):
        if family:
            others[family] = other
            write_fit(args.out / f"raw-{family}.json", other)
            print(f"without {family}: {time.perf_counter() - began:.0f} s", flush=True)
            continue
        apart = changes(problem, fit, other)
        high = float(np.quantile(apart, 0.95))
        print(
            f"without nothing: predictions move by {100 * np.median(apart):.3f} % at the median, "
            f"{100 * high:.3f} % at the 95th percentile, {100 * apart.max():.2f} % at most",
            flush=True,
        )
        if high > MOST_CHANGE:
            sys.exit("the fit has not ended: leaving out nothing changes it")
    ratios = held_out(problem, fit, others)
    (args.out / "held-out.json").write_text(json.dumps(ratios))
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
