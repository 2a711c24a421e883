"""The path through a run: its parts add up to the wall, and name what held the run up."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.runs import run
from replay.test_graph import random_run
from replay.test_what_ifs import replay_of, two_ranks
from tokenpath.capture.capture import Capture
from tokenpath.replay import what_ifs
from tokenpath.replay.critical_path import BEFORE, HOST, UNEXPLAINED, CriticalPath, critical_path
from tokenpath.replay.weights import changed_weights


def path_of(capture: Capture, device: int = 0) -> CriticalPath:
    replay = replay_of(capture)
    return critical_path(capture, replay, replay.in_windows[device])


def test_a_late_launch_puts_the_host_on_the_path() -> None:
    capture = run(
        [(0, "cudaLaunchKernel", 0, 5), (0, "cudaLaunchKernel", 500, 505)],
        [(0, 7, "compute", 5, 305), (1, 7, "compute", 505, 605)],
    )
    path = path_of(capture)
    assert path.wall_ns == 600_000
    # From the start of the first kernel: the host until its second call, the launch, the second kernel.
    assert path.parts_ns == {HOST: 495_000, "gemm": 100_000, "launch": 5_000}
    assert path.kernels.tolist() == [1]
    assert path.calls.tolist()[-1] == 1


def test_kernels_back_to_back_are_the_path() -> None:
    capture = run(
        [(0, "cudaLaunchKernel", 0, 5), (0, "cudaLaunchKernel", 6, 9)],
        [(0, 7, "compute", 5, 305), (1, 7, "compute", 306, 606)],
        families=["gemm", "norm"],
    )
    assert path_of(capture).parts_ns == {"gemm": 300_000, "norm": 300_000, "hand-over": 1_000}


def test_a_delay_that_nothing_explains_is_named() -> None:
    capture = run(
        [(0, "cudaLaunchKernel", 0, 5), (0, "cudaLaunchKernel", 6, 9)],
        [(0, 7, "compute", 5, 305), (1, 7, "compute", 406, 606)],
    )
    path = path_of(capture)
    assert path.parts_ns[UNEXPLAINED] == 100_000
    assert path.unexplained_share == 100 / 601


def test_the_path_goes_through_the_rank_that_all_wait_for() -> None:
    path = path_of(two_ranks(), device=0)
    assert path.num_sources == 2
    assert path.parts_ns == {"gemm": 900_000, "communication": 60_000}


def test_what_came_before_the_recording_is_no_delay() -> None:
    capture = run(
        [(0, "cudaLaunchKernel", 0, 5), (1, "cudaLaunchKernel", 300, 302)],
        [(0, 7, "communication", 5, 420), (1, 7, "communication", 305, 421)],
        rank_of_thread=[0, 1],
        rank_of_kernel=[0, 1],
        collective={
            "source_id": [0, 1],
            "op": ["allreduce"] * 2,
            "kernel_id": [0, 1],
            "match": [0, 0],
        },
    )
    path = path_of(capture)
    assert path.parts_ns[BEFORE] == 295_000
    assert UNEXPLAINED not in path.parts_ns


def test_under_a_what_if_the_path_is_another() -> None:
    capture = two_ranks()
    replay = replay_of(capture)
    slow = what_ifs.scale_kernels("", np.array([0, 2, 4]), 5.0)
    path = critical_path(
        capture, replay, replay.in_windows[1], changed_weights(replay.places, slow)
    )
    # Rank 0 takes 500 us now, and rank 1 waits for it.
    assert path.wall_ns == 3 * 500_000 + 60_000
    assert path.parts_ns["gemm"] == 1_500_000


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_parts_add_up_to_the_wall(seed: int) -> None:
    capture = random_run(seed)
    replay = replay_of(capture)
    for device in replay.in_windows:
        path = critical_path(capture, replay, device)
        assert sum(path.parts_ns.values()) == path.wall_ns
        assert path.wall_ns == device.window.end_ns - device.window.start_ns
        assert all(value > 0 for value in path.parts_ns.values())
