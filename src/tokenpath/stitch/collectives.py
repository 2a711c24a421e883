"""The parts that several ranks have in one collective get one number.

By group and sequence where the profiler wrote them; else by order within group and operation, and only
where every rank has as many of them and none had ended, on the same host, before another began. Work grows with the number of parts, not with pairs of ranks.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture, build_table, nullable
from tokenpath.core.units import INT64_MAX, INT64_MIN
from tokenpath.stitch.clocks import ends_of_collectives, host_of_source
from tokenpath.stitch.runs import run_of_source

Int64s = NDArray[np.int64]
_UNKNOWN = INT64_MIN
BY_SEQUENCE, BY_ORDER = "sequence", "order"
_SLACK_NS = 100_000
"""Devices of one host may stamp the same moment so far apart."""
_NO_PART = frozenset({"wait", "init"})
"""Rows that say that a rank waited for a collective, not that it took part in one."""
_OPS = (
    (
        "allreduce",
        re.compile(r"all_?reduce|one_?shot|two_?shot|multimem|cross_device_reduce", re.IGNORECASE),
    ),
    ("reduce_scatter", re.compile(r"reduce_?scatter", re.IGNORECASE)),
    ("allgather", re.compile(r"all_?gather", re.IGNORECASE)),
    ("alltoall", re.compile(r"all_?to_?all", re.IGNORECASE)),
    ("broadcast", re.compile(r"broadcast", re.IGNORECASE)),
    ("sendrecv", re.compile(r"send_?recv|_send|_recv", re.IGNORECASE)),
    ("dispatch", re.compile(r"dispatch", re.IGNORECASE)),
    ("combine", re.compile(r"combine", re.IGNORECASE)),
    ("reduce", re.compile(r"reduce", re.IGNORECASE)),
)


def op_of_kernel(name: str) -> str:
    """The collective that a communication kernel's name says; `other` when it says none."""
    return next((op for op, pattern in _OPS if pattern.search(name)), "other")


def with_collectives(capture: Capture) -> Capture:
    """The capture with a row of `collective` for every communication kernel, and parts matched.

    Nothing is done to the capture of one rank alone.
    """
    if len(np.unique(run_of_source(capture))) < 2:
        return capture
    return match_collectives(_with_kernels(capture))


def _with_kernels(capture: Capture) -> Capture:
    """Communication kernels that no row of `collective` names get one: their name is all that is known."""
    kinds, names = capture.codes("kernel", "kind")
    if "communication" not in names:
        return capture
    kernels = np.flatnonzero(kinds == names.index("communication"))
    known = capture.ids("collective", "kernel_id")
    kernels = kernels[~np.isin(kernels, known)]
    if len(kernels) == 0:
        return capture
    codes, texts = capture.codes("kernel", "name")
    of_name = {code: op_of_kernel(texts[code]) for code in np.unique(codes[kernels]).tolist()}
    added = build_table(
        "collective",
        {
            "source_id": capture.ids("kernel", "source_id")[kernels],
            "op": [of_name[code] for code in codes[kernels].tolist()],
            "kernel_id": kernels.astype(np.int32),
        },
    )
    table = pa.concat_tables([capture["collective"], added]).unify_dictionaries().combine_chunks()
    return capture.replace({"collective": table})


def match_collectives(capture: Capture) -> Capture:
    """The capture with `collective.match` and `linked_by` filled in; one rank alone is never a match."""
    size = capture.num_rows("collective")
    if size == 0:
        return capture
    parts = _Parts(capture)
    if len(np.unique(parts.source)) < 2:
        return capture
    match = np.full(size, -1, np.int64)
    how = np.full(size, None, object)
    has_sequence = parts.usable & (parts.sequence != _UNKNOWN) & (parts.group >= 0)
    number = _match(parts, np.flatnonzero(has_sequence), parts.sequence, match, 0)
    how[match >= 0] = BY_SEQUENCE
    others = np.flatnonzero(parts.usable & ~has_sequence)
    ordinal, is_even = _ordinals(parts, others)
    number = _match(parts, others[is_even], ordinal, match, number)
    by_order = np.flatnonzero((match >= 0) & ~has_sequence)
    match[by_order[_apart(parts, by_order, match)]] = -1
    _, kept = np.unique(match[match >= 0], return_inverse=True)
    match[match >= 0] = kept
    how[(match >= 0) & ~has_sequence] = BY_ORDER
    table = capture["collective"]
    for name, values in (
        ("match", nullable(match, -1)),
        ("linked_by", pa.array(how.tolist(), pa.string()).dictionary_encode()),
    ):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(name), values)
    return capture.replace({"collective": table})


class _Parts:
    """Columns of `collective` as numbers, NULL as -1 or _UNKNOWN."""

    def __init__(self, capture: Capture) -> None:
        # Split parts of one rank's capture are one taker.
        run = run_of_source(capture)
        self.source = run[capture.ids("collective", "source_id")].astype(np.int64)
        op, ops = capture.codes("collective", "op")
        self.op = op.astype(np.int64)
        group, _ = capture.codes("collective", "group")
        self.group = group.astype(np.int64)
        self.size = capture.int64("collective", "group_size", NO_ID)
        self.sequence = capture.int64("collective", "sequence", _UNKNOWN)
        self.payload = capture.int64("collective", "payload_bytes", _UNKNOWN)
        kernel = capture.ids("collective", "kernel_id")
        start = capture.int64("collective", "start_ns", _UNKNOWN)
        start = np.where(
            start == _UNKNOWN, capture.int64("collective", "created_ns", _UNKNOWN), start
        )
        if capture.num_rows("kernel"):
            began = capture.int64("kernel", "start_ns")[np.maximum(kernel, 0)]
            start = np.where(kernel >= 0, began, start)
        self.start, self.end = start, ends_of_collectives(capture)
        # Split captures aside, times of one host are of one clock.
        self.host = host_of_source(capture)[capture.ids("collective", "source_id")]
        is_part = np.array([text not in _NO_PART for text in ops] or [False])[np.maximum(op, 0)]
        # Without a time or a number there is nothing to put it in order by.
        self.usable = is_part & ((start != _UNKNOWN) | (self.sequence != _UNKNOWN))


def _match(parts: _Parts, rows: Int64s, place: Int64s, match: Int64s, first: int) -> int:
    """Number the sets of rows with equal (group, op, place) on different sources; the next free number."""
    if len(rows) == 0:
        return first
    keys = np.stack((parts.group[rows], parts.op[rows], place[rows]))
    _, which = np.unique(keys, axis=1, return_inverse=True)
    which = which.reshape(-1)
    num_sets = int(which.max()) + 1
    count = np.bincount(which, minlength=num_sets)
    # One rank may hold a collective twice (host and device side): the sources count, not the rows.
    pairs = np.unique(np.stack((which, parts.source[rows])), axis=1)
    num_sources = np.bincount(pairs[0], minlength=num_sets)
    largest = np.full(num_sets, -1, np.int64)
    np.maximum.at(largest, which, parts.size[rows])
    one_each = count == num_sources
    fits = (largest < 0) | (num_sources <= np.maximum(largest, 2))
    is_match = (num_sources >= 2) & one_each & fits & _same_payload(parts, rows, which, num_sets)
    numbers = first + np.cumsum(is_match) - 1
    chosen = is_match[which]
    match[rows[chosen]] = numbers[which[chosen]]
    return first + int(is_match.sum())


def _apart(parts: _Parts, rows: Int64s, match: Int64s) -> NDArray[np.bool_]:
    """Whether each row's set has parts on one host of which one had ended before another began."""
    known = (parts.start[rows] != _UNKNOWN) & (parts.end[rows] != _UNKNOWN)
    mine = rows[known]
    pair = (match[mine] << 32) + parts.host[mine]
    keys, which = np.unique(pair, return_inverse=True)
    latest, earliest = np.full(len(keys), INT64_MIN), np.full(len(keys), INT64_MAX - _SLACK_NS)
    np.maximum.at(latest, which, parts.start[mine])
    np.minimum.at(earliest, which, parts.end[mine])
    apart = keys[latest > earliest + _SLACK_NS] >> 32
    return np.isin(match[rows], apart)


def _same_payload(parts: _Parts, rows: Int64s, which: Int64s, num_sets: int) -> NDArray[np.bool_]:
    """Whether all known sizes of a set are equal (all-to-alls of uneven parts are not)."""
    known = parts.payload[rows] != _UNKNOWN
    low, high = np.full(num_sets, 2**62, np.int64), np.full(num_sets, -1, np.int64)
    np.minimum.at(low, which[known], parts.payload[rows][known])
    np.maximum.at(high, which[known], parts.payload[rows][known])
    # Sizes of all-to-alls and of gathers differ by rank, rightly; a factor of a thousand does not.
    return (high < 0) | (high <= 1000 * np.maximum(low, 1))


def _ordinals(parts: _Parts, rows: Int64s) -> tuple[Int64s, NDArray[np.bool_]]:
    """Number of each row among its source's, group's and operation's, by row of all parts.

    And, by place in `rows`, whether every source has as many of them.
    """
    result = np.zeros(len(parts.source), np.int64)
    if len(rows) == 0:
        return result, np.zeros(0, bool)
    order = np.lexsort((parts.start[rows], parts.source[rows], parts.op[rows], parts.group[rows]))
    ordered = rows[order]
    kind = np.stack((parts.group[ordered], parts.op[ordered]))
    is_new_kind = np.concatenate(([True], (np.diff(kind, axis=1) != 0).any(axis=0)))
    is_new = is_new_kind | np.concatenate(([True], np.diff(parts.source[ordered]) != 0))
    first = np.flatnonzero(is_new)
    run = np.cumsum(is_new) - 1
    result[ordered] = np.arange(len(ordered)) - first[run]
    length = np.diff(np.concatenate((first, [len(ordered)])))
    kind_of_run = (np.cumsum(is_new_kind) - 1)[first]
    num_kinds = int(kind_of_run.max()) + 1
    least, most = np.full(num_kinds, 2**62, np.int64), np.zeros(num_kinds, np.int64)
    np.minimum.at(least, kind_of_run, length)
    np.maximum.at(most, kind_of_run, length)
    is_even = np.zeros(len(rows), bool)
    is_even[order] = (least == most)[kind_of_run[run]]
    return result, is_even
