"""The figures of a run against tables whose figures are plain to see."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tokenpath.capture.capture import Capture, build_table
from tokenpath.simulate.summary import Slo, statistics, summarise

MS = 1_000_000


def capture(**changes: object) -> Capture:
    request = {
        "source_id": np.zeros(3, np.int32),
        "request_id": ["a", "b", "c"],
        "observer": ["engine"] * 3,
        "arrival_ns": np.array([0, 10, 20]) * MS,
        "first_token_ns": np.array([5, 30, 40]) * MS,
        "last_token_ns": np.array([9, 50, 40]) * MS,
        "finished_ns": np.array([9, 50, 40]) * MS,
        "prompt_tokens": np.array([100, 50, 50]),
        "cached_tokens": np.array([0, 20, 30]),
        "output_tokens": np.array([3, 11, 1]),
        "num_preemptions": np.array([0, 2, 1]),
        **changes,
    }
    step = {
        "source_id": np.zeros(2, np.int32),
        "name": ["step", "step"],
        "observer": ["scheduler"] * 2,
        "engine_id": np.zeros(2, np.int32),
        "start_ns": np.array([0, 20]) * MS,
        "end_ns": np.array([10, 50]) * MS,
        "num_running": np.array([1, 3]),
        "num_queued": np.array([2, 0]),
        "kv_used_blocks": np.array([1, 5]),
        "kv_total_blocks": np.array([10, 10]),
    }
    return Capture({"request": build_table("request", request), "step": build_table("step", step)})


def test_latencies_rates_and_load_are_those_of_the_glossary() -> None:
    found = summarise(capture())
    assert found is not None
    assert found.latency_ns["ttft"] == {
        "mean": 15 * MS,
        "p50": 20 * MS,
        "p90": 20 * MS,
        "p99": 20 * MS,
    }
    # The request of one token has no time per further token.
    assert found.latency_ns["tpot"]["mean"] == 2 * MS
    assert found.latency_ns["e2e"]["p99"] == 40 * MS
    assert "itl" not in found.latency_ns
    assert found.duration_ns == 50 * MS
    assert found.requests_per_s == pytest.approx(60)
    assert found.output_tokens_per_s == pytest.approx(300)
    assert found.input_tokens_per_s == pytest.approx(4000)
    assert (found.cached_share, found.num_preemptions) == (pytest.approx(0.25), 3)
    assert found.mean_kv_share == pytest.approx((0.1 * 10 + 0.5 * 30) / 40)
    assert (found.max_kv_share, found.max_queued) == (0.5, 2)
    assert found.mean_running == pytest.approx(2.5)
    assert found.utilisation == pytest.approx(0.8)


def test_goodput_counts_requests_that_keep_every_limit() -> None:
    assert summarise(capture()).goodput_per_s is None
    found = summarise(capture(), Slo(ttft_ns=20 * MS, tpot_ns=2 * MS - 1))
    assert found.slo_share == pytest.approx(1 / 3)  # a: tpot is 2 ms; b likewise; c has none
    assert summarise(capture(), Slo(ttft_ns=19 * MS)).slo_share == pytest.approx(1 / 3)
    assert summarise(capture(), Slo(e2e_ns=40 * MS)).slo_share == 1


def test_unfinished_requests_count_as_sent_and_never_as_good() -> None:
    end = [9 * MS, None, 40 * MS]
    found = summarise(capture(finished_ns=end), Slo(ttft_ns=100 * MS))
    assert (found.num_requests, found.num_finished) == (3, 2)
    assert found.slo_share == pytest.approx(2 / 3)


def test_gaps_come_from_the_steps_that_emitted() -> None:
    shares = {
        "source_id": np.zeros(3, np.int32),
        "request_id": ["a", "a", "b"],
        "step_id": np.array([0, 1, 1], np.int32),
        "phase": ["prefill", "decode", "prefill"],
        "num_tokens": np.array([100, 1, 50]),
        "num_emitted": np.array([1, 2, 1]),
    }
    with_shares = capture().replace({"request_step": build_table("request_step", shares)})
    assert summarise(with_shares).latency_ns["itl"]["mean"] == 20 * MS  # 40 ms, then 0


def test_a_percentile_is_a_value_that_occurs() -> None:
    values = np.arange(1.0, 101.0)
    assert statistics(values) == {"mean": 50.5, "p50": 50, "p90": 90, "p99": 99}
    assert statistics(np.array([7.0])) == {"mean": 7, "p50": 7, "p90": 7, "p99": 7}


def test_cache_and_preemptions_are_the_engines_whoever_looks() -> None:
    both = capture()
    client = {
        "source_id": np.zeros(3, np.int32),
        "request_id": ["a", "b", "c"],
        "observer": ["client"] * 3,
        "arrival_ns": np.array([0, 10, 20]) * MS,
        "finished_ns": np.array([9, 50, 40]) * MS,
        "prompt_tokens": np.array([100, 50, 50]),
    }
    rows = pa.concat_tables([both["request"], build_table("request", client)])
    found = summarise(both.replace({"request": rows}), observer="client")
    assert (found.cached_share, found.num_preemptions) == (pytest.approx(0.25), 3)


def test_no_such_observer_is_no_summary() -> None:
    assert summarise(capture(), observer="client") is None
    assert summarise(Capture({})) is None


def test_flat_names_carry_statistic_and_unit() -> None:
    names = summarise(capture()).flat()
    assert names["p99_ttft_ns"] == 20 * MS
    assert "goodput_per_s" not in names
