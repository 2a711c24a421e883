"""Fill every link column of a capture."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture, nullable
from tokenpath.capture.nesting import Int32s, innermost, parents
from tokenpath.core.units import INT64_MIN
from tokenpath.stitch.collectives import with_collectives
from tokenpath.stitch.counters import with_counters
from tokenpath.stitch.hardware import resolve_devices
from tokenpath.stitch.inferred_steps import steps_by_structure
from tokenpath.stitch.request_steps import with_request_steps
from tokenpath.stitch.runs import match, runs_of
from tokenpath.stitch.step_join import join_steps
from tokenpath.stitch.steps import find_steps, step_of_kernel


def link(capture: Capture) -> Capture:
    """The same capture with its link columns, steps and hardware filled in.

    - `op.parent_op_id`: the innermost operator around it on its thread;
    - `api_call.op_id`: the innermost operator around the call;
    - `kernel.api_call_id`: the call with the same correlation id in the same run;
    - `kernel.op_id`: the operator around the launch; where the launch is not in the file, the one with
      the kernel's external id that began before it (external ids alone name unrelated operators in
      traces of some profilers);
    - `step`, `kernel.step_id`: see `stitch.steps`; kept where the source states it; a profiled step to
      the scheduler's: `stitch.step_join`;
    - `kernel_counter.kernel_id`: by name and order, see `stitch.counters`;
    - `request_step`: where no source states it, see `stitch.request_steps`;
    - `collective.match`: the same collective on other ranks, see `stitch.collectives`;
    - `device.hardware`: see `stitch.hardware`.
    """
    parent_op, op_of_call = _link_host(capture)
    call_of_kernel = _launches(capture)
    op_of_kernel = np.where(call_of_kernel >= 0, _take(op_of_call, call_of_kernel), NO_ID)
    op_of_kernel = np.where(call_of_kernel >= 0, op_of_kernel, _op_by_external_id(capture)).astype(
        np.int32
    )

    linked = capture.replace(
        {
            name: _with(capture[name], columns)
            for name, columns in (
                ("op", {"parent_op_id": parent_op}),
                ("api_call", {"op_id": op_of_call}),
                ("kernel", {"api_call_id": call_of_kernel, "op_id": op_of_kernel}),
            )
            if capture.num_rows(name)
        }
    )
    linked = resolve_devices(linked)
    linked = with_request_steps(join_steps(_with_profiled_steps(linked)))
    if capture.num_rows("kernel") and linked.num_rows("step"):
        stated, found = linked.ids("kernel", "step_id"), step_of_kernel(linked)
        column = {"step_id": np.where(stated >= 0, stated, found).astype(np.int32)}
        linked = linked.replace({"kernel": _with(linked["kernel"], column)})
    return with_counters(with_collectives(linked))


def _with_profiled_steps(capture: Capture) -> Capture:
    """Steps that annotations show stand first; those that sources state follow, ids moved along.

    A source that states what a profiler saw of its steps, or whose steps were found before, keeps those.
    """
    codes, names = capture.codes("step", "observer")
    is_profiled = np.isin(codes, [at for at, name in enumerate(names) if name == "profiler"])
    stating = np.unique(capture.ids("step", "source_id")[is_profiled])
    found = _of_others(find_steps(capture), stating)
    if capture.num_rows("step") > is_profiled.sum():
        # A scheduler's log makes it worth while to look for its steps in a trace that has no annotations.
        annotated = np.unique(capture.replace({"step": found}).ids("step", "source_id"))
        recorded = np.concatenate([capture.ids(name, "source_id") for name in ("op", "kernel")])
        bare = np.setdiff1d(recorded, np.union1d(annotated, stating)).tolist()
        inferred = steps_by_structure(capture, bare)
        if inferred.num_rows:
            found = pa.concat_tables([found, inferred]).unify_dictionaries().combine_chunks()
    if found.num_rows == 0 or capture.num_rows("step") == 0:
        return capture.replace({"step": found}) if found.num_rows else capture
    stated = _moved(capture, "step", "scheduler_step_id", found.num_rows)
    moved = {"step": pa.concat_tables([found, stated]).unify_dictionaries().combine_chunks()}
    for name in ("request_step", "kernel"):
        if capture.num_rows(name):
            moved[name] = _moved(capture, name, "step_id", found.num_rows)
    return capture.replace(moved)


def _of_others(step: pa.Table, sources: NDArray[np.int32]) -> pa.Table:
    """The rows of other sources than these."""
    return step.filter(pa.array(~np.isin(step["source_id"].to_numpy(), sources)))


def _moved(capture: Capture, name: str, column: str, by: int) -> pa.Table:
    """A table whose column of row numbers of `step` is moved on."""
    table, ids = capture[name], capture.ids(name, column)
    at = table.schema.get_field_index(column)
    moved = np.where(ids == NO_ID, NO_ID, ids + np.int32(by)).astype(np.int32)
    is_nullable = table.schema.field(at).nullable
    values = nullable(moved, NO_ID) if is_nullable else pa.array(moved)
    return table.set_column(at, table.schema.field(at), values)


def _link_host(capture: Capture) -> tuple[Int32s, Int32s]:
    group = capture.ids("op", "thread_id")
    start, end = capture.int64("op", "start_ns"), capture.int64("op", "end_ns")
    parent = parents(group, start, end)
    op_of_call = innermost(
        group,
        start,
        end,
        parent,
        capture.ids("api_call", "thread_id"),
        capture.int64("api_call", "start_ns"),
        capture.int64("api_call", "end_ns"),
    )
    return parent, op_of_call


def _op_by_external_id(capture: Capture) -> Int32s:
    found = match(
        runs_of(capture, "op"),
        capture.int64("op", "external_id", INT64_MIN),
        runs_of(capture, "kernel"),
        capture.int64("kernel", "external_id", INT64_MIN),
        INT64_MIN,
    )
    if capture.num_rows("op") == 0:
        return found
    began = capture.int64("op", "start_ns")[np.maximum(found, 0)]
    return np.where(began <= capture.int64("kernel", "start_ns"), found, NO_ID).astype(np.int32)


def _launches(capture: Capture) -> Int32s:
    return match(
        runs_of(capture, "api_call"),
        capture.int64("api_call", "correlation_id", INT64_MIN),
        runs_of(capture, "kernel"),
        capture.int64("kernel", "correlation_id", INT64_MIN),
        INT64_MIN,
    )


def _take(values: Int32s, index: Int32s) -> Int32s:
    if len(values) == 0:
        return np.full(len(index), NO_ID, np.int32)
    return values[np.maximum(index, 0)]


def _with(table: pa.Table, columns: dict[str, Int32s]) -> pa.Table:
    for name, values in columns.items():
        position = table.schema.get_field_index(name)
        table = table.set_column(position, table.schema.field(name), nullable(values, NO_ID))
    return table
