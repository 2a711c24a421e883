"""Speculative decoding: acceptance by position, rounds, and what steps compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from small_engines import FirstCome, curve, workload

from tokenpath.core.errors import UsageError
from tokenpath.simulate.loop_run import simulate_workload
from tokenpath.simulate.replica import Replica, ReplicaSettings
from tokenpath.simulate.speculation import Acceptance, SpeculationSettings, Speculator

ALL, NONE = Acceptance((1.0, 1.0, 1.0)), Acceptance((0.0, 0.0, 0.0))


def test_the_mean_length_is_one_and_what_all_drafts_up_to_each_add() -> None:
    assert Acceptance((0.8, 0.5)).mean_length == pytest.approx(1 + 0.8 + 0.4)
    assert Acceptance((0.8, 0.5)).with_drafts(4).by_position == (0.8, 0.5, 0.5, 0.5)
    assert Acceptance((0.8, 0.5)).with_drafts(1).mean_length == pytest.approx(1.8)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_lengths_give_the_acceptance_back(chances: list[float]) -> None:
    acceptance = Acceptance(tuple(chances))
    lengths = [acceptance.with_drafts(number + 1).mean_length for number in range(len(chances))]
    again = Acceptance.of_lengths(lengths)
    found = [again.with_drafts(number + 1).mean_length for number in range(len(chances))]
    assert found == pytest.approx(lengths)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=6),
    st.integers(1, 60),
    st.integers(0, 9),
    st.sampled_from([None, 0, 7]),
)
def test_rounds_give_every_token_once(
    chances: list[float], output: int, request: int, seed: int | None
) -> None:
    speculator = Speculator(SpeculationSettings(Acceptance(tuple(chances)), seed=seed))
    rounds = speculator.num_rounds(request, output)
    out = [speculator.emitted(request, number) for number in range(rounds + 1)]
    assert out[:2] == [0, 1]
    assert out[-1] == output
    gains = np.diff(out[1:])
    assert ((gains >= 1) & (gains <= 1 + len(chances))).all()


def test_by_chance_the_mean_is_the_mean() -> None:
    acceptance = Acceptance((0.8, 0.6, 0.3))
    speculator = Speculator(SpeculationSettings(acceptance, seed=3))
    rounds = speculator.num_rounds(0, 20_000) - 1
    assert 19_999 / rounds == pytest.approx(acceptance.mean_length, rel=0.02)
    again = Speculator(SpeculationSettings(acceptance, seed=3))
    # A request's draws do not depend on what was drawn for others before.
    again.num_rounds(5, 100)
    assert again.num_rounds(0, 20_000) - 1 == rounds


def _run(settings: SpeculationSettings | None, *, ahead: int = 1) -> tuple[np.ndarray, ...]:
    load = workload([0, 0], [10, 20], [9, 5])
    how = ReplicaSettings(steps_in_flight=ahead)
    replica = Replica([FirstCome()], curve(100), how, speculation=settings)
    rows = simulate_workload(load, [replica]).rows
    assert (rows.requests[0].output_tokens == load.output_tokens).all()
    assert rows.shares is not None
    return rows.steps.features, rows.steps.end_ns, rows.shares.num_emitted


@pytest.mark.parametrize("ahead", [1, 2])
def test_accepted_drafts_save_steps(ahead: int) -> None:
    features, end_ns, emitted = _run(SpeculationSettings(ALL, seed=None), ahead=ahead)
    # 9 tokens: 1, 4, 4; 5 tokens: 1, 4. Each round computes the last token and three drafts.
    assert end_ns.tolist() == [100, 200, 300]
    assert emitted.tolist() == [1, 1, 4, 4, 4]
    assert features[1:, 4:].tolist() == [[2, 8, (10 + 4) + (20 + 4)], [1, 4, 14 + 4]]


def test_refused_drafts_cost_and_bring_nothing() -> None:
    features, end_ns, _ = _run(SpeculationSettings(NONE, seed=0))
    plain, plain_end, _ = _run(None)
    assert end_ns.tolist() == plain_end.tolist()
    assert features[1:, 5].tolist() == (4 * plain[1:, 5]).tolist()


def test_blocks_are_right_on_average() -> None:
    # 1 + 2 tokens a round: 34 rounds for 100 tokens; 33 tokens are put behind the prompt.
    speculator = Speculator(SpeculationSettings(Acceptance((1.0, 1.0)), seed=None))
    assert speculator.plan(0, 100) == (34, 33)
    held = [10 + 33 + number for number in range(34)]
    real = [10 + speculator.emitted(0, number) for number in range(34)]
    assert np.mean(held) == pytest.approx(np.mean(real), rel=0.04)
    # None of it is computed.
    requests, prompts = np.array([0, 0, 0, 0]), np.array([10, 10, 10, 10])
    before, tokens = np.array([0, 6, 20, 43]), np.array([5, 37, 10, 1])
    found = speculator.without_padding(requests, prompts, before, tokens)
    assert [one.tolist() for one in found] == [[0, 6, 10, 10], [5, 4, 0, 1]]


def test_drafting_takes_its_time() -> None:
    settings = SpeculationSettings(ALL, draft_pass_ns=7, draft_request_ns=1, seed=None)
    _, end_ns, _ = _run(settings)
    # Three passes of 7 ns and 1 for each request, in steps with decode.
    assert end_ns.tolist() == [100, 200 + 27, 300 + 27 + 24]
    at_once = SpeculationSettings(ALL, draft_pass_ns=7, passes_per_step=1, seed=None)
    assert _run(at_once)[1].tolist() == [100, 207, 314]


def test_wrong_acceptance_is_refused() -> None:
    with pytest.raises(UsageError, match="draft 2"):
        Acceptance((0.5, 1.5))
    with pytest.raises(UsageError, match="1 or more"):
        Acceptance.of_lengths([0.5])


def _golden(folder: Path) -> dict[str, list[float]]:
    found = {}
    for path in sorted((folder / "serving/inferencex/golden_al_distribution").glob("*.yaml")):
        for model, modes in yaml.safe_load(path.read_text("utf-8")).items():
            for mode, lengths in modes.items():
                found[f"{path.stem} {model} {mode}"] = [lengths[k] for k in sorted(lengths)]
    return found


def test_measured_acceptance_lengths_are_met(reference_data: Path) -> None:
    curves = _golden(reference_data)
    assert len(curves) >= 9
    errors, num_met = [], 0
    for name, lengths in curves.items():
        acceptance = Acceptance.of_lengths(lengths)
        gains = np.diff([1.0, *lengths])
        for number, length in enumerate(lengths, 1):
            # A draft more adds a chance that cannot grow; some measured curves do so by their noise.
            if (gains[:number] >= 0).all() and (np.diff(gains[:number]) <= 0).all():
                found = acceptance.with_drafts(number).mean_length
                assert found == pytest.approx(length, abs=1e-9), (name, number)
                num_met += 1
        sampled = Speculator(SpeculationSettings(acceptance.with_drafts(4), seed=1))
        rounds = sampled.num_rounds(0, 20_001) - 1
        assert 20_000 / rounds == pytest.approx(acceptance.with_drafts(4).mean_length, rel=0.02)
        # Known up to 3 drafts, said about 5.
        said = Acceptance.of_lengths(lengths[:3]).with_drafts(5).mean_length
        errors.append(abs(said / lengths[4] - 1))
    assert num_met >= 5 * len(curves)
    assert np.median(errors) < 0.03
