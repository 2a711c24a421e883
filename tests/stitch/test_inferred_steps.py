"""Steps found in what repeats, against generated programs whose steps are known."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenpath.capture.capture import Capture, build_table
from tokenpath.capture.validate import validate
from tokenpath.stitch.inferred_steps import ONE_STEP, infer_steps, steps_by_structure

LAYER = ("norm", "qkv", "rotary_embedding", "attention", "out", "norm", "up", "act", "down")


@dataclass
class Program:
    """What a thread did."""

    names: list[str] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    """First event of each step."""


def run(
    seed: int,
    steps: int,
    layers: int,
    *,
    pause_ns: int = 400_000,
    skip: int = 0,
    hiccups: float = 0.0,
    sample: str = "aten::argmax",
) -> Program:
    """A decoder served for some steps; the recording lacks its first `skip` events."""
    rng = random.Random(seed)
    program, at = Program(), 10**12
    for _ in range(steps):
        at += pause_ns + rng.randrange(pause_ns)
        program.steps.append(len(program.names))
        body = ["prepare", "aten::embedding", *LAYER * layers, "final", "lm_head", sample, "copy"]
        if rng.random() < 0.3:
            body.insert(1, "mask")
        for name in body:
            at += rng.randrange(500, 3_000)
            if rng.random() < hiccups:
                at += 2 * pause_ns
            program.names.append(name)
            program.start.append(at)
            at += rng.randrange(2_000, 60_000)
            program.end.append(at)
    program.names, program.start, program.end = (
        values[skip:] for values in (program.names, program.start, program.end)
    )
    program.steps = [max(0, first - skip) for first in program.steps]
    return program


def capture_of(program: Program, *, as_kernels: bool = False) -> Capture:
    size = len(program.names)
    source = {
        "path": ["f"],
        "format": ["x"],
        "reader_version": [1],
        "num_bytes": [1],
        "clock_offset_ns": [0],
        "clock": ["epoch"],
        "state": ["synthetic"],
        "num_events": [size],
        "num_skipped": [0],
    }
    times = {"start_ns": program.start, "end_ns": program.end, "name": program.names}
    tables = {"source": build_table("source", source)}
    if as_kernels:
        tables["device"] = build_table("device", {"source_id": [0], "index": [0]})
        common = {"source_id": [0] * size, "device_id": [0] * size, "stream_id": [7] * size}
        kind = {"kind": ["compute"] * size, "family": ["other"] * size}
        tables["kernel"] = build_table("kernel", common | times | kind)
    else:
        tables["thread"] = build_table("thread", {"source_id": [0], "pid": ["1"], "tid": ["1"]})
        tables["op"] = build_table("op", {"source_id": [0] * size, "thread_id": [0] * size} | times)
    return Capture(tables)


def firsts(program: Program, starts: np.ndarray) -> list[int]:
    """The events at which the found steps begin."""
    return [program.start.index(start) for start in starts.tolist()]


@settings(deadline=None, max_examples=40)
@example(0, 3, 2, False)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(2, 12), st.booleans())
def test_steps_of_a_served_model(seed: int, steps: int, layers: int, as_kernels: bool) -> None:
    program = run(seed, steps, layers)
    found = infer_steps(capture_of(program, as_kernels=as_kernels), 0)
    assert found is not None
    assert firsts(program, found.start) == program.steps
    assert (found.end[:-1] <= found.start[1:]).all()
    assert found.confidence > 0.7


@pytest.mark.parametrize("layers", [2, 8, 36])
def test_layers_of_one_step_are_no_steps(layers: int) -> None:
    found = infer_steps(capture_of(run(1, 1, layers)), 0)
    assert found is not None
    assert len(found.start) == 1
    assert found.confidence == ONE_STEP


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 90))
def test_a_recording_that_begins_within_a_step(seed: int, skip: int) -> None:
    """All whole steps are found; what is left of the first one is a step, too."""
    program = run(seed, 8, 8, skip=skip)
    found = infer_steps(capture_of(program), 0)
    assert found is not None
    whole = [first for first in program.steps if first > 0]
    assert firsts(program, found.start)[-len(whole) + 1 :] == whole[1:]


@pytest.mark.parametrize("seed", range(5))
def test_hiccups_within_steps(seed: int) -> None:
    """Pauses as long as those between steps, now and then within one."""
    program = run(seed, 20, 6, hiccups=0.01)
    found = infer_steps(capture_of(program), 0)
    assert found is not None
    assert set(firsts(program, found.start)) == set(program.steps)


def test_too_little_to_see_anything() -> None:
    program = run(1, 1, 0)
    assert len(program.names) < 12
    assert infer_steps(capture_of(program), 0) is None
    assert infer_steps(Capture({}), 0) is None


def test_a_table_of_steps() -> None:
    program = run(3, 5, 4)
    capture = capture_of(program)
    table = steps_by_structure(capture, [0])
    validate(capture.replace({"step": table}))
    assert table.num_rows == 5
    assert set(table["linked_by"].to_pylist()) == {"structure"}
    assert steps_by_structure(capture_of(run(3, 1, 4)), [0]).num_rows == 0


def test_times_at_both_ends_of_int64() -> None:
    program = run(3, 5, 4)
    program.start[0], program.end[0] = -(2**63) + 1, -5
    program.start[-1], program.end[-1] = 2**62, 2**63 - 1
    found = infer_steps(capture_of(program), 0)
    assert found is not None
    assert len(found.start) >= 1
