"""What each change does to runs small enough to time by hand (microseconds in the captures, ns in results)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.runs import run
from replay.test_graph import random_run
from tokenpath.capture.capture import Capture
from tokenpath.core.hardware import load_catalogue
from tokenpath.replay import what_ifs
from tokenpath.replay.change import HostChange, KernelChange, WhatIf, joined, with_kernel_times
from tokenpath.replay.replay import DeviceWindow, Replay
from tokenpath.replay.weights import changed_weights


def replay_of(capture: Capture) -> Replay:
    """Each device's window is all of its work; no steps."""
    windows = []
    device = capture.ids("kernel", "device_id")
    for number in range(capture.num_rows("device")):
        start = capture.int64("kernel", "start_ns")[device == number]
        end = capture.int64("kernel", "end_ns")[device == number]
        low, high = (int(start.min()), int(end.max())) if len(start) else (0, 0)
        windows.append(DeviceWindow(number, low, high, np.empty(0, np.int64)))
    return Replay(capture, windows)


def gain_us(capture: Capture, what_if: WhatIf) -> float:
    return replay_of(capture).what_if(what_if).gain_ns / 1_000


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def device_bound() -> Capture:
    """Three kernels back to back, launched long before."""
    return run(
        [(0, "cudaLaunchKernel", 10 * k, 10 * k + 5) for k in range(3)],
        [(0, 7, "compute", 5, 205), (1, 7, "compute", 206, 406), (2, 7, "compute", 407, 607)],
        families=["gemm", "elementwise", "elementwise"],
    )


def host_bound() -> Capture:
    """Three short kernels, each launched when the one before is long over."""
    return run(
        [(0, "cudaLaunchKernel", 100 * k, 100 * k + 5) for k in range(3)],
        [(k, 7, "compute", 100 * k + 5, 100 * k + 15) for k in range(3)],
    )


def test_a_kernel_on_the_path_takes_its_time_off_the_wall() -> None:
    assert gain_us(device_bound(), what_ifs.scale_kernels("", rows(0), 0.5)) == 100
    # Removed, its hand-over goes as well.
    assert gain_us(device_bound(), what_ifs.scale_kernels("", rows(1), 0.0)) == 201


def test_a_kernel_that_the_device_waits_for_anyway_does_not() -> None:
    assert gain_us(host_bound(), what_ifs.scale_kernels("", rows(0), 0.5)) == 0


def test_a_slower_kernel_makes_the_wall_longer() -> None:
    assert gain_us(device_bound(), what_ifs.scale_kernels("", rows(1), 2.0)) == -200


def test_new_times_by_row() -> None:
    changed = with_kernel_times("", rows(0, 2), rows(200, 200), rows(150, 100))
    assert gain_us(device_bound(), changed) == 150


def test_device_graphs_take_the_host_time_between_launches() -> None:
    capture = host_bound()
    # The launch call itself stays; then 10 us a kernel and a hand-over between them.
    graphs = what_ifs.device_graphs(capture, replay_of(capture).graph)
    wall = 2 * 100 + 10
    assert gain_us(capture, graphs) == wall - (3 * 10 + 2 * 1)


def test_a_long_pause_is_no_launching() -> None:
    calls = [(0, "cudaLaunchKernel", at, at + 5) for at in (0, 20, 40, 60, 3_060)]
    capture = run(calls, [(k, 7, "compute", c[2] + 5, c[2] + 9) for k, c in enumerate(calls)])
    gain = gain_us(capture, what_ifs.device_graphs(capture, replay_of(capture).graph))
    assert gain == 60


def test_host_time_shrinks_where_it_was() -> None:
    pause = HostChange(rows(0), rows(30_000), rows(80_000))
    assert gain_us(host_bound(), WhatIf("", host=[pause])) == 50
    half = HostChange(rows(0), rows(30_000), rows(80_000), 0.5)
    assert gain_us(host_bound(), WhatIf("", host=[half])) == 25
    # The same stretch twice is one stretch; and other threads have not lived through it.
    assert (
        gain_us(
            host_bound(),
            WhatIf("", host=[HostChange(rows(0, 0), rows(30_000, 40_000), rows(80_000, 80_000))]),
        )
        == 50
    )
    assert (
        gain_us(host_bound(), WhatIf("", host=[HostChange(rows(1), rows(30_000), rows(80_000))]))
        == 0
    )


def synchronised() -> Capture:
    return run(
        [
            (0, "cudaLaunchKernel", 0, 5),
            (0, "cudaStreamSynchronize", 6, 320),
            (0, "cudaLaunchKernel", 400, 405),
        ],
        [(0, 7, "compute", 5, 305), (2, 7, "compute", 405, 605)],
    )


def test_without_a_synchronise_the_host_runs_ahead() -> None:
    capture = synchronised()
    # The launch comes 80 us after the call that now takes 2 us: the kernel follows the first at once.
    found = what_ifs.without_waits(replay_of(capture).graph)
    assert gain_us(capture, found) == 605 - (305 + 1 + 200)
    # A pause before the wait shrinks nothing of the wait itself.
    inside = HostChange(rows(0), rows(6_000), rows(320_000))
    assert gain_us(capture, WhatIf("", host=[inside])) <= 2


def test_what_blocks_the_host_is_found_by_when_it_returns() -> None:
    capture = run(
        [(0, "cudaMemcpyAsync", 0, 120), (0, "cudaLaunchKernel", 200, 205)],
        [(0, 7, "memcpy", 10, 110), (1, 7, "compute", 205, 305)],
    )
    found = what_ifs.without_blocking_copies(replay_of(capture).graph)
    assert gain_us(capture, found) > 80


def test_hidden_communication_holds_nobody_up_but_still_runs() -> None:
    calls = [(0, "cudaLaunchKernel", 3 * k, 3 * k + 2) for k in range(3)]
    capture = run(
        calls,
        [(0, 7, "compute", 5, 105), (1, 7, "communication", 106, 206), (2, 7, "compute", 207, 307)],
    )
    assert gain_us(capture, what_ifs.hide_kernels("", capture, "communication")) == 101


def test_elementwise_chains_are_as_long_as_their_longest_kernel() -> None:
    capture = device_bound()
    fused = what_ifs.fuse_elementwise(capture, replay_of(capture).graph)
    assert [change.rows.tolist() for change in fused.kernels] == [[2]]
    assert gain_us(capture, fused) == 201


def two_ranks() -> Capture:
    """Rank 1 takes 300 us before each of two collectives, rank 0 takes 100 us."""
    calls, kernels, ranks, parts = [], [], [], []
    for rank, own in ((0, 100), (1, 300)):
        at = 5
        for round_ in range(3):
            calls.append((rank, "cudaLaunchKernel", 6 * round_, 6 * round_ + 2))
            kernels.append((len(calls) - 1, 7, "compute", at, at + own))
            calls.append((rank, "cudaLaunchKernel", 6 * round_ + 3, 6 * round_ + 5))
            end = 5 + (round_ + 1) * 300 + round_ * 20 + 20
            kernels.append((len(calls) - 1, 7, "communication", at + own, end))
            ranks += [rank, rank]
            parts.append((rank, len(kernels) - 1, round_))
            at = end
    collective = {
        "source_id": [rank for rank, _, _ in parts],
        "op": ["allreduce"] * len(parts),
        "kernel_id": [row for _, row, _ in parts],
        "match": [which for _, _, which in parts],
    }
    return run(calls, kernels, rank_of_thread=[0, 1], rank_of_kernel=ranks, collective=collective)


def test_balanced_ranks_meet_in_the_mean_and_a_late_one_catches_up() -> None:
    capture = two_ranks()
    # The first stretch has no collective before it; the two others fall from 300 to 200 us, on both ranks.
    assert gain_us(capture, what_ifs.balanced_ranks()) == 2 * 2 * 100
    assert gain_us(capture, WhatIf("", catching_up=[1])) == 2 * 2 * 200
    assert gain_us(capture, WhatIf("", catching_up=[0])) == 0


def test_faster_communication_is_the_transfer_not_the_waiting() -> None:
    capture = two_ranks()
    found = what_ifs.kernels_where(capture, "kind", lambda name: name == "communication")
    assert gain_us(capture, what_ifs.scale_kernels("", found, 0.5)) == 2 * 3 * 10


def test_another_device_scales_each_kernel_by_what_limits_it() -> None:
    capture = device_bound()
    measured, other = (load_catalogue()[key] for key in ("h100-sxm5-80gb", "h200-sxm-141gb"))
    by = {
        bound: gain_us(capture, what_ifs.faster_gpu(capture, "", measured, other, bound))
        for bound in ("likely", "memory", "compute")
    }
    ratio = measured.memory_bytes_per_s / other.memory_bytes_per_s
    assert by["memory"] == pytest.approx(600 * (1 - ratio), abs=1)
    assert by["compute"] == pytest.approx(0, abs=1)
    assert by["likely"] == pytest.approx(400 * (1 - ratio), abs=1)


def test_joint_changes_do_not_count_the_same_time_twice() -> None:
    capture = synchronised()
    no_wait = what_ifs.without_waits(replay_of(capture).graph)
    shorter = what_ifs.scale_kernels("", rows(0), 0.0)
    both = gain_us(capture, joined("", [no_wait, shorter]))
    assert both <= gain_us(capture, no_wait) + gain_us(capture, shorter)
    assert both >= max(gain_us(capture, no_wait), gain_us(capture, shorter))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0))
def test_nothing_changed_gains_nothing_and_less_work_never_takes_longer(
    seed: int, factor: float
) -> None:
    capture = random_run(seed)
    replay = replay_of(capture)
    assert replay.what_if(WhatIf("nothing")).gain_ns == 0
    shorter = WhatIf("", kernels=[KernelChange(np.arange(60), factor)])
    assert (replay.times(changed_weights(replay.places, shorter)) <= replay.times()).all()
