"""Small programs of several ranks, run by a loop of their own: what a profiler would see, and the wall.

Each rank has a host thread that launches onto a compute and a communication stream, waits now and then, and meets
the others in collectives. A changed program is run again, so what a change would bring is known.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from replay.runs import Call, Kernel, run
from tokenpath.capture.capture import Capture

LAUNCH_US, WAIT_US = 3, 2
COMPUTE, COMMUNICATION = 7, 20


@dataclass(frozen=True)
class Item:
    """One thing that a host thread does."""

    what: str
    """`kernel`, `collective` or `wait`."""
    host_us: int
    """Host time before it."""
    duration_us: int = 0
    """Of a kernel, or of the data's way in a collective."""
    family: str = "gemm"
    """Of a kernel."""
    pause_us: int = 0
    """Host time before it that should not be: the stretch ends where the call begins."""


Program = list[list[Item]]
"""One list a rank; all ranks have as many collectives."""


@dataclass
class Seen:
    """What a profiler writes down of a run."""

    calls: list[Call]
    kernels: list[Kernel]
    families: list[str]
    ranks: list[int]
    collectives: list[tuple[int, int]]
    pauses: list[tuple[int, int, int]]
    """Rank, start and end of each pause."""

    def capture(self, num_ranks: int) -> Capture:
        more = {}
        if self.collectives:
            kernels = [kernel for kernel, _ in self.collectives]
            more["collective"] = {
                "source_id": [self.ranks[kernel] for kernel in kernels],
                "op": ["allreduce"] * len(kernels),
                "kernel_id": kernels,
                "match": [number for _, number in self.collectives],
            }
        return run(
            self.calls,
            self.kernels,
            rank_of_thread=range(num_ranks),
            rank_of_kernel=self.ranks,
            families=self.families,
            **more,
        )


def run_program(program: Program) -> tuple[Seen, int]:
    """Run all ranks; what is seen, and the walls of their devices summed."""
    seen = Seen([], [], [], [], [], [])
    ranks = [_rank(number, items, seen) for number, items in enumerate(program)]
    waiting = [next(rank, None) for rank in ranks]
    number = 0
    while any(arrival is not None for arrival in waiting):
        arrived = [arrival for arrival in waiting if arrival is not None]
        release = max(start for start, _ in arrived)
        for at, arrival in enumerate(waiting):
            if arrival is None:
                continue
            try:
                waiting[at] = ranks[at].send((release + arrival[1], number))
            except StopIteration:
                waiting[at] = None
        number += 1
    wall = 0
    for rank in range(len(program)):
        own = [kernel for kernel, of in zip(seen.kernels, seen.ranks, strict=True) if of == rank]
        wall += max(kernel[4] for kernel in own) - min(kernel[3] for kernel in own)
    return seen, wall


def _rank(
    rank: int, items: Sequence[Item], seen: Seen
) -> Generator[tuple[int, int], tuple[int, int], None]:
    now = 0
    free = {COMPUTE: 0, COMMUNICATION: 0}
    for index, item in enumerate(items):
        # Ways between host and device differ from time to time, the same in every run of the program.
        latency, handover, back = 4 + index * 7 % 5, 1 + index * 5 % 3 // 2, 7 + index * 3 % 7
        now += item.host_us
        if item.pause_us:
            seen.pauses.append((rank, now, now + item.pause_us))
            now += item.pause_us
        call = now
        if item.what == "wait":
            busy = max(free.values())
            now = max(now + WAIT_US, busy + back if busy > now else 0)
            seen.calls.append((rank, "cudaStreamSynchronize", call, now))
            continue
        now += LAUNCH_US
        seen.calls.append((rank, "cudaLaunchKernel", call, now))
        launch = len(seen.calls) - 1
        is_collective = item.what == "collective"
        stream = COMMUNICATION if is_collective else COMPUTE
        # Communication waits for compute, and the next compute for it: events that nobody recorded.
        start = max([call + latency, *(end + handover for end in free.values() if end)])
        end, number = start + item.duration_us, -1
        if is_collective:
            end, number = yield start, item.duration_us
            seen.collectives.append((len(seen.kernels), number))
        seen.kernels.append(
            (launch, stream, "communication" if is_collective else "compute", start, end)
        )
        seen.families.append("communication" if is_collective else item.family)
        seen.ranks.append(rank)
        free[stream] = end


def random_program(seed: int, num_ranks: int, *, host_us: float, kernel_us: float) -> Program:
    """Twelve rounds of kernels with a collective each; a wait after every third."""
    rng = np.random.default_rng(seed)
    shape = [
        (str(rng.choice(["gemm", "norm"])), int(rng.lognormal(np.log(kernel_us), 0.5)) + 2)
        for _ in range(12)
    ]
    program: Program = []
    for _ in range(num_ranks):
        items = []
        for round_ in range(12):
            for family, duration in shape:
                host = int(rng.lognormal(np.log(host_us), 0.6)) + 1
                jitter = int(duration * rng.normal(1, 0.03)) + 1
                items.append(Item("kernel", host, jitter, family))
            if num_ranks > 1:
                items.append(Item("collective", 5, 40))
            if round_ % 3 == 2:
                items.append(Item("wait", 3))
        program.append(items)
    return program


def changed(program: Program, factor: float, *, family: str = "", what: str = "") -> Program:
    """Kernels of a family, or items of a kind, that take `factor` times as long."""
    return [
        [
            replace(item, duration_us=round(item.duration_us * factor))
            if item.what == what or (item.what == "kernel" and item.family == family)
            else item
            for item in items
        ]
        for items in program
    ]
