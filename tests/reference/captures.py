"""Real captures, explained once a session: the report of the whole file and the report by default."""

from __future__ import annotations

import functools
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokenpath.api import WindowRequest, explain, load
from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import intersection
from tokenpath.core.report import FunnelRow, Report
from tokenpath.explain.work import COMMUNICATION, COMPUTE, MEMSET, NO_LAUNCH

REFERENCE_COMMUNICATION = re.compile(
    r"nccl|rccl|deep_ep|cross_device_reduce|all_?reduce|all_?gather|reduce_?scatter|nvshmem"
    r"|one_shot|two_shot|multimem|quick_?reduce",
    re.IGNORECASE,
)
"""The name rule of the independent calculator behind reference_numbers.json."""


@dataclass(frozen=True)
class Explained:
    """What is kept of a capture: the reports and a few counts, not its tables."""

    whole: Report
    """Explained from the first to the last device work."""
    report: Report
    """Explained as a user would: the window is chosen."""
    devices: Mapping[int, Mapping[str, int]]
    """Whole-file numbers by device index, named as in reference_numbers.json."""
    num_events: int
    """Events of the file."""
    num_replays: int
    """Graph launch calls."""
    renamed: Mapping[str, int]
    """Names that the reference's rule takes for communication and ours does not: union of their time."""
    beside_compute_ns: Mapping[int, int]
    """Communication with compute beside it (memsets left out), by device index: the peer's overlap."""
    communication_ns_by_name: Mapping[str, int]
    """Summed time of communication kernels by name."""


def facts(report: Report, index: int | None = None) -> dict[str, Any]:
    """The facts of one device; the only one when none is named."""
    devices: Any = report.facts["devices"]
    if index is None:
        (only,) = devices
        return dict(only)
    (found,) = [device for device in devices if device["index"] == index]
    return dict(found)


def funnel_row(report: Report, key: str) -> FunnelRow:
    """A row of the total funnel."""
    assert report.funnel is not None
    (row,) = [row for row in report.funnel.rows if row.key == key]
    return row


def idle_percent(report: Report) -> float:
    """Idle over the window, in per cent."""
    assert report.funnel is not None
    return 100 * funnel_row(report, "idle").duration_ns / report.funnel.wall_ns


def explained(root: Path, *names: str) -> Explained:
    """The capture in these files below `root`, read together."""
    return _explained(tuple(root / name for name in names))


@functools.cache
def _explained(paths: tuple[Path, ...]) -> Explained:
    capture = load(paths)
    has_work = capture.num_rows("kernel") > 0
    whole = explain(capture, window=WindowRequest(from_ns=0) if has_work else None)
    result = explain(capture)
    devices: dict[int, dict[str, int]] = {}
    beside: dict[int, int] = {}
    windows: Any = whole.report.facts["devices"]
    graph_calls = _graph_calls(capture)
    for device, overlaps, told in zip(
        whole.analysis.devices, whole.analysis.overlaps, windows, strict=True
    ):
        work = device.whole
        launched = work.launch_start != NO_LAUNCH
        together = intersection(work.busy(COMMUNICATION), work.busy(COMPUTE))
        beside[told["index"]] = together.total
        devices[told["index"]] = {
            "gpu_events": told["whole_file"]["num_kernels"],
            "kernels": int(np.isin(work.kind, (COMPUTE, COMMUNICATION)).sum()),
            "streams": len(np.unique(work.stream)),
            "span_ns": told["whole_file"]["span_ns"],
            "busy_ns": told["whole_file"]["busy_ns"],
            "idle_ns": told["window"]["span_ns"] - told["window"]["busy_ns"],
            "compute_union_ns": told["window"]["compute_ns"],
            "comm_union_ns": told["window"]["communication_ns"],
            "exposed_comm_ns": told["window"]["exposed_communication_ns"],
            "memcpy_union_ns": told["window"]["memcpy_ns"],
            "memset_union_ns": work.busy(MEMSET).total,
            "sum_dur_ns": int((work.end - work.start).sum()),
            "max_gap_ns": int(device.gaps.duration_ns.max()) if len(device.gaps.start) else 0,
            "graph_launched_gpu_events": int(graph_calls[work.call[launched]].sum()),
            "gpu_events_without_launch": int((~launched).sum()),
            "same_stream_overlaps": overlaps.num_overlaps,
            "zero_dur": int((work.end == work.start).sum()),
        }
    return Explained(
        whole=whole.report,
        report=result.report,
        devices=devices,
        num_events=sum(capture["source"]["num_events"].to_pylist()),
        num_replays=result.analysis.coverage.num_replays,
        renamed=_renamed(capture),
        beside_compute_ns=beside,
        communication_ns_by_name=_by_name(capture),
    )


def _graph_calls(capture: Capture) -> np.ndarray:
    codes, names = capture.codes("api_call", "name")
    is_graph = np.array(["graphlaunch" in name.lower() for name in names] or [False], np.bool_)
    return is_graph[codes] if len(codes) else np.zeros(0, np.bool_)


def _kernels(capture: Capture) -> list[tuple[str, str, int]]:
    columns = capture["kernel"].select(["name", "kind", "start_ns", "end_ns"]).to_pydict()
    lengths = [
        end - start for start, end in zip(columns["start_ns"], columns["end_ns"], strict=True)
    ]
    return list(zip(columns["name"], columns["kind"], lengths, strict=True))


def _renamed(capture: Capture) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, kind, length in _kernels(capture):
        if kind == "compute" and REFERENCE_COMMUNICATION.search(name):
            found[name] = found.get(name, 0) + length
    return found


def _by_name(capture: Capture) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, kind, length in _kernels(capture):
        if kind == "communication":
            found[name] = found.get(name, 0) + length
    return found


def extract_dlrm(root: Path, folder: Path) -> Sequence[Path]:
    """The eight ranks of the DLRM run, in order of rank."""
    with tarfile.open(root / "traces/param/dlrm_kineto_8ranks.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return sorted(folder.rglob("*.json"))
