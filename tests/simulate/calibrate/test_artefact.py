"""The artefact comes back as it was written, and nothing else is taken for one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from invented_engine import TRUE, capture, features

from tokenpath.core.errors import DamagedInput
from tokenpath.simulate.calibrate import (
    CalibratedStepModel,
    fit_steps,
    from_json,
    read_model,
    to_json,
)


@pytest.fixture(scope="module")
def model() -> CalibratedStepModel:
    random = np.random.default_rng(0)
    table = features(random, 120)
    cost = TRUE.step_ns(table) * random.lognormal(0, 0.05, 120)
    return fit_steps(capture(table, cost, requests=True))


def test_a_model_comes_back_whole(model, tmp_path):
    text = to_json(model)
    place = tmp_path / "model.json"
    place.write_text(text, "utf-8")
    again = read_model(place)
    assert to_json(again) == text
    table = features(np.random.default_rng(1), 50)
    assert np.array_equal(again.curve.step_ns(table), model.curve.step_ns(table))
    assert again.error == model.error
    assert again.overheads == model.overheads
    assert again.speed == model.speed
    assert again.noise == model.noise is not None


def test_a_model_written_before_noise_was_known_has_none(model):
    content = json.loads(to_json(model))
    del content["noise"]
    assert from_json(json.dumps(content)).noise is None


def test_the_artefact_names_its_sources_and_version(model):
    content = json.loads(to_json(model))
    assert content["version"] == 1
    assert content["sources"][0]["sha256"] == "ab" * 32
    assert content["error"]["num_steps"] == 120
    assert "run.steps.jsonl.gz" in content["origin"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.pop("format"), "no step model"),
        (lambda c: c.update(version=9), "version 9"),
        (lambda c: c["curve"].update(knots=[2.0, 1.0]), "knots must ascend"),
        (lambda c: c["curve"].update(mixed_ns=[1.0]), "2 numbers expected"),
        (lambda c: c["curve"].update(is_overlapped=0), "true or false"),
        (lambda c: c.pop("draws"), "draws"),
        (lambda c: c["error"].pop("num_steps"), "num_steps"),
        (lambda c: c["speed"].update(colour="red"), "colour"),
    ],
)
def test_what_is_damaged_is_refused(model, change, says):
    content = json.loads(to_json(model))
    change(content)
    with pytest.raises(DamagedInput, match=says):
        from_json(json.dumps(content))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"x"', "null", "[" * 10**5])
def test_what_is_no_object_is_refused(text):
    with pytest.raises(DamagedInput, match="step model"):
        from_json(text)


def test_a_missing_file_and_a_number_that_is_none(model, tmp_path):
    with pytest.raises(DamagedInput, match="cannot be read"):
        read_model(tmp_path / "none.json")
    text = to_json(model).replace('"host_ns": 0.0', '"host_ns": Infinity', 1)
    with pytest.raises(DamagedInput, match="not finite"):
        from_json(text)


def test_samples_are_other_runs_of_the_same_machine(model):
    random = np.random.default_rng(2)
    table = features(random, 50)
    mine = model.curve.step_ns(table).sum()
    ratios = [np.log(model.sample(random).step_ns(table).sum() / mine) for _ in range(400)]
    assert abs(np.mean(ratios)) < 0.02
    assert model.speed.sigma * 0.8 < np.std(ratios) < model.speed.sigma * 2
