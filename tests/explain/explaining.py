"""Explain a small trace, and read the numbers off the report as a user would."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingest.traces import Trace
from tokenpath.api import WindowRequest, explain
from tokenpath.api.explain import Explained
from tokenpath.core.report import Note, Report, ShownTable

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
CUSTOM = (
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 4>(vllm::RankData*, vllm::RankSignals, "
    "vllm::Signal*, __nv_bfloat16*, int, int)"
)
DEEPEP = "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8, 2, 16, 24>(int4*, float*)"


def explained(trace: Trace, folder: Path, window: WindowRequest | None = None) -> Explained:
    """Write the trace, read it and explain it."""
    return explain([trace.write(folder / "trace.json")], window=window)


def report_of(trace: Trace, folder: Path, window: WindowRequest | None = None) -> Report:
    """The report alone."""
    return explained(trace, folder, window).report


def absent(report: Report, part: str) -> dict[str, int]:
    """Time without compute of one part (`idle`, `exposed_communication`, `exposed_memcpy`) by cause."""
    told: Any = report.facts["compute_absent"]
    return {key: value for key, value in told[f"{part}_ns"].items() if value}


def device(report: Report, index: int = 0) -> Mapping[str, Any]:
    """The facts of a device."""
    devices: Any = report.facts["devices"]
    (found,) = [row for row in devices if row["index"] == index]
    return dict(found)


def window_of(report: Report, index: int = 0) -> Mapping[str, Any]:
    """The window numbers of a device."""
    return dict(device(report, index)["window"])


def rows_of(report: Report) -> dict[str, int]:
    """Rows of the total funnel by key."""
    assert report.funnel is not None
    return {row.key: row.duration_ns for row in report.funnel.rows}


def notes(report: Report, code: str) -> list[Note]:
    """The notes of a code."""
    return [note for note in report.notes if note.code == code]


def codes(report: Report) -> set[str]:
    """Codes of all notes, the always present share of unclassified kernels left out."""
    return {note.code for note in report.notes} - {"unclassified-kernels"}


def table(report: Report, key: str) -> ShownTable:
    """A table of the report."""
    (found,) = [item for item in report.tables if item.key == key]
    return found


def cells(report: Report, key: str) -> list[dict[str, Any]]:
    """The rows of a table as dictionaries."""
    shown = table(report, key)
    names = [column.key for column in shown.columns]
    return [dict(zip(names, row, strict=True)) for row in shown.rows]
