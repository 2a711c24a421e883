"""A fit finds what an invented engine's steps cost, and says how wrong it is where it was not fitted."""

from __future__ import annotations

import numpy as np
import pytest
from invented_engine import TRUE, capture, features

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import InputError, UsageError
from tokenpath.simulate.calibrate import fit_steps
from tokenpath.simulate.calibrate.observe import observe
from tokenpath.simulate.step_cost import Curve, step_latency_ns


def noisy(seed: int, num_steps: int = 800, sigma: float = 0.05, speed: float = 1.0) -> Capture:
    random = np.random.default_rng(seed)
    table = features(random, num_steps)
    return capture(table, TRUE.step_ns(table) * speed * random.lognormal(0, sigma, num_steps))


def test_costs_without_noise_are_found_again():
    table = features(np.random.default_rng(0), 600)
    model = fit_steps(capture(table, TRUE.step_ns(table)))
    assert model.curve.step_ns(table) == pytest.approx(TRUE.step_ns(table), rel=1e-6)
    assert model.error.mean_abs_relative < 1e-6
    assert model.terms["num_prefill_tokens"] == pytest.approx(2e4, rel=1e-4)
    assert model.terms["sum_decode_kv_tokens"] == pytest.approx(20.0, rel=1e-4)


def test_the_error_is_that_of_steps_left_out():
    model = fit_steps(noisy(1))
    assert "left out" in model.error.measured_on
    # E|exp(x) - 1| of a normal x of sigma 0.05 is 0.04.
    assert model.error.mean_abs_relative == pytest.approx(0.04, rel=0.15)
    assert abs(model.error.bias_relative) < 0.01
    assert model.error.quantiles[0.95] == pytest.approx(0.0822, rel=0.2)


def test_an_error_is_not_that_of_the_fit_where_kinds_of_steps_differ_by_time():
    random = np.random.default_rng(2)
    table = features(random, 500)
    speed = np.where(np.arange(500) < 400, 1.0, 1.5)
    model = fit_steps(capture(table, TRUE.step_ns(table) * speed))
    assert model.speed.sigma > 0.1
    assert model.error.mean_abs_relative > 0.1


def test_stalls_are_set_aside_and_counted():
    random = np.random.default_rng(3)
    table = features(random, 800)
    cost = TRUE.step_ns(table) * random.lognormal(0, 0.03, 800)
    stalled = cost.copy()
    stalled[::100] += 5e9
    model = fit_steps(capture(table, stalled))
    assert model.curve.step_ns(table).sum() == pytest.approx(cost.sum(), rel=0.02)
    assert model.stall_share == pytest.approx(1 - cost.sum() / stalled.sum(), rel=0.02)
    assert any("stalls" in note for note in model.notes)


def test_three_runs_are_judged_by_leaving_each_out():
    model = fit_steps(
        [noisy(seed, 300, speed=speed) for seed, speed in ((1, 0.95), (2, 1), (3, 1.05))]
    )
    assert model.error.measured_on == "each of 3 runs left out"
    assert (model.num_runs, model.num_steps, model.speed.num_parts) == (3, 900, 3)
    assert 0.03 < model.speed.sigma < 0.08


def test_pauses_are_not_cost():
    table = features(np.random.default_rng(4), 400)
    cost = TRUE.step_ns(table)
    busy = observe(capture(table, cost))
    paused = observe(capture(table, cost, pause_every=50))
    assert paused.cost_ns[1:] == pytest.approx(busy.cost_ns[1:])
    assert busy.usual_gap_ns == 100_000


def test_steps_scheduled_ahead_cost_the_time_between_their_ends():
    table = features(np.random.default_rng(5), 300)
    cost = TRUE.step_ns(table)
    ahead = observe(capture(table, cost, gap_ns=-2_000_000))
    assert ahead.cost_ns[1:] == pytest.approx(cost[1:], abs=1)


def test_a_profilers_ranges_count_from_start_to_start():
    table = features(np.random.default_rng(6), 300)
    cost = TRUE.step_ns(table)
    seen = observe(capture(table, cost, gap_ns=3_000_000, observer="profiler"))
    # From one start to the next: the gap before the next step and the step itself.
    assert seen.cost_ns == pytest.approx(cost[1:] - 3e6 + 3e6 - (cost[1:] - cost[:-1]), abs=2)
    assert seen.num_unknown == 1
    assert any("profiler" in note for note in seen.notes)


def test_unknown_contexts_are_said_not_guessed():
    table = features(np.random.default_rng(7), 400)
    model = fit_steps(capture(table, TRUE.step_ns(table), unknown=("sum_decode_kv_tokens",)))
    assert "sum_decode_kv_tokens" not in model.terms
    assert any("context lengths" in note for note in model.notes)


def test_few_steps_get_few_terms_and_too_few_none():
    table = features(np.random.default_rng(8), 24)
    model = fit_steps(capture(table, TRUE.step_ns(table)))
    assert len(model.terms) <= 4
    with pytest.raises(InputError, match="10 steps to calibrate on"):
        fit_steps(capture(table[:10], TRUE.step_ns(table[:10])))


def test_a_capture_without_steps_says_what_would_do():
    with pytest.raises(InputError, match="scheduler steps"):
        fit_steps(Capture({}))
    with pytest.raises(UsageError, match="no capture"):
        fit_steps([])


def test_a_staircase_needs_the_table_form():
    random = np.random.default_rng(9)
    table = features(random, 2000)
    decode = table[:, 0] == 0
    # Decode batches of more than 8 cost twice as much: padded graphs do such things.
    cost = np.where(decode & (table[:, 4] > 8), 2.0, 1.0) * TRUE.step_ns(table)
    model = fit_steps(capture(table, cost))
    assert any(name.startswith("decode: per token") for name in model.terms)
    assert model.error.mean_abs_relative < 0.1


def test_the_compiled_form_says_the_same_as_the_terms():
    table = features(np.random.default_rng(10), 2000)
    cost = TRUE.step_ns(table) * np.where((table[:, 0] == 0) & (table[:, 4] > 8), 2.0, 1.0)
    curve = fit_steps(capture(table, cost)).curve
    plain = Curve.of(curve)
    for row in table[:50]:
        assert step_latency_ns(*plain, row.tolist()) == pytest.approx(
            curve.step_ns(row[None])[0], abs=1
        )


def test_cost_never_falls_with_work():
    model = fit_steps(noisy(11, 400, sigma=0.3))
    table = features(np.random.default_rng(12), 200)
    assert (model.curve.step_ns(table * [1, 1, 1, 1, 2, 2, 2]) >= model.curve.step_ns(table)).all()
    assert min(model.terms.values()) >= 0


def test_the_same_capture_gives_the_same_model():
    first, second = fit_steps(noisy(13)), fit_steps(noisy(13))
    assert first.terms == second.terms
    assert np.array_equal(first.draws[3].decode_ns, second.draws[3].decode_ns)


def test_delays_outside_the_engine_are_measured_where_both_sides_are_seen():
    table = features(np.random.default_rng(14), 60)
    # Gaps of 3 ms between steps: the sending falls into a gap, so nothing holds the request up.
    model = fit_steps(capture(table, TRUE.step_ns(table) + 3e6, gap_ns=3_000_000, requests=True))
    assert model.overheads.arrival.mean_ns == pytest.approx(2e6)
    assert model.overheads.delivery.quantiles[0.5] == pytest.approx(4e6)
    assert model.overheads.round_trip_ns == pytest.approx(6e6)
    assert fit_steps(noisy(15)).overheads.round_trip_ns == 0


def test_a_log_stamped_by_the_second_still_says_how_long_steps_were():
    table = features(np.random.default_rng(16), 300)
    seen = observe(capture(table, TRUE.step_ns(table), gap_ns=0, observer="log"))
    assert np.sort(seen.cost_ns) == pytest.approx(np.sort(TRUE.step_ns(table)), abs=1)
    assert any("a log states" in note for note in seen.notes)
