"""One rank of a run as torch.profiler's file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from isal import igzip
from numpy.typing import NDArray

from tokenpath.lab.kineto import device, rows
from tokenpath.lab.kineto.file import Clock, Rows
from tokenpath.lab.kineto.text import NOTHING, NULL
from tokenpath.lab.machine import loop as at
from tokenpath.lab.machine.plan import Run
from tokenpath.lab.machine.script import ANNOTATION, FRAME, OP, Label
from tokenpath.lab.programs.plan import Program
from tokenpath.lab.programs.setup import Setup

I64 = NDArray[np.int64]
MEMORY = "cpu_instant_event"
_CBIDS = {
    "cudaLaunchKernel": 211, "cudaLaunchKernelExC": 430, "cudaMemcpyAsync": 41, "cudaMemsetAsync": 51,
    "cudaEventRecord": 135, "cudaStreamWaitEvent": 147, "cudaEventSynchronize": 137,
    "cudaStreamSynchronize": 131, "cudaDeviceSynchronize": 165, "cudaGraphLaunch": 311, "cudaMalloc": 20,
    "cudaFree": 22, "cudaStreamIsCapturing": 317, "cuLaunchKernel": 307, "cuModuleLoadData": 49,
    "cudaEventQuery": 136,
}  # fmt: skip


def write_rank(
    path: Path, run: Run, program: Program, setup: Setup, rank: int, clock: Clock, ids: rows.Ids
) -> None:
    """Write the events of a rank; the file is gzip."""
    file = Rows()
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
    device.add_work(file, run, rank, clock, correlation, external)
    if setup.with_syncs:
        device.add_waits(file, run, rank, clock, correlation, own)
    notes = own[kind == 1]
    device.add_ranges(file, run, rank, clock, host, notes, external)
    first_ns = int(begin[own].min())
    wall = int(end[own].max()) - first_ns
    head = rows.header(setup, program, rank, ids)
    middle = rows.metadata(program, rank, ids, first_ns)
    tail = rows.footer(clock.base_ns, ids, first_ns, wall)
    body = file.texts.render(file.pieces, file.numbers)
    with igzip.open(path, "wb", compresslevel=1) as out:
        out.write(head.encode() + body + middle.encode() + tail.encode())


_CATEGORIES = {OP: 0, ANNOTATION: 1, FRAME: 2, MEMORY: 4}


def _lookup(file: Rows, host: Sequence[Label], used: I64, before: str, after: str) -> I64:
    """Piece of each label: the start of its event up to `ts`."""
    found = np.zeros(len(host), np.int64)
    for number in np.unique(used):
        label = host[int(number)]
        name = json.dumps(label.name)
        text = f'  {{\n    {before}"cat": "{label.category}", "name": {name}, {after}'
        found[number] = file.texts.of(text)
    return found


def _ranges(
    file: Rows,
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
    file: Rows,
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
    file: Rows,
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
    file: Rows, run: Run, host: Sequence[Label], chosen: I64, begin: I64, pid: int, tid: int
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
