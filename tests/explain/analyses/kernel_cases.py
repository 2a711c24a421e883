"""Kernels in a row on one device, each launched by an operator with shapes, as a Kineto trace.

run = Run().step("execute_32_context_0(...)...")
run.kernel(GEMM, 40, op="aten::mm", dims=[[4096, 4096], [4096, 4096]])
findings_of(run, tmp_path)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.traces import Trace
from tokenpath.api.explain import explain
from tokenpath.core.finding import Finding, Kind
from tokenpath.core.report import Report
from tokenpath.explain.analyses.contract import Options

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_kernel"
SGEMM = "ampere_sgemm_128x64_tn"
NORM = "void vllm::rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16 const*)"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>)"
)
MUL = ADD.replace("CUDAFunctor_add", "MulFunctor")
SILU = ADD.replace("CUDAFunctor_add", "silu_kernel").replace("3ul", "2ul")
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::lambda>(int)"
)
ATTENTION = (
    "void vllm::paged_attention_v1_kernel<__nv_bfloat16, __nv_bfloat16, 128, 16, 128>(float*)"
)
BF16 = "c10::BFloat16"


@dataclass
class Run:
    """A trace whose kernels follow each other without a gap; times in microseconds."""

    trace: Trace = field(default_factory=lambda: Trace(rank=0, world_size=1))
    at_us: float = 1000.0
    """Where the next kernel starts."""
    number: int = 0
    """Correlation ids so far."""
    marks: list[tuple[str, float]] = field(default_factory=list)
    """Steps: label, start on the host."""
    host_us: float = 0.0
    """Where the next launch begins: the host is far ahead of the device."""

    def step(self, label: str) -> Run:
        """All kernels until the next step belong to this one."""
        self.marks.append((label, self.host_us))
        return self

    def kernel(
        self,
        name: str,
        dur_us: float,
        *,
        op: str | None = None,
        dims: object = None,
        types: object = None,
        gap_us: float = 0.0,
        **launch: Any,
    ) -> Run:
        """The next kernel of stream 7."""
        self.number += 1
        self.at_us += gap_us
        begin = self.host_us = self.host_us + 0.4
        self.at_us = max(self.at_us, begin + 5.0)
        correlation = 5_000 + self.number
        if op is not None:
            if types is None and isinstance(dims, list):
                types = [BF16] * len(dims)
            self.trace.op(op, begin - 0.05, 0.3, external_id=correlation, dims=dims, types=types)
        self.trace.launch(begin, 0.1, correlation=correlation, external_id=correlation)
        for ours, theirs in (("registers", "registers per thread"), ("shared", "shared memory")):
            if ours in launch:
                launch[theirs] = launch.pop(ours)
        self.trace.kernel(
            name, self.at_us, dur_us, correlation=correlation, external_id=correlation, **launch
        )
        self.at_us += dur_us
        return self

    def finish(self) -> Trace:
        """The trace with its steps written down."""
        ends = [start for _, start in self.marks[1:]] + [self.host_us + 0.4]
        for (label, start), end in zip(self.marks, ends, strict=False):
            self.trace.range(label, start + 0.2, end - start - 0.02)
        self.marks = []
        return self.trace


def report_of(run: Run, folder: Path, price: float | None = None) -> Report:
    """The report of a run."""
    path = run.finish().write(folder / "trace.json")
    return explain([path], options=Options(usd_per_gpu_hour=price)).report


def costs(report: Report, *codes: str) -> list[Finding]:
    """Cost findings, of these codes when some are named."""
    return [f for f in report.findings if f.kind is Kind.COST and (not codes or f.code in codes)]


def columns(report: Report, key: str) -> list[dict[str, Any]]:
    """The rows of a table as dictionaries."""
    (table,) = [table for table in report.tables if table.key == key]
    return [dict(zip([c.key for c in table.columns], row, strict=True)) for row in table.rows]
