"""From templates to the arrays of the loop: steps x ranks x threads, each with its own noise.

Noise: lengths of host work are lognormal with the spread that their script states and now and then an
interruption; lengths of kernels are lognormal with a spread that falls with their length, as measured
(`noise.py`). What a fault put in draws from a stream of its own, so that the rest of the run meets the
same luck with and without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenpath.lab.machine import loop as at
from tokenpath.lab.machine import noise
from tokenpath.lab.machine.script import Labels, Template

I64 = NDArray[np.int64]
ALWAYS_COMPILED = 1 << 30
"""So many rows that the loop is compiled: each turn looks at all threads and streams."""
STREAMS = 4
"""Streams of a device: compute, communication, copies out, copies in."""


@dataclass(frozen=True)
class Step:
    """One step of one rank: what each of its threads runs."""

    templates: tuple[Template | None, ...]
    """One a thread; None: nothing in this step."""
    names: Mapping[str, int] = field(default_factory=dict)
    """Host labels for the named slots."""
    context: float = 1.0
    """Factor on the works that grow with the context."""
    roles: Mapping[str, float] = field(default_factory=dict)
    """Factors on the works of a role, in this step and rank."""
    transfers: tuple[float, ...] = ()
    """Lengths of the step's collectives in ns, by number; the same on all ranks."""
    start_at_ns: int | None = None
    """Not before this time: no work was there."""


@dataclass(frozen=True)
class Conditions:
    """What happens to hosts and devices from outside."""

    speed: tuple[tuple[tuple[int, float], ...], ...] = ()
    """For each rank: from when on kernels take how many times as long."""
    taken: tuple[tuple[tuple[int, int], ...], ...] = ()
    """For each rank: from when to when another process has the device."""
    slow: tuple[float, float] = (1.0, 1.0)
    """Factors on kernels and on collectives that run side by side."""
    off_cpu: Mapping[tuple[int, int], tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """For (rank, thread): when the thread loses its core, and for how long."""


@dataclass(frozen=True)
class Run:
    """A run: what was planned and when it happened; rows of hosts and devices, all ranks one after another."""

    labels: Labels
    """Names of the labels."""
    num_ranks: int
    """Ranks."""
    num_threads: int
    """Threads of each rank."""
    thread_rows: I64
    """(ranks x threads, 2): first and last + 1 instruction."""
    code: I64
    """Instructions."""
    calls: I64
    """(instructions, 2): start and end in ns."""
    label: I64
    """Host label of each instruction."""
    pair: I64
    """Row of the END of a BEGIN."""
    op: I64
    """Row of the innermost operator around, or -1."""
    frame: I64
    """Row of the innermost frame around, or -1."""
    rank_works: I64
    """(ranks, 2): first and last + 1 work."""
    works: I64
    """Work as the loop takes it."""
    times: I64
    """(works, 3): arrival, start, end in ns."""
    work_label: I64
    """Device label, or -1 for records and waits."""
    role: I64
    """Role of each work."""
    launch: I64
    """Row of the launching instruction."""
    node: I64
    """Number within the graph, or -1."""
    graph: I64
    """Number of the graph, or -1."""
    event_work: I64
    """Work that records each event."""
    streams: int = STREAMS
    """Streams of each device."""

    @property
    def wall_ns(self) -> int:
        """From the first to the last moment of hosts and devices."""
        written = self.label >= 0
        first = min(int(self.calls[written, 0].min()), int(self.times[:, 1].min()))
        last = max(int(self.calls[written, 1].max()), int(self.times[:, 2].max()))
        return last - first


def play(
    labels: Labels,
    steps: Sequence[Sequence[Step]],
    conditions: Conditions,
    seed: int,
    daemons: Sequence[bool],
    num_events: int,
    num_collectives: int,
) -> Run:
    """Lay out the steps of each rank and run them; RuntimeError when a thread never ends."""
    num_ranks, num_threads = len(steps), len(daemons)
    parts: dict[str, list[NDArray[np.int64]]] = {
        name: [] for name in ("code", "label", "pair", "op", "frame")
    }
    work_parts: dict[str, list[NDArray[np.int64]]] = {
        name: [] for name in ("works", "label", "role", "launch", "node", "graph")
    }
    thread_rows, rank_works = [], []
    transfers = np.zeros(len(steps[0]) * num_collectives, np.int64)
    rows = num_works = 0
    for rank, own in enumerate(steps):
        first_work = num_works
        for thread in range(num_threads):
            first_row = rows
            for number, step in enumerate(own):
                template = step.templates[thread]
                if template is None:
                    continue
                rng = np.random.Generator(np.random.SFC64([seed, rank, thread, number]))
                luck = np.random.Generator(np.random.SFC64([seed, rank, thread, number, 1]))
                code = template.code.copy()
                spread = noise.host_factors(template.spread, template.extra, rng, luck)
                code[:, 3] = (code[:, 3] * spread).astype(np.int64)
                what = code[:, 0]
                launches = (what == at.LAUNCH) | (what == at.LAUNCH_BLOCKING)
                code[launches, 1] += num_works
                in_time = what == at.SYNC_EVENT
                if in_time.any():
                    code[in_time, 1] += (number - code[in_time, 2]) * num_events
                    too_early = in_time & (code[:, 2] > number)
                    code[too_early, 0] = at.SPEND
                streams = what == at.SYNC_STREAM
                code[streams, 1] += rank * STREAMS
                signals = (what == at.SIGNAL) | (what == at.WAIT_SIGNAL)
                code[signals, 1] += (rank * len(own) + number) * num_events
                if step.start_at_ns is not None:
                    code[0, 0], code[0, 3] = at.SLEEP_UNTIL, step.start_at_ns
                works = template.works.copy()
                length = works[:, 2].astype(np.float64)
                length[template.scales] *= step.context
                for role, factor in step.roles.items():
                    length[template.role == labels.of_role(role)] *= factor
                luck_works = noise.work_lengths(length, template.work_extra, rng, luck)
                kind = works[:, 1]
                works[:, 2] = np.where(kind == at.COLLECTIVE, works[:, 2] * 0, luck_works)
                works[:, 3], works[:, 4] = noise.delays(works, template.graph, rng)
                together = kind == at.COLLECTIVE
                works[together, 2] = rng.integers(0, 700, int(together.sum()))
                works[together, 5] += number * num_collectives
                events = (kind == at.RECORD) | (kind == at.WAIT)
                works[events, 5] += number * num_events
                works[:, 0] += rank * STREAMS
                label = template.label.copy()
                for slot, name in step.names.items():
                    if slot in template.slots:
                        label[template.slots[slot]] = name
                parts["code"].append(code)
                parts["label"].append(label)
                parts["pair"].append(template.pair + rows)
                parts["op"].append(np.where(template.op < 0, -1, template.op + rows))
                parts["frame"].append(np.where(template.frame < 0, -1, template.frame + rows))
                at_rows = np.flatnonzero(launches)
                launch = np.repeat(at_rows + rows, code[at_rows, 2])
                work_parts["launch"].append(launch)
                work_parts["works"].append(works)
                work_parts["label"].append(template.work_label)
                work_parts["role"].append(template.role)
                work_parts["node"].append(template.node)
                work_parts["graph"].append(template.graph)
                rows += len(code)
                num_works += len(works)
                if rank == 0 and step.transfers:
                    begin = number * num_collectives
                    moved = noise.transfer_lengths(np.array(step.transfers), rng)
                    transfers[begin : begin + len(moved)] = moved
            thread_rows.append((first_row, rows))
        rank_works.append((first_work, num_works))
    code = np.concatenate(parts["code"])
    works = np.ascontiguousarray(np.concatenate(work_parts["works"]))
    events = works[:, 1] == at.RECORD
    num_event_ids = max(1, len(steps[0]) * num_events)
    # The same event name is another event on each rank.
    rank_of_work = np.repeat(np.arange(num_ranks), [last - first for first, last in rank_works])
    is_event = events | (works[:, 1] == at.WAIT)
    works[is_event, 5] += rank_of_work[is_event] * num_event_ids
    rank_of_row = np.repeat(
        np.arange(num_ranks * num_threads) // num_threads, [b - a for a, b in thread_rows]
    )
    syncs = code[:, 0] == at.SYNC_EVENT
    code[syncs, 1] += rank_of_row[syncs] * num_event_ids
    event_work = np.full(num_ranks * num_event_ids, -1, np.int64)
    event_work[works[events, 5]] = np.flatnonzero(events)
    label, pair = np.concatenate(parts["label"]), np.concatenate(parts["pair"])
    call_times, work_times = _run(
        code,
        np.array(thread_rows, np.int64),
        works,
        conditions,
        transfers,
        num_ranks,
        daemons,
        num_ranks * num_event_ids,
        num_ranks * len(steps[0]) * max(1, num_events),
    )
    _cut(call_times, label, pair)
    return Run(
        labels=labels,
        num_ranks=num_ranks,
        num_threads=num_threads,
        thread_rows=np.array(thread_rows, np.int64),
        code=code,
        calls=call_times,
        label=label,
        pair=pair,
        op=np.concatenate(parts["op"]),
        frame=np.concatenate(parts["frame"]),
        rank_works=np.array(rank_works, np.int64),
        works=works,
        times=work_times,
        work_label=np.concatenate(work_parts["label"]),
        role=np.concatenate(work_parts["role"]),
        launch=np.concatenate(work_parts["launch"]),
        node=np.concatenate(work_parts["node"]),
        graph=np.concatenate(work_parts["graph"]),
        event_work=event_work,
    )


def _cut(calls: I64, label: I64, pair: I64) -> None:
    """What a daemon never did is not there; what it was in the middle of ends with the run."""
    never = calls[:, 1] == 0
    last = int(calls[:, 1].max())
    begun = np.flatnonzero((pair != np.arange(len(pair))) & ~never & never[pair])
    calls[pair[begun]] = last
    label[never] = -1


def _run(
    code: I64,
    thread_rows: I64,
    works: I64,
    conditions: Conditions,
    transfers: I64,
    num_ranks: int,
    daemons: Sequence[bool],
    num_events: int,
    num_signals: int,
) -> tuple[I64, I64]:
    """Fill the arrays of the loop and run it: times of the instructions and of the works."""
    num_threads = len(daemons)
    total = num_ranks * num_threads
    threads = np.zeros((total, 11), np.int64)
    threads[:, 10] = np.tile(np.array(daemons, np.int64), num_ranks)
    threads[:, 1] = thread_rows[:, 0]
    threads[:, 2] = -1
    threads[:, 4] = np.arange(total) // num_threads
    off_cpu: list[tuple[int, int]] = []
    for place in range(total):
        threads[place, 8] = len(off_cpu)
        off_cpu += conditions.off_cpu.get(divmod(place, num_threads), ())
        threads[place, 9] = len(off_cpu)
    num_streams = num_ranks * STREAMS
    of_stream = np.zeros((num_streams, 2), np.int64)
    of_stream[:, 1] = np.arange(num_streams) // STREAMS
    counts = np.bincount(works[:, 0], minlength=num_streams)
    of_stream[1:, 0] = np.cumsum(counts)[:-1]
    streams = np.zeros((num_streams, 6), np.int64)
    streams[:, 1] = at.NEVER
    streams[:, 4] = -(1 << 40)
    together = works[works[:, 1] == at.COLLECTIVE, 5]
    sizes = np.bincount(together, minlength=max(1, len(transfers)))
    collectives = np.zeros((len(sizes), 4), np.int64)
    collectives[:, 0] = sizes
    collectives[1:, 1] = np.cumsum(sizes)[:-1]
    collectives[: len(transfers), 3] = transfers
    ranks = np.zeros((num_ranks, 8), np.int64)
    ranks[:, 7] = -1
    speed: list[tuple[int, float]] = []
    taken: list[tuple[int, int]] = []
    for rank in range(num_ranks):
        ranks[rank, 3] = len(speed)
        speed += [(-(1 << 40), 1.0), *(conditions.speed[rank] if conditions.speed else ())]
        ranks[rank, 4] = len(speed)
        ranks[rank, 5] = len(taken)
        taken += conditions.taken[rank] if conditions.taken else ()
        ranks[rank, 6] = len(taken)
    call_times = np.zeros((len(code), 2), np.int64)
    work_times = np.zeros((len(works), 3), np.int64)
    stuck = at.run_loop(ALWAYS_COMPILED)(
        np.ascontiguousarray(code),
        np.ascontiguousarray(thread_rows),
        np.array(off_cpu, np.int64).reshape(-1, 2),
        works,
        of_stream,
        np.zeros(max(1, len(works)), np.int64),
        collectives,
        np.zeros(max(1, int(sizes.sum())), np.int64),
        np.array([when for when, _ in speed], np.int64),
        np.array([factor for _, factor in speed], np.float64),
        np.array(taken, np.int64).reshape(-1, 2),
        ranks,
        np.tile(np.array(conditions.slow, np.float64), (num_ranks, 1)),
        np.full(max(1, num_events), -1, np.int64),
        np.full(max(1, num_signals), -1, np.int64),
        threads,
        streams,
        np.zeros((num_streams, 2), np.float64),
        np.zeros((num_streams, 2), np.int64),
        call_times,
        work_times,
    )
    if stuck != 0:
        place = stuck - 1
        row = int(threads[place, 1])
        raise RuntimeError(
            f"thread {place % num_threads} of rank {place // num_threads} never ends: instruction "
            f"{row - int(thread_rows[place, 0])} is {code[row].tolist()}"
        )
    return call_times, work_times
