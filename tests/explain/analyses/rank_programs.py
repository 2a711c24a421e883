"""A small program on several ranks, as tables: compute, then a collective that ends for all at once.

    capture(program(num_ranks=4, host_ns=lambda rank, step: 50_000 if rank == 2 else 0))

Every rank has a clock, a file and a device of its own; stretches of compute lie between collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from explain.serving import SOURCE
from tokenpath.capture.capture import Capture, build_table
from tokenpath.core.finding import Status
from tokenpath.core.report import Report
from tokenpath.explain.analyses.contract import Context
from tokenpath.explain.analyses.registry import ANALYSES, run_all
from tokenpath.explain.analysis import analyse
from tokenpath.explain.report import build_report
from tokenpath.explain.request import WindowRequest

FAMILIES = ("gemm", "norm", "moe", "elementwise")
NAMES = {family: f"{family}_kernel" for family in FAMILIES}


@dataclass
class Rows:
    """Rows of `kernel` and `collective` under construction."""

    kernel: list[dict[str, Any]] = field(default_factory=list)
    collective: list[dict[str, Any]] = field(default_factory=list)

    def work(self, rank: int, start: int, length: int, family: str, **more: Any) -> int:
        """One kernel of a rank; its row."""
        self.kernel.append(
            {
                "source_id": rank, "device_id": rank, "stream_id": more.pop("stream", 7),
                "start_ns": start, "end_ns": start + length,
                "name": more.pop("name", f"{family}_kernel"), "family": family,
                "kind": "communication" if family == "communication" else "compute",
                "grid": more.pop("grid", [100, 1, 1]), **more,
            }
        )  # fmt: skip
        return len(self.kernel) - 1

    def collect(self, rank: int, kernel: int, match: int | None, **more: Any) -> None:
        """Say of which collective a kernel is a part."""
        self.collective.append(
            {"source_id": rank, "kernel_id": kernel, "match": match,
             "op": more.pop("op", "allreduce"), **more}
        )  # fmt: skip


def program(
    num_ranks: int = 4,
    num_steps: int = 12,
    host_ns: Callable[[int, int], int] = lambda rank, step: 0,
    speed: Callable[[int, str], float] = lambda rank, family: 1.0,
    grid: Callable[[int, str], int] = lambda rank, family: 100,
    name: Callable[[int, str], str] = lambda rank, family: f"{family}_kernel",
    transfer_ns: int = 20_000,
    clock_ns: Callable[[int], int] = lambda rank: 0,
    seed: int = 0,
) -> Rows:
    """Each step: `host_ns` of nothing, four kernels, an all-reduce of the whole world."""
    random = np.random.default_rng(seed)
    rows, free = Rows(), np.zeros(num_ranks, np.int64)
    for step in range(num_steps):
        arrived = np.zeros(num_ranks, np.int64)
        for rank in range(num_ranks):
            at = int(free[rank]) + 2_000 + host_ns(rank, step)
            for family in FAMILIES:
                length = round(40_000 * speed(rank, family) * random.normal(1, 0.01))
                rows.work(
                    rank, at + clock_ns(rank), length, family,
                    name=name(rank, family), grid=[grid(rank, family), 1, 1],
                )  # fmt: skip
                at += length + 500
            arrived[rank] = at
        end = int(arrived.max()) + transfer_ns
        for rank in range(num_ranks):
            start = int(arrived[rank])
            row = rows.work(
                rank, start + clock_ns(rank), end - start, "communication", name="all_reduce_ring"
            )
            rows.collect(rank, row, step)
        free[:] = end
    return rows


def capture(rows: Rows, ranks: Sequence[int] | None = None, hardware: str | None = None) -> Capture:
    """The tables; `ranks` gives the rank of each source."""
    num = 1 + max(row["source_id"] for row in rows.kernel)
    ranks = range(num) if ranks is None else ranks
    source: dict[str, list[Any]] = {key: [value] * num for key, value in SOURCE.items()}
    source |= {
        "rank": list(ranks),
        "host": [f"host{r}" for r in ranks],
        "path": [f"{r}.json" for r in ranks],
    }
    device: dict[str, list[Any]] = {
        "source_id": list(range(num)),
        "index": list(ranks),
        "name": ["GPU"] * num,
    }
    if hardware is not None:
        device["hardware"] = [hardware] * num
    keys = {key for row in rows.kernel for key in row}
    tables = {
        "source": build_table("source", source),
        "device": build_table("device", device),
        "kernel": build_table("kernel", {k: [row.get(k) for row in rows.kernel] for k in keys}),
    }
    keys = {key for row in rows.collective for key in row}
    if keys:
        tables["collective"] = build_table(
            "collective", {k: [row.get(k) for row in rows.collective] for k in keys}
        )
    return Capture(tables)


OWN = ("stragglers", "communication")


def report(rows: Rows, **more: Any) -> Report:
    """What the analyses of ranks and communication say about it."""
    return report_of(capture(rows, **more), OWN)


def report_of(made: Capture, modules: Sequence[str]) -> Report:
    """The report with these analyses alone."""
    analysis = analyse(made, WindowRequest())
    context = Context(made, analysis, Status.SYNTHETIC)
    return build_report(analysis, run_all(context, [e for e in ANALYSES if e.module in modules]))
