"""One rank of a run as torch.profiler's file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from isal import igzip
from numpy.typing import NDArray

from tokenpath.lab.kineto import rows
from tokenpath.lab.kineto.text import NOTHING, NULL, Texts
from tokenpath.lab.machine import loop as at
from tokenpath.lab.machine.plan import Run
from tokenpath.lab.machine.script import ANNOTATION, FRAME, OP, Label
from tokenpath.lab.programs.plan import Program
from tokenpath.lab.programs.setup import Setup

I64 = NDArray[np.int64]
TICK_NS = 32
"""Device times are multiples of this, as on Hopper GPUs."""
MEMORY = "cpu_instant_event"
_SYNC_KINDS = {
    at.SYNC_EVENT: "Event Sync",
    at.SYNC_STREAM: "Stream Sync",
    at.SYNC_DEVICE: "Context Sync",
}
_CBIDS = {
    "cudaLaunchKernel": 211, "cudaLaunchKernelExC": 430, "cudaMemcpyAsync": 41, "cudaMemsetAsync": 51,
    "cudaEventRecord": 135, "cudaStreamWaitEvent": 147, "cudaEventSynchronize": 137,
    "cudaStreamSynchronize": 131, "cudaDeviceSynchronize": 165, "cudaGraphLaunch": 311, "cudaMalloc": 20,
    "cudaFree": 22, "cudaStreamIsCapturing": 317, "cuLaunchKernel": 307, "cuModuleLoadData": 49,
    "cudaEventQuery": 136,
}  # fmt: skip


@dataclass(frozen=True)
class Clock:
    """How a rank's host counts time."""

    base_ns: int
    """`baseTimeNanoseconds`."""
    origin_ns: int
    """Time of the run's moment 0 after that."""
    drift: float = 0.0
    """Relative error of its rate."""

    def read(self, ns: I64) -> I64:
        """What it shows at moments of the run."""
        return (ns + (ns * self.drift).astype(np.int64)) + self.origin_ns


@dataclass
class _File:
    """The rows of one file."""

    texts: Texts = field(default_factory=Texts)
    pieces: list[I64] = field(default_factory=list)
    numbers: list[I64] = field(default_factory=list)

    def add(self, pieces: Sequence[I64 | int], numbers: Sequence[I64 | int], count: int) -> None:
        """Rows of pieces and numbers, each a column or one value for all."""
        self.pieces.append(_table(pieces, 6, 0, count))
        self.numbers.append(_table(numbers, 5, NOTHING, count))


def _table(columns: Sequence[I64 | int], width: int, rest: int, count: int) -> I64:
    table = np.full((count, width), rest, np.int64)
    for number, column in enumerate(columns):
        table[:, number] = column
    return table


def write_rank(
    path: Path, run: Run, program: Program, setup: Setup, rank: int, clock: Clock, ids: rows.Ids
) -> None:
    """Write the events of a rank; the file is gzip."""
    file = _File()
    correlation = np.zeros(len(run.code), np.int64)
    external = np.full(len(run.code), -1, np.int64)
    host = [label for label, _ in sorted(run.labels.host.items(), key=lambda item: item[1])]
    category = np.array([_CATEGORIES.get(label.category, 3) for label in host], np.int64)
    first, last = (
        run.thread_rows[rank * run.num_threads, 0],
        run.thread_rows[(rank + 1) * run.num_threads - 1, 1],
    )
    own = np.arange(first, last)
    own = own[run.label[own] >= 0]
    own = own[np.argsort(run.calls[own, 0], kind="stable")]
    kind = category[run.label[own]]
    ranged = own[(kind == 0) | (kind == 1)]
    external[ranged] = ids.external + np.arange(len(ranged))
    calls = own[kind == 3]
    correlation[calls] = ids.correlation + np.cumsum(ids.steps(len(calls)))
    begin, end = clock.read(run.calls[:, 0]), clock.read(run.calls[run.pair, 1])
    thread_of = np.searchsorted(run.thread_rows[:, 1], own, side="right") - rank * run.num_threads
    for code, rows_of in ((0, "op"), (1, "annotation"), (2, "frame"), (3, "call"), (4, "instant")):
        if rows_of == "frame" and not setup.with_stack:
            continue
        for thread in range(run.num_threads):
            chosen = own[(kind == code) & (thread_of == thread)]
            tid = ids.tids[thread]
            if rows_of == "frame":
                _frames(file, run, program, host, chosen, begin, end, ids, thread)
            elif rows_of == "call":
                _calls(file, run, host, chosen, begin, end, correlation, external, ids.pid, tid)
            elif rows_of == "instant":
                _instants(file, run, host, chosen, begin, ids.pid, tid)
            else:
                _ranges(file, run, host, chosen, begin, end, external, ids.pid, tid)
    _device(file, run, rank, clock, correlation, external)
    if setup.with_syncs:
        _syncs(file, run, rank, clock, correlation, own)
    notes = own[kind == 1]
    _device_ranges(file, run, rank, clock, host, notes, external)
    first_ns = int(begin[own].min())
    wall = int(end[own].max()) - first_ns
    head = rows.header(setup, program, rank, ids)
    middle = rows.metadata(program, rank, ids, first_ns)
    tail = rows.footer(clock.base_ns, ids, first_ns, wall)
    body = file.texts.render(file.pieces, file.numbers)
    with igzip.open(path, "wb", compresslevel=1) as out:
        out.write(head.encode() + body + middle.encode() + tail.encode())


_CATEGORIES = {OP: 0, ANNOTATION: 1, FRAME: 2, MEMORY: 4}


def _lookup(file: _File, host: Sequence[Label], used: I64, before: str, after: str) -> I64:
    """Piece of each label: the start of its event up to `ts`."""
    found = np.zeros(len(host), np.int64)
    for number in np.unique(used):
        label = host[int(number)]
        name = json.dumps(label.name)
        text = f'  {{\n    {before}"cat": "{label.category}", "name": {name}, {after}'
        found[number] = file.texts.of(text)
    return found


def _ranges(
    file: _File,
    run: Run,
    host: Sequence[Label],
    chosen: I64,
    begin: I64,
    end: I64,
    external: I64,
    pid: int,
    tid: int,
) -> None:
    """Operators and annotations."""
    labels = run.label[chosen]
    starts = _lookup(file, host, labels, '"ph": "X", ', f'"pid": {pid}, "tid": {tid},\n    "ts": ')
    middle = np.zeros(len(host), np.int64)
    for number in np.unique(labels):
        args = host[int(number)].args
        more = f" {args}," if args else ""
        middle[number] = file.texts.of(f',"Record function id": 0,{more} "Ev Idx": ')
    piece = file.texts.of
    file.add(
        (
            starts[labels],
            piece(', "dur": '),
            piece(',\n    "args": {\n      "External id": '),
            middle[labels],
            piece("\n    }\n  },\n"),
        ),
        (begin[chosen], (end - begin)[chosen], external[chosen], external[chosen] - 1),
        len(chosen),
    )


def _frames(
    file: _File,
    run: Run,
    program: Program,
    host: Sequence[Label],
    chosen: I64,
    begin: I64,
    end: I64,
    ids: rows.Ids,
    thread: int,
) -> None:
    """Python frames; those that are open all the time come first."""
    pid, tid, piece = ids.pid, ids.tids[thread], file.texts.of
    where = f'"pid": {pid}, "tid": {tid},\n    "ts": '
    rows_of = run.thread_rows
    window = np.concatenate([begin[rows_of[:, 0]], end[rows_of[:, 1] - 1]])
    start, stop = int(window.min()) - 40_000, int(window.max()) + 20_000
    outer = program.threads[thread].frames
    base = 1 + sum(len(known.frames) for known in program.threads[:thread]) + 100_000 * thread
    ending = (
        piece(', "dur": '),
        piece(',\n    "args": {\n      "Python parent id": '),
        piece(', "Python id": '),
        piece(', "Ev Idx": '),
        piece("\n    }\n  },\n"),
    )
    for depth, name in enumerate(outer):
        text = f'  {{\n    "ph": "X", "cat": "{FRAME}", "name": {json.dumps(name)}, {where}'
        parent = NULL if depth == 0 else base + depth - 1
        numbers = (start + 700 * depth, stop - start - 1_400 * depth, parent, base + depth, depth)
        file.add((piece(text), *ending), numbers, 1)
    own = np.full(len(run.code), -1, np.int64)
    own[chosen] = base + len(outer) + np.arange(len(chosen))
    parents = run.frame[chosen]
    parent = np.where(parents < 0, base + len(outer) - 1, own[parents])
    labels = run.label[chosen]
    starts = _lookup(file, host, labels, '"ph": "X", ', where)
    file.add(
        (starts[labels], *ending),
        (begin[chosen], (end - begin)[chosen], parent, own[chosen], own[chosen] + ids.external),
        len(chosen),
    )


def _calls(
    file: _File,
    run: Run,
    host: Sequence[Label],
    chosen: I64,
    begin: I64,
    end: I64,
    correlation: I64,
    external: I64,
    pid: int,
    tid: int,
) -> None:
    """Runtime calls, and the arrows that leave them."""
    labels, piece = run.label[chosen], file.texts.of
    where = f'"pid": {pid}, "tid": {tid},\n    "ts": '
    starts = _lookup(file, host, labels, '"ph": "X", ', where)
    cbid = np.zeros(len(host), np.int64)
    for number in np.unique(labels):
        known = _CBIDS.get(host[int(number)].name, 0)
        cbid[number] = piece(f'"cbid": {known}, "correlation": ')
    op = run.op[chosen]
    has_op = op >= 0
    ext = np.where(has_op, external[op], NOTHING)
    opening = piece(',\n    "args": {\n      "External id": '), piece(',\n    "args": {\n      ')
    comma, plain = piece(",      "), piece("")
    file.add(
        (
            starts[labels],
            piece(', "dur": '),
            np.where(has_op, *opening),
            np.where(has_op, comma, plain),
            cbid[labels],
            piece("\n    }\n  },\n"),
        ),
        (begin[chosen], (end - begin)[chosen], ext, NOTHING, correlation[chosen]),
        len(chosen),
    )
    launching = chosen[np.isin(run.code[chosen, 0], (at.LAUNCH, at.LAUNCH_BLOCKING))]
    text = f'"pid": {pid}, "tid": {tid},\n    "cat": "ac2g", "name": "ac2g", "id": '
    file.add(
        (piece('  {\n    "ph": "s", "ts": '), piece(", " + text), 0, piece("\n  },\n")),
        (begin[launching], NOTHING, correlation[launching]),
        len(launching),
    )


def _instants(
    file: _File, run: Run, host: Sequence[Label], chosen: I64, begin: I64, pid: int, tid: int
) -> None:
    """Events of the allocator."""
    for row in chosen:
        label = host[int(run.label[row])]
        text = (
            f'  {{\n    "ph": "i", "cat": "{label.category}", "s": "t", "name": "{label.name}", '
            f'"pid": {pid}, "tid": {tid},\n    "ts": '
        )
        args = f',\n    "args": {{\n      {label.args}, "Ev Idx": {int(row)}\n    }}\n  }},\n'
        file.add((file.texts.of(text), file.texts.of(args)), (int(begin[row]),), 1)


def _device(
    file: _File,
    run: Run,
    rank: int,
    clock: Clock,
    correlation: I64,
    external: I64,
) -> None:
    """Kernels and copies, and the arrows that reach them."""
    first, last = run.rank_works[rank]
    own = np.arange(first, last)
    own = own[run.work_label[own] >= 0]
    own = own[np.argsort(run.times[own, 1], kind="stable")]
    labels = [label for label, _ in sorted(run.labels.device.items(), key=lambda item: item[1])]
    piece = file.texts.of
    start = clock.read(run.times[own, 1]) // TICK_NS * TICK_NS
    stop = np.maximum(clock.read(run.times[own, 2]) // TICK_NS * TICK_NS, start)
    streams = run.works[own, 0] - rank * run.streams
    in_graph = run.graph[own] >= 0
    op = run.op[run.launch[own]]
    has_op = (op >= 0) & ~in_graph
    key = (run.work_label[own] * run.streams + streams) * 4 + has_op * 2 + in_graph
    heads, tails = {}, {}
    for value in np.unique(key):
        number, bits = divmod(int(value), 4)
        number, stream = divmod(number, run.streams)
        label = labels[number]
        tid = rows.STREAM_IDS[stream]
        heads[int(value)] = piece(
            f'  {{\n    "ph": "X", "cat": "{label.category}", "name": {json.dumps(label.name)}, '
            f'"pid": {rank}, "tid": {tid},\n    "ts": '
        )
        queued = '"queued": 0, ' if label.category == "kernel" else ""
        opening = "," if bits & 2 else ""
        text = f'{opening}      {queued}"device": {rank}, "context": 1,      "stream": {tid}, "correlation": '
        tails[int(value)] = (
            piece(text),
            piece(f",      {label.args}" + (', "graph node id": ' if bits & 1 else "")),
        )
    values, inverse = np.unique(key, return_inverse=True)
    head = np.array([heads[int(v)] for v in values], np.int64)[inverse]
    before = np.array([tails[int(v)][0] for v in values], np.int64)[inverse]
    after = np.array([tails[int(v)][1] for v in values], np.int64)[inverse]
    closings = [
        piece(f', "graph id": {graph}\n    }}\n  }},\n')
        for graph in range(int(run.graph.max()) + 1)
    ]
    closing = np.array([*closings, piece("\n    }\n  },\n")], np.int64)[run.graph[own]]
    with_op, without = piece(',\n    "args": {\n      "External id": '), piece(',\n    "args": {\n')
    own_correlation = correlation[run.launch[own]]
    file.add(
        (head, piece(', "dur": '), np.where(has_op, with_op, without), before, after, closing),
        (
            start,
            stop - start,
            np.where(has_op, external[op], NOTHING),
            own_correlation,
            np.where(in_graph, run.node[own] + 1, NOTHING),
        ),
        len(own),
    )
    for stream in range(run.streams):
        mine = streams == stream
        text = f', "pid": {rank}, "tid": {rows.STREAM_IDS[stream]},\n    "cat": "ac2g", "name": "ac2g", "id": '
        file.add(
            (piece('  {\n    "ph": "f", "ts": '), piece(text), 0, piece(', "bp": "e"\n  },\n')),
            (start[mine], NOTHING, own_correlation[mine]),
            int(mine.sum()),
        )


def _syncs(file: _File, run: Run, rank: int, clock: Clock, correlation: I64, own: I64) -> None:
    """What the host waited for, and waits of streams: libkineto notes them at the time of their calls."""
    first, last = run.rank_works[rank]
    waits = first + np.flatnonzero(run.works[first:last, 1] == at.WAIT)
    records = run.event_work[run.works[waits, 5]]
    for wait, record in zip(waits.tolist(), records.tolist(), strict=True):
        stream = rows.STREAM_IDS[int(run.works[wait, 0]) - rank * run.streams]
        on = rows.STREAM_IDS[int(run.works[record, 0]) - rank * run.streams]
        launch = int(run.launch[wait])
        recorded = int(correlation[run.launch[record]])
        _sync(
            file, "Stream Wait Event", rank, stream, on, recorded, int(run.works[wait, 5]) % 64,
            int(correlation[launch]), clock.read(run.calls[launch]),
        )  # fmt: skip
    for row in own[np.isin(run.code[own, 0], tuple(_SYNC_KINDS))].tolist():
        what = int(run.code[row, 0])
        stream, on, recorded, event = -1, -1, -1, -1
        if what == at.SYNC_EVENT:
            event = int(run.code[row, 1])
            record = int(run.event_work[event])
            on = rows.STREAM_IDS[int(run.works[record, 0]) - rank * run.streams]
            recorded = int(correlation[run.launch[record]])
            event %= 64
        elif what == at.SYNC_STREAM:
            stream = rows.STREAM_IDS[int(run.code[row, 1]) - rank * run.streams]
        _sync(
            file, _SYNC_KINDS[what], rank, stream, on, recorded, event, int(correlation[row]),
            clock.read(run.calls[row]),
        )  # fmt: skip


def _sync(
    file: _File,
    kind: str,
    rank: int,
    stream: int,
    on: int,
    recorded: int,
    event: int,
    correlation: int,
    times: I64,
) -> None:
    inset = min(300, int(times[1] - times[0]) // 3)
    text = f'  {{\n    "ph": "X", "cat": "cuda_sync", "name": "{kind}", "pid": {rank}, "tid": {stream},\n    "ts": '
    opening = (
        f',\n    "args": {{\n      "cuda_sync_kind": "{kind}",      "stream": {stream},      "device": {rank}, '
        '"context": 1'
    )
    if kind in ("Event Sync", "Stream Wait Event"):
        opening += f',      "wait_on_stream": {on}'
        parts = (',      "wait_on_cuda_event_record_corr_id": ', ', "wait_on_cuda_event_id": ')
        last = ', "correlation": '
        piece = file.texts.of
        file.add(
            (piece(text), piece(', "dur": '), piece(opening + parts[0]), piece(parts[1]), piece(last),
             piece("\n    }\n  },\n")),
            (int(times[0]) + inset, int(times[1] - times[0]) - 2 * inset, recorded, event, correlation),
            1,
        )  # fmt: skip
        return
    file.add(
        (file.texts.of(text), file.texts.of(', "dur": '), file.texts.of(opening + ', "correlation": '),
         file.texts.of("\n    }\n  },\n")),
        (int(times[0]) + inset, int(times[1] - times[0]) - 2 * inset, correlation),
        1,
    )  # fmt: skip


def _device_ranges(
    file: _File,
    run: Run,
    rank: int,
    clock: Clock,
    host: Sequence[Label],
    notes: I64,
    external: I64,
) -> None:
    """Annotations over what was launched in them, on each stream."""
    piece = file.texts.of
    for row in notes.tolist():
        first, last = np.searchsorted(run.launch, (row, run.pair[row]))
        works = np.arange(first, last)
        works = works[run.work_label[works] >= 0]
        streams = run.works[works, 0] - rank * run.streams
        for stream in np.unique(streams).tolist():
            mine = works[streams == stream]
            times = clock.read(np.array([run.times[mine, 1].min(), run.times[mine, 2].max()]))
            times = times // TICK_NS * TICK_NS
            name = json.dumps(host[int(run.label[row])].name)
            text = (
                f'  {{\n    "ph": "X", "cat": "gpu_user_annotation", "name": {name}, "pid": {rank}, '
                f'"tid": {rows.STREAM_IDS[stream]},\n    "ts": '
            )
            opening = piece(',\n    "args": {\n      "External id": ')
            file.add(
                (piece(text), piece(', "dur": '), opening, piece("\n    }\n  },\n")),
                (int(times[0]), int(times[1] - times[0]), int(external[row])),
                1,
            )
