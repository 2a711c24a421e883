"""Collectives: which kernel moves the bytes, and how long the transfer takes (alpha and beta)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenpath.core.costs import CollectiveOp, collective_ns
from tokenpath.lab.kernels.catalogue import Kernels
from tokenpath.lab.machine.script import Work
from tokenpath.lab.programs.setup import Setup

_NAMES: dict[CollectiveOp, str] = {
    "all_reduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "all_gather": "ncclDevKernel_AllGather_RING_LL",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
    "all_to_all": "ncclDevKernel_SendRecv",
}
_CALLS: dict[CollectiveOp, str] = {
    "all_reduce": "allreduce",
    "all_gather": "_allgather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "all_to_all": "all_to_allv",
}
_ARGS = "(ncclDevKernelArgsStorage<4096ul>)"
ONE_SHOT_BYTES = 1 << 19
"""Up to this size vLLM's and SGLang's own all-reduce is taken on NVLink; above it NCCL."""


@dataclass
class Collectives:
    """The collectives of one step, numbered in the order of their launch."""

    setup: Setup
    """The scenario."""
    kernels: Kernels
    """Writes the kernels."""
    link: float = 1.0
    """Factor on the time of transfers."""
    transfers: list[float] = field(default_factory=list)
    """Length of each, in ns."""

    def add(
        self, op: CollectiveOp, payload_bytes: float, *, in_graph: bool = False, parts: int = 1
    ) -> tuple[Work, int]:
        """One more, one of `parts` that one buffer was cut into: its kernel and its number."""
        ranks = self.setup.ranks
        rate = self.setup.gpu.hardware.scale_up_bytes_per_s or 2e11
        ns = collective_ns(
            op,
            payload_bytes,
            ranks,
            latency_ns=700.0,
            bytes_per_s=rate * self.setup.bus_share / self.link,
        )
        number = len(self.transfers)
        if op == "all_reduce" and payload_bytes * parts <= ONE_SHOT_BYTES and in_graph:
            stage = "1" if payload_bytes <= (1 << 18) or ranks == 2 else "2"
            sent = payload_bytes * (ranks - 1) / (1 if stage == "1" else ranks / 2)
            self.transfers.append(3_000.0 * self.link + sent / (rate * 0.75) * 1e9 * self.link)
            text = (
                f"void vllm::cross_device_reduce_{stage}stage<__nv_bfloat16, {ranks}>(vllm::RankData*, "
                "vllm::RankSignals, vllm::Signal*, __nv_bfloat16*, int, int)"
            )
            blocks = min(36, max(2, int(payload_bytes / 8192)))
            return self.kernels.collective(text, blocks, 512, 48, 0), number
        self.transfers.append(self.setup.alpha_ns + ns)
        blocks = 24 if payload_bytes > (1 << 20) else 8
        text = f"{_NAMES[op]}{_ARGS}"
        more = "" if in_graph else self.describe(op, payload_bytes)
        return self.kernels.collective(text, blocks, 544, 96, 103_072, more), number

    def describe(self, op: CollectiveOp, payload_bytes: float) -> str:
        """Arguments that the profiler notes at kernels and operators of c10d."""
        ranks = self.setup.ranks
        elements = int(payload_bytes / 2)
        sent = elements // ranks if op == "all_gather" else elements
        got = elements // ranks if op == "reduce_scatter" else elements
        members = ", ".join(str(rank) for rank in range(ranks))
        return (
            f'"Collective name": "{_CALLS[op]}", "dtype": "BFloat16", "In msg nelems": {sent}, '
            f'"Out msg nelems": {got}, "Group size": {ranks}, "Process Group Name": "0", '
            f'"Process Group Description": "default_pg", "Process Group Ranks": "[{members}]", '
            f'"In split size": "[]", "Out split size": "[]"'
        )
