"""Replays of real captures: exact as measured, close on held-out steps, and what the real twins say."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import pytest

from tokenpath.api import WindowRequest, load
from tokenpath.capture.capture import Capture
from tokenpath.core.errors import TokenpathError
from tokenpath.explain.analysis import analyse
from tokenpath.explain.replaying import replay_of
from tokenpath.explain.serving import profiled_steps_only
from tokenpath.replay.critical_path import critical_path
from tokenpath.replay.grammar import parse_what_if
from tokenpath.replay.host_model import held_out_steps
from tokenpath.replay.replay import Replay

EXACT = (
    *("hta/critical_path/alexnet/*.gz", "hta/critical_path/cuda_event_sync/*.gz"),
    *("hta/critical_path/cuda_event_sync_multi_stream/*.gz", "hta/critical_path/simple_add/*.gz"),
    *("hta/amd_trace/*.gz", "hta/mtia_trace_single_rank/*.gz", "hta/trace_diff/*/*.gz"),
    *("hta/ns_resolution_trace/*.gz", "hta/negative_queue_length_values_check/*.gz"),
    *("kineto/resnet50_num_workers_*/*.gz", "deepseek/*.gz", "vllm_tracemap/*.gz"),
    *("tracelens/h100/*.gz", "tracelens/mi300/*.gz", "tracelens/mi210/*/*.gz"),
    *("tracelens/inference/*/*.gz", "tracelens/rocprof/*.gz"),
    *("nsys/*.sqlite", "xplane/*.pb", "param/*_kineto.json.gz"),
)
"""Captures of every format and vendor."""
HELD_OUT = {
    "hta/trace_diff/control/*.gz": 0.05,
    "hta/trace_diff/test/*.gz": 0.05,
    "hta/ns_resolution_trace/*.gz": 0.05,
    "hta/df_index_resolver/*.gz": 0.05,
    "tracelens/mi300/resnet_act_checkpoint.json.gz": 0.05,
    # Hundreds of launches are not in the file: half of its path is delay without a cause,
    # and `explain` refuses to replay it.
    "hta/negative_queue_length_values_check/*.gz": 0.13,
}
"""Captures with three steps or more, and the error of their spans that is allowed."""


@functools.lru_cache(maxsize=2)
def replayed(*paths: Path) -> tuple[Replay, Capture]:
    capture = profiled_steps_only(load(list(paths)))
    return replay_of(analyse(capture, WindowRequest())), capture


def files(root: Path, pattern: str) -> list[Path]:
    return sorted(root.glob(pattern))


@pytest.mark.parametrize("pattern", EXACT)
def test_timed_again_as_measured_nothing_moves(traces: Path, pattern: str) -> None:
    found = files(traces, pattern)
    assert found
    for path in found:
        try:
            replay, capture = replayed(path)
        except TokenpathError:
            assert "CORRUPT" in path.name
            continue
        assert replay.is_exact(), path
        for device in replay.in_windows:
            path_through = critical_path(capture, replay, device)
            assert sum(path_through.parts_ns.values()) == path_through.wall_ns


@pytest.mark.parametrize("pattern", HELD_OUT)
def test_steps_are_foretold_from_the_others(traces: Path, pattern: str) -> None:
    (path,) = files(traces, pattern)
    replay, capture = replayed(path)
    found = held_out_steps(capture, replay, replay.windows[0])
    assert found is not None
    assert abs(found.span_error) <= HELD_OUT[pattern]


def test_eight_ranks_hang_together(dlrm: Sequence[Path]) -> None:
    replay, capture = replayed(*dlrm)
    assert replay.is_exact()
    assert len(replay.graph.collectives) == 8
    through = {critical_path(capture, replay, device).num_sources for device in replay.in_windows}
    assert max(through) == 2
    (balanced,) = parse_what_if("balance ranks").build(capture, replay)
    assert replay.what_if(balanced).gain_ns > 0


def test_the_data_loader_of_a_resnet_without_workers(traces: Path) -> None:
    """The real twin has 4 workers: 801.6 ms. The replay removes loading and nothing else: 712.0 ms."""
    (slow,), (fast,) = (
        files(traces, f"kineto/resnet50_num_workers_{workers}/*.gz") for workers in (0, 4)
    )
    replay, capture = replayed(slow)
    (change,) = parse_what_if("remove op=dataloader").build(capture, replay)
    expected = sum(replay.what_if(change).wall_ns)
    other, _ = replayed(fast)
    measured = sum(window.end_ns - window.start_ns for window in other.windows)
    # Workers take processor time from the launching thread, which a replay cannot know.
    assert 0.85 <= expected / measured <= 1.0
