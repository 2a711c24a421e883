"""Measured runs of the scoreboard, a few of each: the cases are read whole, and predictions stay near."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from benchmarks.scoreboard import blis_cases, silicon_cases
from benchmarks.scoreboard.predict_many import Predictor, scales_of

from tokenpath.simulate.physics.model import load_fitted

_REASON = "TOKENPATH_REFERENCE_DATA names no folder of measured sets"


@pytest.fixture(scope="module")
def data() -> Path:
    folder = os.environ.get("TOKENPATH_REFERENCE_DATA")
    if folder is None or not (Path(folder) / silicon_cases.FILE).exists():
        pytest.skip(_REASON)
    return Path(folder)


def median_error(cases: list[blis_cases.Case], metric: str) -> float:
    fitted = load_fitted()
    out = Predictor(cases).predict(fitted.logs, scales_of(cases, fitted))
    errors = [o[metric] / c.measured[metric] - 1 for c, o in zip(cases, out, strict=True)]
    return float(np.median(np.abs(errors)))


def test_no_run_is_both_fitted_to_and_scored(data: Path) -> None:
    cases = [*blis_cases.load_cases(data), *silicon_cases.load_cases(data)]
    assert Counter(case.split for case in cases)["test"] == 26 + 475
    seen = {tuple(sorted(c.measured.items())) for c in cases if c.split == "test"}
    assert not [
        c.run for c in cases if c.split == "train" and tuple(sorted(c.measured.items())) in seen
    ]
    # The training set repeats evaluation runs stage by stage, under other names.
    staged = {
        round(value, 3)
        for c in cases
        if c.split == "test"
        for name, value in c.measured.items()
        if name.endswith("e2e_mean_ms")
    }
    again = [
        c.run
        for c in cases
        if c.split == "train"
        for name, value in c.measured.items()
        if name.endswith("e2e_mean_ms") and round(value, 3) in staged
    ]
    assert not again


def test_layouts_of_rows_are_those_of_machines(data: Path) -> None:
    for case in silicon_cases.load_cases(data):
        at = case.deployment
        if case.tags["mode"] == "agg" and not at.hardware.key.startswith("gb"):
            assert at.num_ranks <= 8, case.run
        assert at.num_ranks % at.ep == 0, case.run


def test_predictions_stay_near_what_was_measured(data: Path) -> None:
    blis = [c for c in blis_cases.load_cases(data) if c.split == "test"][::4]
    # Goals are 0.06 and 0.055: missed since the form of the model is chosen without these runs (docs/scoreboard.md).
    assert median_error(blis, "e2e_mean_ms") < 0.10
    assert median_error(blis, "itl_mean_ms") < 0.08
    assert median_error(blis, "ttft_mean_ms") < 0.13
    silicon = [
        c for c in silicon_cases.load_cases(data) if c.split == "test" and c.tags["mode"] == "agg"
    ][::5]
    assert median_error(silicon, "tpot_mean_ms") < 0.12
    assert median_error(silicon, "ttft_mean_ms") < 0.25
