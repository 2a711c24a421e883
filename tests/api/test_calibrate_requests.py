"""A load generator's results scale physics until requests take as long as they did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tokenpath import api
from tokenpath.capture.capture import Capture, build_table
from tokenpath.core.errors import InputError
from tokenpath.simulate.calibrate import from_json, scale_curve, to_json
from tokenpath.simulate.deploy import deploy
from tokenpath.simulate.scenario import Scenario
from tokenpath.simulate.workload.workload import NO_REQUEST, Workload

SCENARIO = Scenario(model="meta-llama/Llama-3.1-8B-Instruct", gpu="H100-SXM5-80GB")
NUM = 60


def workload() -> Workload:
    random = np.random.default_rng(0)
    return Workload(
        name="invented",
        state="synthetic",
        arrival_ns=np.cumsum(random.exponential(1.6e8, NUM)).astype(np.int64),
        prompt_tokens=random.integers(50, 2000, NUM),
        output_tokens=random.integers(2, 60, NUM),
        priority=np.zeros(NUM, np.int64),
        after=np.full(NUM, NO_REQUEST),
        think_ns=np.zeros(NUM, np.int64),
        session=np.arange(NUM),
        hash_start=np.zeros(NUM + 1, np.int64),
        hashes=np.empty(0, np.int64),
        hash_granule_tokens=16,
    )


def results(slower: float) -> Capture:
    """What a client would have seen of an engine that takes `slower` times as long a step."""
    work = workload()
    deployed = deploy(SCENARIO, work)
    ran = deployed.run(work, scale_curve(deployed.step_model.curve, slower)).capture
    table = ran["request"]
    mine = table.filter([name == "client" for name in table["observer"].to_pylist()])
    columns = {name: mine[name] for name in mine.column_names if name != "observer"}
    assert mine.num_rows == NUM
    return Capture(
        {
            "request": build_table("request", {**columns, "observer": ["client"] * NUM}),
            "source": ran["source"],
        }
    )


@pytest.mark.parametrize("slower", [1.0, 1.4])
def test_the_scale_of_physics_is_found(slower: float) -> None:
    found = api.calibrate([results(slower)], scenario=SCENARIO)
    model = found.model
    assert model.error.measured_on == "every other request left out"
    assert model.error.mean_abs_relative < 0.05
    assert abs(model.error.bias_relative) < 0.03
    deployed = deploy(SCENARIO, workload())
    table = np.array([[0, 0, 0, 0, 8, 8, 8000], [1, 900, 0, 405_450, 4, 4, 4000]], float)
    assert model.curve.step_ns(table) == pytest.approx(
        slower * deployed.step_model.curve.step_ns(table), rel=0.03
    )
    assert "a request's time per output token" in found.report.answer[0]
    assert to_json(from_json(to_json(model))) == to_json(model)


def test_results_without_a_scenario_say_what_is_missing() -> None:
    with pytest.raises(InputError, match="no step with known requests"):
        api.calibrate([results(1.0)])


def test_too_few_requests_are_an_error() -> None:
    capture = results(1.0)
    few = capture.replace({"request": capture["request"].slice(0, 8)})
    with pytest.raises(InputError, match="requests with a first and a last token"):
        api.calibrate([few], scenario=replace(SCENARIO))
