"""A request's way through several engines, clocks and choices is told without impossible figures."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from explain.test_latency_sources import EPOCH, MS, capture, seen, share, step
from explain.test_thread import table
from tokenpath.capture.capture import Capture, build_table
from tokenpath.explain.step_contents import StepContents
from tokenpath.explain.thread import thread


def test_steps_of_two_engines() -> None:
    """What the decode instance did is not missing from the steps of the prefill instance."""
    found = capture(
        [seen("client", arrival=0, first_token=50 * MS, last_token=60 * MS)],
        [
            step(10 * MS, 20 * MS, 0),
            *(step(at * MS, (at + 5) * MS, 1) for at in (30, 35, 40, 45)),
        ],
        [share(0), share(1), share(2), share(4)],
        ("epoch",) * 2,
    )
    report = thread(found, "r")
    assert any("1 steps in between were without it" in sentence for sentence in report.answer)


def test_overlapping_steps_do_not_wait_for_less_than_nothing() -> None:
    """With asynchronous scheduling a step begins before the one before has ended."""
    found = capture(
        [seen("client", arrival=0, first_token=30 * MS, last_token=40 * MS)],
        [step(10 * MS, 30 * MS), step(20 * MS, 40 * MS)],
        [share(0), share(1)],
    )
    rows = table(thread(found, "r"), "steps_of_request")
    assert [row["gap_ns"] for row in rows] == [10 * MS, 0]


def test_choices_share_a_row() -> None:
    found = capture(
        [seen("client", arrival=0, first_token=30 * MS, last_token=40 * MS)],
        [step(10 * MS, 20 * MS)],
        [share(0), share(0)],
    )
    rows = table(thread(found, "r"), "steps_of_request")
    assert [(row["num_tokens"], row["num_emitted"]) for row in rows] == [(2, 2)]
    assert rows[0]["own_compute_ns"] == 10 * MS


def test_times_of_another_clock_are_not_put_after_the_arrival() -> None:
    found = capture(
        [
            seen("client", 1, arrival=EPOCH, first_token=EPOCH + 30),
            seen("engine", 0, queued=5, first_token=20),
        ],
        [step(10, 20)],
        [share(0)],
        ("monotonic", "epoch"),
    )
    report = thread(found, "r")
    (row,) = table(report, "steps_of_request")
    assert (row["start_ns"], row["gap_ns"]) == (5, 5)
    after = {(row["observer"], row["moment"]): row["after_ns"] for row in table(report, "moments")}
    assert after == {
        ("client", "arrival"): 0,
        ("client", "first token"): 30,
        ("engine", "queued"): 0,
        ("engine", "first token"): 15,
    }


def test_many_kernels_are_not_searched_anew_for_each_step() -> None:
    num, kernels_a_step = 2_000, 500
    starts = np.arange(num * kernels_a_step) * 10
    steps = build_table(
        "step",
        {
            "source_id": np.zeros(num, np.int32),
            "name": ["s"] * num,
            "observer": ["scheduler"] * num,
            "start_ns": starts[::kernels_a_step],
            "end_ns": starts[::kernels_a_step] + 10,
        },
    )
    of_step = np.repeat(np.arange(num, dtype=np.int32), kernels_a_step)
    kernels = build_table(
        "kernel",
        {
            "source_id": np.zeros(len(starts), np.int32),
            "start_ns": starts,
            "end_ns": starts + 5,
            "name": pa.array(["k"] * len(starts)).dictionary_encode(),
            "kind": pa.array(["compute"] * len(starts)).dictionary_encode(),
            "family": pa.array(["gemm"] * len(starts)).dictionary_encode(),
            "device_id": np.zeros(len(starts), np.int32),
            "stream_id": np.zeros(len(starts), np.int64),
            "step_id": of_step,
        },
    )
    found = StepContents(Capture({"step": steps, "kernel": kernels}))
    began = time.process_time()
    inside = [found.of(row) for row in range(num)]
    assert time.process_time() - began < 1.5
    assert all(one is not None and one.num_kernels == kernels_a_step for one in inside)
