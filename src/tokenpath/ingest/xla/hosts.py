"""Timelines of host threads: framework and runtime calls, device calls, Python frames, allocator events."""

from __future__ import annotations

import numpy as np

from tokenpath.ingest.xla.devices import add_steps
from tokenpath.ingest.xla.lines import NULL, Line, Texts, same, texts_of
from tokenpath.ingest.xla.memory import ALLOCATOR_EVENTS, MemoryEvents
from tokenpath.ingest.xla.parts import Column, Parts
from tokenpath.stitch.steps import read_label


def add_host_line(parts: Parts, line: Line, memory: MemoryEvents, *, with_steps: bool) -> None:
    """The rows of one host thread.

    A mark with a `step_num` (`jax.profiler.StepTraceAnnotation`) is a step if `with_steps`: not where
    the devices have step lines, which the profiler makes from the same marks.
    """
    names = line.names.values
    of_name = np.array([_sort(name) for name in names] or [0], np.int8)
    sort = of_name[line.names.codes]
    sort[(sort == _OP) & (line.number("correlation_id") != NULL)] = _CALL
    is_step = (line.number("step_num") != NULL) & (sort == _OP)
    sort[is_step] = _RANGE
    named: dict[str, Column] = {
        "pid": same(1, line.plane),
        "tid": same(1, str(line.id)),
        "name": texts_of([line.name or None]),
    }
    thread = parts.add("thread", 1, named)
    for kind, table in ((_OP, "op"), (_CALL, "api_call"), (_FRAME, "frame"), (_RANGE, "range")):
        rows = np.flatnonzero(sort == kind)
        if len(rows):
            part = line if len(rows) == len(line) else line.take(rows)
            parts.add(table, len(part), _columns(part, table, thread))
    memory.add(line.take(np.flatnonzero(sort == _MEMORY)))
    if with_steps and is_step.any():
        _add_marked_steps(parts, line.take(np.flatnonzero(is_step)))


_OP, _CALL, _FRAME, _RANGE, _MEMORY = range(5)


def _sort(name: str) -> int:
    if name in ALLOCATOR_EVENTS:
        return _MEMORY
    # Python's tracer writes `$file.py:12 function`.
    if name.startswith("$"):
        return _FRAME
    return _RANGE if read_label(name) is not None else _OP


def _columns(line: Line, table: str, thread: int) -> dict[str, Column]:
    names = line.names
    if table == "op":
        names = _full_names(line)
    elif table == "frame":
        names = names.mapped([name[1:] for name in names.values])
    columns: dict[str, Column] = {
        "thread_id": np.full(len(line), thread, np.int32),
        "start_ns": line.start_ns,
        "end_ns": line.end_ns,
        "name": names,
    }
    if table == "api_call":
        columns["correlation_id"] = line.number("correlation_id")
    if table == "range":
        columns["side"] = same(len(line), "host")
    return columns


def _full_names(line: Line) -> Texts:
    """TensorFlow's operators by their full name, `layer/MatMul:MatMul`, not by type alone."""
    long = line.long_names
    codes = np.where(long.codes >= 0, long.codes + len(line.names.values), line.names.codes)
    return Texts(codes.astype(np.int32), line.names.values + long.values)


def _add_marked_steps(parts: Parts, line: Line) -> None:
    numbers = line.number("step_num").tolist()
    names = [line.names.values[code] for code in line.names.codes.tolist()]
    add_steps(
        parts, line, [f"{name} {number}" for name, number in zip(names, numbers, strict=True)]
    )
