"""How long a collective should take: the alpha-beta model over ring, tree and in-switch reduction.

Time = a fixed part + hops x latency + bytes sent / (rate x efficiency); the fastest algorithm counts
(`core.costs.collective_ns`; Hockney 1994; Thakur, Rabenseifner, Gropp 2005). The model is an interval: its
ends are the best and the poorest of what healthy links of that kind show. Where the constants come from:
of NVLink 4's 450 GB/s NCCL's protocols leave 370 in rings, and the switch's own reduction gives 480 GB/s of
bus bandwidth (NVIDIA/nccl-tests issue 212); of xGMI's 64 GB/s a link 48 are left (AMD, "Understanding RCCL
Bandwidth and xGMI Performance on MI300X", 2025); all-reduces of 64 KiB, 1, 4, 16 and 32 MiB over 8 such NVLink
devices take 19, 28, 53, 121 and 195 us with launch (nccl-tests table in kvcache-ai/Mooncake pull request 3484).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s
from tokenpath.core.costs import CollectiveOp, collective_ns
from tokenpath.core.hardware import load_catalogue

OPS: dict[str, CollectiveOp] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "broadcast",
    "sendrecv": "p2p",
    "send": "p2p",
    "recv": "p2p",
}
"""Operations of table `collective` in the words of `core.costs`; a reduce sends what a broadcast does."""
MAX_SCALE_UP_RANKS = 8
"""Larger groups may leave the server; its network is not in the catalogue."""


@dataclass(frozen=True)
class _Link:
    fixed_ns: float
    latency_ns: float
    efficiency: float


_BEST = _Link(2_000.0, 500.0, 1.0)
_TYPICAL = _Link(6_000.0, 1_000.0, 0.75)
_POOREST = _Link(15_000.0, 3_000.0, 0.45)


@dataclass(frozen=True)
class Expected:
    """What a healthy link does."""

    low_ns: float
    """The best that is seen."""
    typical_ns: float
    """In the middle."""
    high_ns: float
    """The poorest that is still healthy."""
    wire_ns: float
    """Time of the bytes alone at the link's full rate."""


def expected(
    op: str, buffer_bytes: int, num_ranks: int, bytes_per_s: float, has_switch: bool
) -> Expected | None:
    """Expected time of one collective; None for operations that the model does not know.

    `buffer_bytes` is the whole buffer of a rank: the output of an all-gather, else the input.
    """
    name = OPS.get(op)
    if name is None or num_ranks < 2:
        return None
    low, typical, high = (
        _fastest(name, buffer_bytes, num_ranks, bytes_per_s, has_switch, link)
        for link in (_BEST, _TYPICAL, _POOREST)
    )
    wire = _fastest(name, buffer_bytes, num_ranks, bytes_per_s, has_switch, _Link(0.0, 0.0, 1.0))
    return Expected(low, typical, high, wire)


def _fastest(
    op: CollectiveOp,
    buffer_bytes: int,
    num_ranks: int,
    bytes_per_s: float,
    has_switch: bool,
    link: _Link,
) -> float:
    rate = bytes_per_s * link.efficiency
    times = [
        collective_ns(op, buffer_bytes, num_ranks, latency_ns=link.latency_ns, bytes_per_s=rate)
    ]
    if op in ("all_reduce", "broadcast"):
        times.append(
            collective_ns(
                op, buffer_bytes, num_ranks,
                latency_ns=link.latency_ns, bytes_per_s=rate, algorithm="tree",
            )
        )  # fmt: skip
    if op == "all_reduce" and has_switch and link.efficiency == 1.0:
        # NVLink-SHARP: each rank sends its buffer once, the switch adds (NCCL 2.17, algorithm NVLS). Typical
        # transfers below 100 MiB gain nothing by it.
        times.append(2 * link.latency_ns + buffer_bytes / rate * 1e9)
    return link.fixed_ns + min(times)


def typical_fixed_ns(num_ranks: Int64s) -> NDArray[np.float64]:
    """The part of a typical collective that does not depend on its size: the start, and the hops up and down a tree."""
    hops = 2 * np.log2(np.maximum(num_ranks, 1))
    result: NDArray[np.float64] = _TYPICAL.fixed_ns + hops * _TYPICAL.latency_ns
    return result


def one_shot_ns(buffer_bytes: int, num_ranks: int, bytes_per_s: float) -> float:
    """An all-reduce in one kernel in which each rank reads all others' buffers: a fixed part and the reads.

    A public vLLM trace of four H100 shows a median of 4 us for decode's small messages.
    """
    return 4_000.0 + (num_ranks - 1) * buffer_bytes / (0.75 * bytes_per_s) * 1e9


@dataclass(frozen=True)
class Peak:
    """The link of a device to its peers."""

    bytes_per_s: float
    """What it can send in one direction to the peers of its group."""
    name: str
    """`NVLink 4`."""
    has_switch: bool
    """Whether its switch can reduce."""


_WIRED = {"xGMI, seven links": 7, "NVLink 2": 3}
"""Links that lead straight to single peers: how many peers it takes to use all of them. An MI300X has one
link to each of its seven peers; a V100 without a switch has two of its six to one peer at most."""


def peak_of(hardware: str | None, num_ranks: int) -> Peak | None:
    """The scale-up link of a catalogue entry; None where unknown, or where the group leaves the server."""
    if hardware is None or not 2 <= num_ranks <= MAX_SCALE_UP_RANKS:
        return None
    part = load_catalogue().get(hardware)
    if part is None or part.scale_up_bytes_per_s is None or part.scale_up is None:
        return None
    if "optional" in part.scale_up or ("two cards" in part.scale_up and num_ranks > 2):
        return None  # the card may have no bridge at all
    name = part.scale_up.split(",")[0]
    share = min(1.0, (num_ranks - 1) / _WIRED.get(part.scale_up, 1))
    return Peak(part.scale_up_bytes_per_s * share, name, name in ("NVLink 4", "NVLink 5"))
