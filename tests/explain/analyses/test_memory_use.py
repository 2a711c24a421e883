"""What device memory is made of, what was missing, and whether it grows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from explain.explaining import report_of
from explain.serving import SOURCE
from ingest.traces import Trace
from tokenpath.api import explain
from tokenpath.capture.capture import Capture, build_table
from tokenpath.core.finding import Finding
from tokenpath.core.report import Report

GIB = 2**30
STACKS = {
    "weights": "weight_utils.py(3): safetensors_weights_iterator;loader.py(9): load_weights",
    "KV cache": "gpu_model_runner.py(1): _allocate_kv_cache_tensors",
    "activations": "torch/nn/functional.py(2): silu;model.py(4): forward",
    "optimizer": "torch/optim/adamw.py(2): _init_group",
    "unknown": None,
}


def snapshot(pieces: list[tuple[str, float]], oom_gib: float | None = None) -> Capture:
    """Blocks of (use or `free`, GiB), one segment each."""
    blocks: list[dict[str, Any]] = [
        {
            "source_id": 0, "device_index": 0, "segment_address": number << 40, "address": number << 40,
            "segment_bytes": int(gib * GIB), "bytes": int(gib * GIB), "pool": "large",
            "state": "free" if use == "free" else "allocated", "call_stack": STACKS.get(use),
        }
        for number, (use, gib) in enumerate(pieces)
    ]  # fmt: skip
    tables = {
        "source": build_table("source", {key: [value] for key, value in SOURCE.items()}),
        "memory_block": build_table("memory_block", {k: [b[k] for b in blocks] for k in blocks[0]}),
    }
    if oom_gib is not None:
        event = {"source_id": 0, "at_ns": 5, "action": "oom", "bytes": int(oom_gib * GIB)}
        tables["memory_event"] = build_table("memory_event", {k: [v] for k, v in event.items()})
    return Capture(tables)


def one(report: Report, code: str) -> Finding:
    (finding,) = [f for f in report.findings if f.code == code]
    return finding


def test_an_out_of_memory_names_its_uses_by_size() -> None:
    pieces = [
        ("weights", 14.0),
        ("KV cache", 40.0),
        ("activations", 6.0),
        ("unknown", 1.0),
        ("free", 0.5),
    ]
    finding = one(explain(snapshot(pieces, oom_gib=2.0)).report, "out-of-memory")
    assert "KV cache 40.0, weights 14.0, activations 6.0, unknown 1.0, free 0.5" in finding.sentence
    assert "FP8 KV" in finding.fix
    again = one(explain(snapshot(pieces[::-1], oom_gib=2.0)).report, "out-of-memory")
    assert again.sentence == finding.sentence


def test_free_memory_in_pieces() -> None:
    pieces = [("weights", 10.0), *[("free", 0.5)] * 8]
    finding = one(explain(snapshot(pieces)).report, "memory-fragmentation")
    assert finding.value == pytest.approx(4 / 14)
    whole = explain(snapshot([("weights", 10.0), ("free", 4.0)])).report
    assert not whole.findings


def growing(tmp_path: Path, keeps: bool) -> Report:
    """Twenty steps; each takes memory from the driver, and gives it back unless it is kept."""
    trace, now, correlation = Trace(), 0, 0
    for step in range(20):
        trace.complete("user_annotation", f"ProfilerStep#{step}", now, 4_900, 100, 100, {})
        for number in range(10):
            correlation += 1
            begin = now + 50 + number * 20
            trace.complete(
                "cuda_runtime", "cudaLaunchKernel", begin, 5, 100, 100, {"correlation": correlation}
            )
            trace.kernel("gemm", begin + 10, 300 if number == 9 else 10, correlation=correlation)
        for name, at in (("cudaMalloc", 1_000), *(() if keeps else (("cudaFree", 2_000),))):
            trace.complete("cuda_runtime", name, now + at, 900, 100, 100, {})
        now += 3_000
    if keeps:
        for number in range(10):
            trace.complete("cuda_runtime", "cudaFree", now + number * 900, 890, 100, 100, {})
        correlation += 1
        now += 9_100
        trace.complete(
            "cuda_runtime", "cudaLaunchKernel", now, 5, 100, 100, {"correlation": correlation}
        )
        trace.kernel("gemm", now + 10, 300, correlation=correlation)
    return report_of(trace, tmp_path)


def test_memory_that_grows_until_the_allocator_flushes(tmp_path: Path) -> None:
    finding = one(growing(tmp_path, keeps=True), "memory-growth")
    assert finding.details["per_step"] == pytest.approx(1, abs=0.1)
    assert finding.duration_ns is not None
    assert sum(finding.part_of_ns.values()) == finding.duration_ns


def test_memory_that_is_given_back_does_not_grow(tmp_path: Path) -> None:
    codes = [f.code for f in growing(tmp_path, keeps=False).findings]
    assert "allocator-stall" in codes
    assert "memory-growth" not in codes


def test_a_real_out_of_memory() -> None:
    data = os.environ.get("TOKENPATH_REFERENCE_DATA")
    if data is None:
        pytest.skip("TOKENPATH_REFERENCE_DATA is not set")
    path = Path(data) / "traces" / "memory" / "rank0_memory_snapshot.pickle"
    finding = one(explain([path]).report, "out-of-memory")
    assert "activations 29.0" in finding.sentence
    assert "checkpointing" in finding.fix


def test_cold_start_by_phase() -> None:
    rows = [
        ("Overall Loading", 0, 100),
        ("Load model", 10, 70),
        ("Load weights", 20, 60),
        ("step", 200, 300),
    ]
    span = {
        "source_id": [0] * 4, "trace_id": ["a" * 32] * 4, "span_id": [f"{n:016x}" for n in range(4)],
        "name": [row[0] for row in rows], "start_ns": [row[1] for row in rows],
        "end_ns": [row[2] for row in rows],
    }  # fmt: skip
    made = snapshot([("weights", 1.0)])
    made = made.replace({"span": build_table("span", span)})
    from tokenpath.core.finding import Status
    from tokenpath.explain.analyses.contract import Context
    from tokenpath.explain.analyses.host_cold_start import analyse as cold_start
    from tokenpath.explain.analysis import analyse
    from tokenpath.explain.request import WindowRequest

    context = Context(made, analyse(made, WindowRequest()), Status.MEASURED)
    (table,) = cold_start(context).tables
    assert [row[:3] for row in table.rows] == [
        ("Load weights", 40, 40), ("Overall Loading", 40, 100), ("Load model", 20, 60),
    ]  # fmt: skip
