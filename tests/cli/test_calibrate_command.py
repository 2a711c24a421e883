"""`tokenpath calibrate` says what a step costs and how wrong that is, and writes the model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from running import process, tokenpath

from simulate.calibrate.invented_engine import TRUE, capture, features
from tokenpath.capture.parquet import write_capture
from tokenpath.simulate.calibrate import read_model


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three runs of one engine, 3 % apart in speed."""
    paths = []
    for number, speed in enumerate((0.97, 1.0, 1.03)):
        random = np.random.default_rng(number)
        table = features(random, 150)
        cost = TRUE.step_ns(table) * speed * random.lognormal(0, 0.05, 150)
        paths.append(tmp_path_factory.mktemp("runs") / f"run{number}")
        write_capture(capture(table, cost, requests=True), paths[-1])
    return paths


def test_the_answer_fits_a_terminal(runs: list[Path], tmp_path: Path) -> None:
    result = process("calibrate", *runs, "--to", tmp_path / "model.json")
    assert (result.code, result.stderr) == (0, "")
    assert "each of 3 runs left out" in result.stdout
    assert "1,000 prefill tokens" in result.stdout
    *lines, last = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert str(tmp_path / "model.json") in last
    assert read_model(tmp_path / "model.json").num_runs == 3


def test_json_is_the_report(runs: list[Path]) -> None:
    result = tokenpath("calibrate", "--json", runs[0])
    document = json.loads(result.stdout)
    found = document["facts"]["calibration"]
    assert document["verb"] == "calibrate"
    assert found["num_steps"] == 150
    assert found["error"]["mean_abs_relative"] == pytest.approx(0.04, rel=0.3)


def test_what_cannot_be_fitted_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    few = features(np.random.default_rng(0), 5)
    write_capture(capture(few, TRUE.step_ns(few)), tmp_path / "few")
    result = tokenpath("calibrate", tmp_path / "few")
    assert result.code == 2
    assert "5 steps to calibrate on" in result.stderr
    assert "next: record a longer run" in result.stderr


def test_a_model_that_cannot_be_written_is_an_error(runs: list[Path]) -> None:
    result = tokenpath("calibrate", runs[0], "--to", "/no/such/folder/model.json")
    assert result.code == 2
    assert "cannot write" in result.stderr
