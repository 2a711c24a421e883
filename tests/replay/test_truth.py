"""What a replay says against what the changed program does: small programs whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from replay.programs import Program, changed, random_program, run_program
from replay.test_what_ifs import replay_of
from tokenpath.capture.capture import Capture
from tokenpath.replay import what_ifs
from tokenpath.replay.change import WhatIf, without_host_time

SEEDS = range(2)
SHAPES = [(1, 30.0, 10.0), (1, 8.0, 40.0), (3, 30.0, 10.0), (3, 8.0, 40.0), (2, 15.0, 18.0)]
"""Ranks, host time and kernel time: host bound, device bound, and in between."""


def error(program: Program, truth: Program, what_if: WhatIf, capture: Capture) -> float:
    """Relative error of the wall that the replay foretells."""
    found = replay_of(capture).what_if(what_if)
    _, wall = run_program(truth)
    return sum(found.wall_ns) / 1_000 / wall - 1


def programs() -> list[Program]:
    return [
        random_program(seed, ranks, host_us=host, kernel_us=kernel)
        for seed in SEEDS
        for ranks, host, kernel in SHAPES
    ]


def assert_close(errors: list[float], median: float = 0.03, p95: float = 0.10) -> None:
    size = np.abs(errors)
    assert np.median(size) <= median, sorted(errors)
    assert np.quantile(size, 0.95) <= p95, sorted(errors)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_kernels_that_take_another_time(factor: float) -> None:
    errors = []
    for program in programs():
        capture = run_program(program)[0].capture(len(program))
        rows = what_ifs.kernels_where(capture, "family", lambda name: name == "gemm")
        truth = changed(program, factor, family="gemm")
        errors.append(error(program, truth, what_ifs.scale_kernels("", rows, factor), capture))
    assert_close(errors)


def test_communication_that_takes_another_time() -> None:
    errors = []
    for program in programs():
        if len(program) == 1:
            continue
        capture = run_program(program)[0].capture(len(program))
        rows = what_ifs.kernels_where(capture, "kind", lambda name: name == "communication")
        truth = changed(program, 0.25, what="collective")
        errors.append(error(program, truth, what_ifs.scale_kernels("", rows, 0.25), capture))
    assert_close(errors)


def test_pauses_of_the_host_taken_away() -> None:
    errors = []
    for number, program in enumerate(programs()):
        rng = np.random.default_rng(number)
        slow = [
            [
                replace(item, pause_us=1_500)
                if rng.random() < 0.02 and item.what == "kernel"
                else item
                for item in items
            ]
            for items in program
        ]
        seen, _ = run_program(slow)
        if not seen.pauses:
            continue
        capture = seen.capture(len(slow))
        rank, start, end = np.array(seen.pauses, np.int64).T
        fix = without_host_time("", rank, 1_000 * start, 1_000 * end)
        errors.append(error(slow, program, fix, capture))
    assert_close(errors)


def test_waits_taken_away() -> None:
    errors = []
    for program in programs():
        capture = run_program(program)[0].capture(len(program))
        truth = [[item for item in items if item.what != "wait"] for items in program]
        fix = what_ifs.without_waits(replay_of(capture).graph)
        errors.append(error(program, truth, fix, capture))
    assert_close(errors)


def test_a_late_rank_level_with_the_others() -> None:
    errors = []
    for program in programs():
        if len(program) < 2:
            continue
        slow = [
            [replace(item, host_us=round(item.host_us * 1.5)) for item in items]
            if rank == 1
            else items
            for rank, items in enumerate(program)
        ]
        capture = run_program(slow)[0].capture(len(slow))
        errors.append(error(slow, program, WhatIf("", catching_up=[1]), capture))
    # How long a rank would have taken is judged by the others, which differ too.
    assert_close(errors, 0.05, 0.15)
