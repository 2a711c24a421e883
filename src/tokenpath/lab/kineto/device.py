"""What the device did, and what waited for it, as events."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenpath.lab.kineto import rows
from tokenpath.lab.kineto.file import TICK_NS, Clock, Rows
from tokenpath.lab.kineto.text import NOTHING
from tokenpath.lab.machine import loop as at
from tokenpath.lab.machine.plan import Run
from tokenpath.lab.machine.script import Label

I64 = NDArray[np.int64]
_SYNC_KINDS = {
    at.SYNC_EVENT: "Event Sync",
    at.SYNC_STREAM: "Stream Sync",
    at.SYNC_DEVICE: "Context Sync",
}


def add_work(
    file: Rows,
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


def add_waits(file: Rows, run: Run, rank: int, clock: Clock, correlation: I64, own: I64) -> None:
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
    file: Rows,
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


def add_ranges(
    file: Rows,
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
