"""Counters of kernels that another source recorded: joined by name and order, or not at all.

Nsight Compute replays each launch it measures, so its times say nothing, and it may have measured a part of
the launches only (`--launch-skip`, `--launch-count`, `--kernel-name`). A launch is joined to a kernel when

1. the measured launches, as a sequence of names, occur at exactly one place among the kernels of the same
   names in order of time; or else
2. there are as many measured launches of its name as kernels: then the n-th is the n-th.

Names are compared as they stand; where none is the same, without return type, namespaces, template arguments
and parameters, which profilers write differently. A source that could be joined to several others is joined
to none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tokenpath.capture.capture import NO_ID, Capture, build_table, nullable
from tokenpath.capture.intervals import Int64s
from tokenpath.capture.nesting import Int32s

_KINDS = ("compute", "communication")

UNJOINED = "launch with counters, joined to no kernel"
"""Reason in `skip`; the counters are there, without `kernel_id`."""


def with_counters(capture: Capture) -> Capture:
    """The capture with `kernel_counter.kernel_id` filled in where that is certain.

    Launches that are joined to no kernel are counted in `skip`, if the capture has kernels at all.
    """
    if capture.num_rows("kernel_counter") == 0 or capture.num_rows("kernel") == 0:
        return capture
    kernel_id = capture.ids("kernel_counter", "kernel_id").copy()
    source = capture.ids("kernel_counter", "source_id")
    launch = capture.int64("kernel_counter", "launch", NO_ID)
    codes, names = capture.codes("kernel_counter", "range_name")
    open_rows = (kernel_id == NO_ID) & (launch != NO_ID) & (codes != NO_ID)
    unjoined: dict[int, int] = {}
    for number in np.unique(source[open_rows]).tolist():
        rows = np.flatnonzero(open_rows & (source == number))
        _, first, which = np.unique(launch[rows], return_index=True, return_inverse=True)
        of_launch = [names[code] for code in codes[rows[first]].tolist()]
        found = join_launches(of_launch, *_kernels_beside(capture, number))
        kernel_id[rows] = found[which]
        missing = int((found == NO_ID).sum())
        if missing:
            unjoined[number] = missing
    table = capture["kernel_counter"]
    at = table.schema.get_field_index("kernel_id")
    table = table.set_column(at, table.schema.field(at), nullable(kernel_id, NO_ID))
    return capture.replace({"kernel_counter": table, "skip": _with_skips(capture, unjoined)})


def join_launches(
    launches: Sequence[str], source: Int32s, rows: Int64s, names: Sequence[str]
) -> Int64s:
    """The row of each launch's kernel, NO_ID where it is not certain.

    `source`, `rows` and `names` are those of the kernels, in order of time.
    """
    found = np.full(len(launches), NO_ID, np.int64)
    fitting = []
    for number in np.unique(source).tolist():
        here = np.flatnonzero(source == number)
        own = [names[row] for row in here.tolist()]
        position = _positions(*_comparable(launches, own))
        if (position >= 0).any():
            fitting.append(np.where(position >= 0, rows[here[np.maximum(position, 0)]], NO_ID))
    return fitting[0] if len(fitting) == 1 else found


def _positions(launches: Sequence[str], kernels: Sequence[str]) -> Int64s:
    """Position of the kernel of each launch, -1 for none."""
    code_of = {name: code for code, name in enumerate(dict.fromkeys(launches))}
    wanted = np.array([code_of[name] for name in launches], np.int32)
    codes = np.array([code_of.get(name, -1) for name in kernels], np.int32)
    measured = np.flatnonzero(codes >= 0)
    place = _only_place(wanted, codes[measured])
    if place >= 0:
        return measured[place : place + len(wanted)]
    result = np.full(len(wanted), -1, np.int64)
    for code in range(len(code_of)):
        of_launch, of_kernel = np.flatnonzero(wanted == code), np.flatnonzero(codes == code)
        if len(of_launch) == len(of_kernel):
            result[of_launch] = of_kernel
    return result


def _only_place(part: Int32s, whole: Int32s) -> int:
    """Where the part lies in the whole; -1 when it lies nowhere or at several places."""
    needle, hay = part.tobytes(), whole.tobytes()
    places: list[int] = []
    width, at = part.itemsize, hay.find(needle)
    while at >= 0 and len(places) < 2:
        if at % width == 0:
            places.append(at // width)
        at = hay.find(needle, at + 1)
    return places[0] if len(places) == 1 else -1


def _comparable(
    launches: Sequence[str], kernels: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Both lists of names in one form."""
    if set(launches) & set(kernels):
        return launches, kernels
    base_of = {name: base_name(name) for name in {*launches, *kernels}}
    return [base_of[name] for name in launches], [base_of[name] for name in kernels]


def base_name(name: str) -> str:
    """`void ns::gemm<float, 4>(float*)` -> `gemm`."""
    text = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    ends = [at for at in (text.find("<"), text.find("(")) if at > 0]
    head = text[: min(ends)] if ends else text
    return head.split()[-1].rsplit("::", 1)[-1] if head.split() else name


def _kernels_beside(capture: Capture, number: int) -> tuple[Int32s, Int64s, list[str]]:
    """Kernels of other sources, copies left out: source, row and name, in order of time."""
    kinds, kind_names = capture.codes("kernel", "kind")
    is_kernel = np.isin(kinds, [i for i, kind in enumerate(kind_names) if kind in _KINDS])
    source = capture.ids("kernel", "source_id")
    rows = np.flatnonzero(is_kernel & (source != number))
    rows = rows[np.argsort(capture.int64("kernel", "start_ns")[rows], kind="stable")]
    codes, names = capture.codes("kernel", "name")
    return source[rows], rows, [names[code] for code in codes[rows].tolist()]


def _with_skips(capture: Capture, unjoined: dict[int, int]) -> pa.Table:
    if not unjoined:
        return capture["skip"]
    added = build_table(
        "skip",
        {
            "source_id": list(unjoined),
            "reason": [UNJOINED] * len(unjoined),
            "lost": [False] * len(unjoined),
            "num_events": list(unjoined.values()),
        },
    )
    return pa.concat_tables([capture["skip"], added]).unify_dictionaries().combine_chunks()
