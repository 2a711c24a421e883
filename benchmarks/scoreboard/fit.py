"""Fit the efficiencies: Gauss-Newton on logarithms of predicted over measured, with priors, robustly.

    python benchmarks/scoreboard/fit.py --data FOLDER --out src/tokenpath/simulate/physics/fitted.json

Maximum a posteriori: every logarithm has a normal prior (`physics.efficiency`), residuals are Student-t with
`_FREEDOM` degrees (Lange, Little, Taylor 1989), so a wrong row cannot pull. Classes of deployment (`Case.classes`)
have four corrections of their own with priors around 0, which shrinks those of few rows, and so have releases
of their engine within them. Nothing of the evaluation splits is read here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from benchmarks.scoreboard import blis_cases, silicon_cases
from benchmarks.scoreboard.cases import Case, ClosedLoop
from benchmarks.scoreboard.predict_many import Curves, Predictor

from tokenpath.simulate.physics.efficiency import (
    PRIORS,
    SCALE_SPREADS,
    SCALES,
    parameter_names,
    prior,
)

SIGMAS = {
    "tpot_mean_ms": 0.08,
    "itl_mean_ms": 0.03,
    "e2e_mean_ms": 0.04,
    "ttft_mean_ms": 0.20,
}
"""What a run's logarithm may be off by before it counts: spread of repeats and of unmodelled traffic."""
STAGED_TTFT_SIGMA = 0.08
_FREEDOM = 4.0
_CLASS_SLASHES = 3
_RELEASE = 0.6
"""Spread of a release's own scales over that of a class."""
_STEP = 0.04
_MOST_MOVE = 0.7
_STANDSTILL = 0.05
"""Gain of the objective that is none."""
MAX_CONCURRENCY = 256
PER_CELL = 16


@dataclass
class Fit:
    """Where the fit is."""

    logs: dict[str, float]
    """By parameter name."""
    cells: dict[str, list[float]] = field(default_factory=dict)
    """Logarithms of the four scales, by cell."""
    history: list[float] = field(default_factory=list)
    """Objective after each iteration."""


def training_cases(data: Path, *, sample: bool = True, per_class: int = PER_CELL) -> list[Case]:
    """Cases that may be fitted to."""
    cases = [c for c in blis_cases.load_cases(data) if c.split == "train"]
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in silicon_cases.load_cases(data):
        light = isinstance(case.load, ClosedLoop) and case.load.concurrency <= MAX_CONCURRENCY
        if case.split == "train" and (light or case.decode is not None):
            groups[case.classes[-1]].append(case)
    for cell in sorted(groups):
        ordered = sorted(groups[cell], key=lambda c: hashlib.sha1(c.run.encode()).hexdigest())
        cases += ordered[:per_class] if sample else ordered
    return cases


@dataclass(frozen=True)
class Linear:
    """Slopes of the errors at a point."""

    active: list[str]
    """Parameters of the first columns; those of the cells follow, four each."""
    slopes: np.ndarray
    """[values, columns]: change of an error per change of a logarithm."""
    spreads: np.ndarray
    """[columns]: of the priors."""


class Problem:
    """Residuals of the training cases as a function of parameters."""

    def __init__(self, cases: Sequence[Case]) -> None:
        """Prepare predictions; a residual is (case, metric)."""
        self.predictor = Predictor(cases, shorten=4.0)
        self.cases = self.predictor.cases
        self.names = parameter_names()
        self.cell_names = sorted({key for c in self.cases for key in c.classes})
        index = {name: k for k, name in enumerate(self.cell_names)}
        # Class and release of each case; -1: none.
        self.cells_of = np.array(
            [[*(index[key] for key in c.classes), -1, -1][:2] for c in self.cases]
        )
        is_release = np.array([name.count("/") > _CLASS_SLASHES for name in self.cell_names])
        self.spreads = (
            np.array(SCALE_SPREADS)[None, :] * np.where(is_release, _RELEASE, 1.0)[:, None]
        )
        self.rows = [
            (i, metric, self._sigma(case, metric))
            for i, case in enumerate(self.cases)
            for metric in case.measured
            if metric.split(":")[-1] in SIGMAS
        ]
        self.row_case = np.array([i for i, _, _ in self.rows])
        self.sigma = np.array([s for _, _, s in self.rows])
        self.measured = np.array([self.cases[i].measured[m] for i, m, _ in self.rows])

    @staticmethod
    def _sigma(case: Case, metric: str) -> float:
        name = metric.split(":")[-1]
        if name == "ttft_mean_ms" and not isinstance(case.load, ClosedLoop):
            return STAGED_TTFT_SIGMA
        if case.decode is not None and name == "ttft_mean_ms":
            return 2 * SIGMAS[name]
        return SIGMAS[name]

    def errors(self, logs: dict[str, float], cells: np.ndarray) -> np.ndarray:
        """Logarithms of predicted over measured."""
        return self._errors(self._curves(logs, cells), None)

    def _curves(self, logs: dict[str, float], cells: np.ndarray) -> Curves:
        padded = np.vstack([cells, np.zeros((1, len(SCALES)))])
        scales = padded[self.cells_of[:, 0]] + padded[self.cells_of[:, 1]]
        return self.predictor.curves(logs, scales)

    def _errors(self, curves: Curves, only: np.ndarray | None) -> np.ndarray:
        """NaN outside `only`, a mask of cases."""
        out = self.predictor.run(curves, only)
        predicted = np.array([out[i].get(m, np.nan) for i, m, _ in self.rows])
        return np.asarray(np.log(predicted / self.measured))

    def linearise(self, logs: dict[str, float], cells: np.ndarray) -> Linear:
        """Slopes by forward differences.

        A factor of an engine, generation or release adds to the logarithm of its number, so where it holds its
        slope is the number's own; cases whose curves a number does not move are not run.
        """
        origin = self._curves(logs, cells)
        base = self._errors(origin, None)
        active = [n for n in self.names if self._matters(n)]
        num = len(active)
        slopes = np.zeros((len(base), num + len(self.cell_names) * len(SCALES)))
        for name in PRIORS:
            moved = dict(logs)
            moved[name] = moved.get(name, prior(name)[0]) + _STEP
            slope = self._slope(origin, self._curves(moved, cells), base)
            for k, part in enumerate(active):
                stem, _, group = part.partition("|")
                if stem == name:
                    slopes[:, k] = slope * (self._members(group) if group else 1.0)
        # Every case has one class: all are moved at once and the columns told apart after. Its release
        # acts on it in the same way.
        owners = self.cells_of[self.row_case]
        for j in range(len(SCALES)):
            moved_cells = cells.copy()
            moved_cells[~self._is_release(), j] += _STEP
            slope = self._slope(origin, self._curves(logs, moved_cells), base)
            for c in range(len(self.cell_names)):
                mine = (owners == c).any(axis=1)
                slopes[mine, num + c * len(SCALES) + j] = slope[mine]
        spreads = np.concatenate([[prior(n)[1] for n in active], self.spreads.ravel()])
        return Linear(active, slopes, spreads)

    def _slope(self, origin: Curves, moved: Curves, base: np.ndarray) -> np.ndarray:
        change = self._errors(moved, origin.differ(moved)) - base
        return np.asarray(np.nan_to_num(change) / _STEP)

    def _members(self, group: str) -> np.ndarray:
        """Mask of the values whose case belongs to an engine, generation or release."""
        front = self.predictor.front
        found = [
            group in members
            for members in zip(front.engines, front.generations, front.releases, strict=True)
        ]
        return np.asarray(np.array(found)[self.row_case])

    def step(
        self,
        linear: Linear,
        logs: dict[str, float],
        cells: np.ndarray,
        keep: np.ndarray | None = None,
    ) -> tuple[dict[str, float], np.ndarray, float]:
        """One damped Gauss-Newton step with given slopes; `keep` masks the values that count."""
        mask = np.ones(len(self.sigma), dtype=bool) if keep is None else keep
        base, sigma = self.errors(logs, cells)[mask], self.sigma[mask]
        root = np.sqrt((_FREEDOM + 1) / (_FREEDOM + (base / sigma) ** 2)) / sigma
        means = np.array([prior(n)[0] for n in linear.active])
        now = np.array([logs.get(n, prior(n)[0]) for n in linear.active])
        offset = np.concatenate([now - means, cells.ravel()])
        rows = np.vstack([linear.slopes[mask] * root[:, None], np.diag(1 / linear.spreads)])
        goal = np.concatenate([-base * root, -offset / linear.spreads])
        move, *_ = np.linalg.lstsq(rows, goal, rcond=None)
        best = (logs, cells, self._objective(base, sigma, logs, cells))
        for share in (1.0, 0.5, 0.25, 0.1, 0.03):
            trial, trial_cells = self._moved(logs, cells, linear, share * move)
            errors = self.errors(trial, trial_cells)[mask]
            value = self._objective(errors, sigma, trial, trial_cells)
            if value < best[2]:
                return trial, trial_cells, value
        return best

    def refit(self, linear: Linear, fit: Fit, keep: np.ndarray, steps: int) -> Fit:
        """The fit to the values in the mask `keep` alone: damped steps from a fit that has ended.

        All with the slopes `linear` at that fit (a chord method): residuals and their weights are made anew.
        """
        logs, cells = fit.logs, self.cells_array(fit)
        for _ in range(steps):
            logs, cells, _ = self.step(linear, logs, cells, keep)
        return self._fit(logs, cells, [])

    def cells_array(self, fit: Fit) -> np.ndarray:
        """[cells, scales] of a fit; 0 for cells that it has not."""
        return np.array([fit.cells.get(n, [0.0] * len(SCALES)) for n in self.cell_names])

    def _moved(
        self, logs: dict[str, float], cells: np.ndarray, linear: Linear, move: np.ndarray
    ) -> tuple[dict[str, float], np.ndarray]:
        bounded = np.clip(move, -_MOST_MOVE, _MOST_MOVE)
        trial = dict(logs)
        for k, name in enumerate(linear.active):
            trial[name] = logs.get(name, prior(name)[0]) + float(bounded[k])
        return trial, cells + bounded[len(linear.active) :].reshape(cells.shape)

    def _is_release(self) -> np.ndarray:
        return np.array([name.count("/") > _CLASS_SLASHES for name in self.cell_names], dtype=bool)

    def _matters(self, name: str) -> bool:
        group = name.partition("|")[2]
        stacks = [self.predictor.front] + ([self.predictor.back] if self.predictor.back else [])
        return not group or any(group in (*s.engines, *s.generations, *s.releases) for s in stacks)

    def _objective(
        self, errors: np.ndarray, sigma: np.ndarray, logs: dict[str, float], cells: np.ndarray
    ) -> float:
        scaled = errors / sigma
        data = float(np.sum((_FREEDOM + 1) / 2 * np.log1p(scaled**2 / _FREEDOM)))
        before = sum(((v - prior(n)[0]) / prior(n)[1]) ** 2 for n, v in logs.items()) / 2
        return data + before + float(np.sum((cells / self.spreads) ** 2)) / 2

    def solve(
        self,
        iterations: int,
        start: Fit | None = None,
        *,
        say: bool = True,
        checkpoint: Path | None = None,
    ) -> Fit:
        """Iterate until the objective stands still."""
        logs = dict(start.logs) if start else {}
        cells = self.cells_array(start or Fit({}))
        history: list[float] = []
        for _ in range(iterations):
            before = {n: logs.get(n, prior(n)[0]) for n in self.names}
            logs, cells, value = self.step(self.linearise(logs, cells), logs, cells)
            moves = [abs(logs.get(n, b) - b) / prior(n)[1] for n, b in before.items()]
            if say:
                print(f"  objective {value:.2f}, largest move {max(moves):.3f} spreads", flush=True)
            is_still = bool(history) and history[-1] - value < _STANDSTILL
            history.append(value)
            if checkpoint is not None:
                write_fit(checkpoint, self._fit(logs, cells, history))
            if is_still:
                break
        return self._fit(logs, cells, history)

    def _fit(self, logs: dict[str, float], cells: np.ndarray, history: list[float]) -> Fit:
        found = {
            name: [round(float(v), 4) for v in cells[k]] for k, name in enumerate(self.cell_names)
        }
        return Fit({n: round(v, 5) for n, v in logs.items()}, found, list(history))


def write_fit(path: Path, fit: Fit) -> None:
    """Write a fit, for `read_fit`."""
    entry = {"logs": fit.logs, "cells": fit.cells, "objective": fit.history}
    path.write_text(json.dumps(entry, indent=1))


def read_fit(path: Path) -> Fit:
    """A fit as written here; numbers that are no parameters any more are passed over."""
    entry = json.loads(path.read_text("utf-8"))
    known = set(parameter_names())
    return Fit({n: v for n, v in entry["logs"].items() if n in known}, entry["cells"])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="fit to start from")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument(
        "--per-class", type=int, default=PER_CELL, help="runs of a class and release"
    )
    args = parser.parse_args()
    began = time.perf_counter()
    problem = Problem(training_cases(args.data, per_class=args.per_class))
    print(f"{len(problem.cases)} runs, {len(problem.rows)} values, {len(problem.cell_names)} cells")
    start = read_fit(args.start) if args.start else None
    fit = problem.solve(args.iterations, start, checkpoint=args.out)
    write_fit(args.out, fit)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
