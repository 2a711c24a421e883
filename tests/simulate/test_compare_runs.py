"""Before and after, paired by request; and no difference where chance explains it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulate.loop.small_engines import workload
from tokenpath.api.simulate import simulate_from
from tokenpath.capture.capture import Capture
from tokenpath.capture.parquet import write_capture
from tokenpath.engine.config import EngineConfig
from tokenpath.engine.vllm import VllmScheduler
from tokenpath.simulate.compare import compare, comparison_answer, comparison_table
from tokenpath.simulate.loop_run import simulate_workload
from tokenpath.simulate.recorder_tables import RunFacts, capture_of_run
from tokenpath.simulate.replica import Replica
from tokenpath.simulate.step_model import NUM_FEATURES, StepCurve
from tokenpath.simulate.workload.from_capture import workload_from_capture
from tokenpath.simulate.workload.transform import first
from tokenpath.simulate.workload.workload import Workload

SETTINGS = {"num_blocks": "400", "max_num_seqs": "16", "max_num_batched_tokens": "256"}
NAMES = tuple(f"chat-{n:03d}" for n in range(80))


def _recording(noise_seed: int | None = 0, max_num_seqs: int = 16) -> Capture:
    """A run whose steps take 5 to 30 ms, each with noise."""
    random = np.random.default_rng(1)
    load = workload(
        np.cumsum(random.integers(0, 60_000_000, 80)),
        random.integers(10, 200, 80),
        random.integers(5, 60, 80),
    )
    load = Workload(**{**{n: getattr(load, n) for n in load.__slots__}, "request_ids": NAMES})
    factors = None
    if noise_seed is not None:
        factors = np.random.default_rng(noise_seed).lognormal(0, 0.15, (2, 500))
    curve = StepCurve(
        np.array([1.0, 2.0]),
        np.array([8e6, 8e6]),
        np.array([5e6, 5e6]),
        np.array([0, 5e4, 0, 0, 2e5, 0, 10.0]),
        0.0,
        np.zeros(NUM_FEATURES),
        False,
        noise=factors,
    )
    config = EngineConfig(
        400, max_num_seqs=max_num_seqs, max_num_batched_tokens=256, max_model_len=400
    )
    done = simulate_workload(load, [Replica([VllmScheduler(config, is_compiled=False)], curve)])
    facts = RunFacts("run", "vllm", [400], settings=SETTINGS)
    return capture_of_run(done.rows, load, facts, tokens=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "run"
    write_capture(_recording(), path)
    return path


def test_a_workload_keeps_the_ids_of_its_recording() -> None:
    found = workload_from_capture(_recording()).workload
    assert found.request_ids == NAMES
    assert first(found, 3).request_ids == NAMES[:3]


def test_a_what_if_is_paired_and_finds_a_difference(folder: Path) -> None:
    before, after = simulate_from([folder], ["max_num_batched_tokens=40"], num_draws=8)
    assert after is not None
    assert len(before.draws) == len(after.draws) == 8
    ids = before.capture.codes("request", "request_id")[1]
    assert set(ids) == set(NAMES)
    found = compare(before.capture, after.capture, draws=(before.draws, after.draws))
    assert found.is_paired
    assert found.num_requests == (80, 80)
    by_name = {(d.latency, d.statistic): d for d in found.differences}
    assert by_name["ttft", "mean"].is_shown
    assert by_name["ttft", "mean"].interval.low > 0
    table = next(t for t in after.report.tables if t.key == "what_if")
    assert "8 paired draws" in str(table.note)
    # How far the calibrated run is from the recording is paired as well.
    residual = next(t for t in before.report.tables if t.key == "residual")
    assert "the same requests" in str(residual.note)


def test_a_setting_that_changes_nothing_makes_no_difference(folder: Path) -> None:
    before, after = simulate_from([folder], ["max_num_seqs=17"], num_draws=8)
    assert after is not None
    assert "No difference" in after.report.answer[0]
    assert compare(before.capture, after.capture).is_paired


def test_two_repeats_of_one_run_show_no_difference_of_their_means() -> None:
    found = compare(_recording(3), _recording(4))
    assert found.is_paired
    shown = [d for d in found.differences if d.statistic == "mean" and d.is_shown]
    assert len(shown) <= 1
    assert comparison_table(found).rows


def test_draws_that_disagree_outweigh_requests_that_agree() -> None:
    run, slower = _recording(None), _recording(None, max_num_seqs=2)
    sure = compare(run, slower)
    assert next(d for d in sure.differences if d.latency == "ttft").is_shown
    names = [f"{s}_{x}_ns" for x in ("ttft", "tpot", "e2e") for s in ("mean", "p50", "p90", "p99")]
    ours = [dict.fromkeys(names, 1e9)] * 10
    theirs = [dict.fromkeys(names, 1e9 + way * 10**12) for way in (-1, 1) * 5]
    unsure = compare(run, slower, draws=(ours, theirs))
    assert unsure.num_draws == 10
    assert comparison_answer(unsure) == (
        "No difference between A and B that chance alone does not explain.",
    )


def test_runs_of_other_requests_are_not_paired() -> None:
    whole = _recording()
    others = whole.replace({"request": whole["request"].slice(0, 40)})
    assert not compare(whole, others).is_paired
    nearly = whole.replace({"request": whole["request"].slice(0, 76)})
    assert compare(whole, nearly).num_requests == (76, 76)
