"""Steps: the interval of a gain, and steps foretold from the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from replay.runs import Call, Kernel, run
from replay.test_what_ifs import replay_of
from tokenpath.capture.capture import Capture
from tokenpath.replay import what_ifs
from tokenpath.replay.host_model import held_out_steps
from tokenpath.replay.replay import Replay


def steps(host_us: list[int], kernel_us: list[int]) -> Capture:
    """One step after the other: three launches `host` apart, and a synchronise."""
    calls: list[Call] = []
    kernels: list[Kernel] = []
    step_of_kernel: list[int] = []
    at = 0
    for number, (host, duration) in enumerate(zip(host_us, kernel_us, strict=True)):
        free = 0
        for _ in range(3):
            calls.append((0, "cudaLaunchKernel", at, at + 5))
            start = max(at + 5, free + 1)
            free = start + duration
            kernels.append((len(calls) - 1, 7, "compute", start, free))
            step_of_kernel.append(number)
            at += host
        calls.append((0, "cudaStreamSynchronize", at, max(at + 2, free + 10)))
        at = calls[-1][3] + host
    return run(calls, kernels, steps=step_of_kernel)


def in_steps(capture: Capture, num_steps: int) -> Replay:
    replay = replay_of(capture)
    start, step = capture.int64("kernel", "start_ns"), capture.ids("kernel", "step_id")
    begins = np.array([start[step == number].min() for number in range(num_steps)])
    return Replay(capture, [replace(replay.windows[0], step_starts_ns=begins)])


def test_equal_steps_leave_no_doubt() -> None:
    replay = in_steps(steps([20] * 5, [100] * 5), 5)
    found = replay.what_if(what_ifs.scale_kernels("", np.arange(15), 0.5))
    assert found.gain_ns == 5 * 3 * 50_000
    assert found.step_gain_ns[0].tolist() == [150_000] * 5
    assert found.interval_ns == (750_000, 750_000)


def test_what_varies_from_step_to_step_is_the_interval() -> None:
    replay = in_steps(steps([20] * 4, [100, 120, 80, 100]), 4)
    found = replay.what_if(what_ifs.scale_kernels("", np.arange(12), 0.5))
    gains = np.array([150.0, 180.0, 120.0, 150.0]) * 1_000
    half = 3.18 * gains.std(ddof=1) * 2
    assert found.interval_ns == pytest.approx((600_000 - half, 600_000 + half), abs=2)


def test_two_steps_say_nothing_about_variance() -> None:
    replay = in_steps(steps([20] * 2, [100] * 2), 2)
    assert replay.what_if(what_ifs.scale_kernels("", np.arange(6), 0.5)).interval_ns is None
    assert held_out_steps(steps([20] * 2, [100] * 2), replay, replay.windows[0]) is None


def test_equal_steps_foretell_each_other() -> None:
    capture = steps([150] * 5, [30] * 5)
    replay = in_steps(capture, 5)
    found = held_out_steps(capture, replay, replay.windows[0])
    assert found is not None
    assert found.foretold_ns.tolist() == found.measured_ns.tolist()
    assert found.modelled_ns.sum() > 0
    assert found.unmatched_ns.sum() == 0


def test_a_step_with_a_slower_host_is_foretold_as_the_others_are() -> None:
    capture = steps([150, 150, 300, 150, 150], [30] * 5)
    replay = in_steps(capture, 5)
    found = held_out_steps(capture, replay, replay.windows[0])
    assert found is not None
    # What the others do not have cannot be foretold: the error shows it.
    assert found.errors[2] < -0.2
    assert 0 < found.errors[0] < 0.4
