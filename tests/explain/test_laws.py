"""Laws that hold for every capture, tried on random ones."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import slow
from explaining import GEMM
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from random_traces import NCCL, HostPart, Piece, Plan, plans

from ingest.traces import Trace
from tokenpath.api import WindowRequest, explain
from tokenpath.api.explain import Explained
from tokenpath.explain.analysis import DeviceResult
from tokenpath.explain.causes import CAUSES

slow_reading = [HealthCheck.too_slow]
some = settings(max_examples=30, deadline=None, suppress_health_check=slow_reading)
few = settings(max_examples=15, deadline=None, suppress_health_check=slow_reading)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the traces are written, one over the other."""
    return tmp_path_factory.mktemp("laws")


def run(trace: Trace, folder: Path, window: WindowRequest | None = None) -> Explained:
    """Written, read, explained."""
    return explain([trace.write(folder / "trace.json")], window=window)


def told(device: DeviceResult) -> dict[str, int]:
    """The numbers of a device as the report tells them."""
    split = device.funnel.split
    return {
        "span_ns": split.wall_ns,
        "busy_ns": split.busy_ns,
        "compute_ns": split.compute.total,
        "memset_ns": split.memset.total,
        "communication_ns": split.communication_ns,
        "exposed_communication_ns": split.exposed_communication.total,
        "memcpy_ns": split.memcpy_ns,
        "exposed_memcpy_ns": split.exposed_memcpy.total,
    }


def assert_closes(found: Explained) -> None:
    """Funnels close, causes sum to idle, groups to the time without compute, one cause a gap."""
    report, analysis = found.report, found.analysis
    total = [] if report.funnel is None else [report.funnel]
    for funnel in (*total, *report.device_funnels, *report.step_funnels):
        assert funnel.residuals() == {}
        assert all(row.duration_ns >= 0 for row in funnel.rows)
    without_compute = 0
    for device in analysis.devices:
        split, totals, gaps = device.funnel.split, device.totals, device.gaps
        assert sum(totals.idle_ns.values()) == split.idle_ns == int(gaps.duration_ns.sum())
        assert sum(totals.num_gaps.values()) == len(gaps.cause)
        assert (gaps.start[1:] > gaps.end[:-1]).all()
        assert (gaps.duration_ns > 0).all()
        assert ((gaps.cause >= 0) & (gaps.cause < len(CAUSES))).all()
        assert totals.idle_ns["unattributed"] == 0
        assert sum(totals.communication_ns.values()) == split.exposed_communication.total
        assert sum(totals.memcpy_ns.values()) == split.exposed_memcpy.total
        assert sum(device.funnel.family_ns.values()) == split.compute.total
        without_compute += split.wall_ns - split.compute.total - split.memset.total
    assert sum(analysis.totals.groups_ns().values()) == without_compute
    for counter in (analysis.totals.idle_ns, analysis.totals.communication_ns):
        assert all(value >= 0 for value in counter.values())


@some
@given(plan=plans())
def test_whole_files_equal_the_slow_version_and_close(plan: Plan, folder: Path) -> None:
    found = run(plan.trace(), folder)
    assert_closes(found)
    expected = slow.works(found.capture)
    assert {device.work.device_id for device in found.analysis.devices} == set(expected)
    facts: Any = found.report.facts["devices"]
    for device, fact in zip(found.analysis.devices, facts, strict=True):
        rows = expected[device.work.device_id]
        low, high = slow.whole(rows)
        assert told(device) == asdict(slow.numbers(rows, low, high))
        assert fact["whole_file"]["span_ns"] == high - low
        assert fact["whole_file"]["busy_ns"] == slow.length(row.span for row in rows)
        assert fact["whole_file"]["num_kernels"] == len(rows)
        assert {key: fact["window"][key] for key in told(device)} == told(device)


@some
@given(plan=plans(), part=st.tuples(st.integers(0, 1000), st.integers(0, 1000)))
def test_windows_equal_the_slow_version_and_close(
    plan: Plan, part: tuple[int, int], folder: Path
) -> None:
    whole = run(plan.trace(), folder)
    origin = min(device.whole.window_start_ns for device in whole.analysis.devices)
    last = max(device.whole.window_end_ns for device in whole.analysis.devices)
    low, high = sorted((last - origin) * share // 1000 for share in part)
    assume(low < high)
    found = run(plan.trace(), folder, WindowRequest(from_ns=low, to_ns=high))
    assert_closes(found)
    expected = slow.works(found.capture)
    for device, before in zip(found.analysis.devices, whole.analysis.devices, strict=True):
        rows = expected[device.work.device_id]
        numbers = slow.numbers(rows, origin + low, origin + high)
        assert told(device) == asdict(numbers)
        for key, value in told(device).items():
            # The window of a device may begin before its own first work and end after its last.
            assert key == "span_ns" or value <= told(before)[key]


@some
@given(plan=plans(steps=7))
def test_windows_of_steps_equal_the_slow_version_and_close(plan: Plan, folder: Path) -> None:
    found = run(plan.trace(), folder)
    assert_closes(found)
    expected = slow.works(found.capture)
    window = found.analysis.window
    for device in found.analysis.devices:
        work = device.work
        numbers = slow.numbers(expected[work.device_id], work.window_start_ns, work.window_end_ns)
        assert told(device) == asdict(numbers)
        assert window.start_ns <= work.window_start_ns <= work.window_end_ns <= window.end_ns
        assert (device.spans.start <= device.spans.end).all()


@few
@given(plan=plans(devices=1), cuts=st.lists(st.integers(1, 999), min_size=1, max_size=3))
def test_the_parts_of_a_window_add_up(plan: Plan, cuts: list[int], folder: Path) -> None:
    whole = run(plan.trace(), folder, WindowRequest(from_ns=0)) if _has_length(plan) else None
    assume(whole is not None)
    assert whole is not None
    span = whole.analysis.devices[0].work.span_ns
    edges = sorted({0, span, *(span * share // 1000 for share in cuts)})
    parts = [
        run(plan.trace(), folder, WindowRequest(from_ns=low, to_ns=high))
        for low, high in pairwise(edges)
    ]
    for key, value in told(whole.analysis.devices[0]).items():
        assert sum(told(part.analysis.devices[0])[key] for part in parts) == value, key


def _has_length(plan: Plan) -> bool:
    starts = [piece.start for piece in plan.pieces]
    return max(piece.start + piece.dur for piece in plan.pieces) > min(starts)


@some
@given(
    plan=plans(),
    shift=st.sampled_from((1, 999, 1_712_209_971_234_567_891, -150_000, -10_000_000)),
    base=st.sampled_from((None, 1_767_189_312_000_000_000)),
)
@example(
    # Launches around time 0: no sentinel may look like one.
    plan=Plan(
        [
            Piece(NCCL, 0, 20, 100_000, 45_000, 10_000, 2_000, 0, None),
            Piece(GEMM, 0, 7, 90_000, 10_000, 5_000, 2_000, 0, None),
            Piece(GEMM, 0, 7, 152_000, 10_000, 30_000, 2_000, 0, None),
        ],
        [HostPart("call", "cudaStreamWaitEvent", 0, 2_000, 1_000)],
    ),
    shift=-20_000,
    base=None,
)
def test_moving_all_times_changes_nothing(
    plan: Plan, shift: int, base: int | None, folder: Path
) -> None:
    assume(base is None or shift < 10**15)
    here, there = run(plan.trace(), folder), run(plan.trace(shift=shift, base=base), folder)
    moved = there.analysis.window.start_ns - here.analysis.window.start_ns
    assert moved == shift + (base or 0)
    for one, other in zip(here.analysis.devices, there.analysis.devices, strict=True):
        assert told(other) == told(one)
        assert other.totals == one.totals
    assert there.report.answer == here.report.answer
    assert there.report.funnel == here.report.funnel
    assert [f.sentence for f in there.report.findings] == [f.sentence for f in here.report.findings]


@some
@given(plan=plans(), scale=st.sampled_from((2, 3, 1000)))
def test_stretching_all_times_stretches_all_durations(plan: Plan, scale: int, folder: Path) -> None:
    """Causes may differ, for some have thresholds in microseconds."""
    # A kernel of a millisecond over three others of its stream would count as corrupt.
    assume(scale < 1000 or len(plan.pieces) < 4)
    here, there = run(plan.trace(), folder), run(plan.trace(scale=scale), folder)
    assert_closes(there)
    split_apart = any(note.code == "split-artefact" for note in there.report.notes)
    assume(not split_apart)
    for one, other in zip(here.analysis.devices, there.analysis.devices, strict=True):
        assert told(other) == {key: scale * value for key, value in told(one).items()}
