"""Compiled pieces of the fast scanner: where a row goes.

The same decisions as `sorting.Sorter` takes on whole chunks; a property test holds the two together.
"""

from __future__ import annotations

# mypy: ignore-errors
# numba finds the types; all of them are int64.
from tokenpath.ingest.kineto.categories import MEMORY_CODE, OUT_OF_MEMORY_CODE, Sort
from tokenpath.ingest.kineto.columns import NULL, Col, Flag
from tokenpath.ingest.kineto.compiled.machine import (
    compiled,
    load8,
    load64,
    store8,
    store32,
    store64,
)
from tokenpath.ingest.kineto.reasons import Reason
from tokenpath.ingest.kineto.state import FIELD_WORDS, GROUP_WORDS, G, Group, S

_GROUPS, _FULL_GROUP, _COUNTS = 8 * S.GROUPS, 8 * S.FULL_GROUP, 8 * S.COUNTS
_OF_PHASE, _OF_CATEGORY = 8 * S.SORT_OF_PHASE, 8 * S.SORT_OF_CATEGORY
_LAUNCH_FLOWS, _NUM_KNOWN, _NUM_EVENTS = 8 * S.LAUNCH_FLOWS, 8 * S.NUM_KNOWN_TEXTS, 8 * S.NUM_EVENTS
_NUM_ROWS, _MAX_ROWS, _NUM_BEFORE = 8 * G.NUM_ROWS, 8 * G.MAX_ROWS, 8 * G.NUM_BEFORE
_NUM_FIELDS, _FIELDS = 8 * G.NUM_FIELDS, 8 * G.FIELDS
_GROUP_BYTES, _FIELD_BYTES = 8 * GROUP_WORDS, 8 * FIELD_WORDS
_PHASE, _CATEGORY, _NAME, _TS = 8 * Col.PHASE, 8 * Col.CATEGORY, 8 * Col.NAME, 8 * Col.TS
_DUR, _FLAGS, _OFFSET, _ID = 8 * Col.DUR, 8 * Col.FLAGS, 8 * Col.OFFSET, 8 * Col.ID
_META, _BYTES, _COLLECTIVE = 8 * Col.META, 8 * Col.BYTES, 8 * Col.COLLECTIVE
_NULL, _MEMORY, _OUT_OF_MEMORY = NULL, MEMORY_CODE, OUT_OF_MEMORY_CODE
_TS_RANGE, _DUR_RANGE, _SUB_NS = int(Flag.TS_RANGE), int(Flag.DUR_RANGE), int(Flag.SUB_NS)
_MEMSET_SORT, _OP_SORT, _UNSORTED_SORT = int(Sort.MEMSET), int(Sort.OP), int(Sort.UNSORTED)
_MEMORY_SORT, _METADATA_SORT, _FLOW_SORT = int(Sort.MEMORY), int(Sort.METADATA), int(Sort.FLOW)
_LAUNCH_SORT, _BEGIN_END_SORT = int(Sort.LAUNCH_FLOW), int(Sort.BEGIN_END)
_INSTANT_SORT, _KERNEL_SORT = int(Sort.INSTANT), int(Sort.KERNEL)
_OUT_OF_RANGE, _NO_TS = int(Reason.OUT_OF_RANGE), int(Reason.MISSING_TIMESTAMP)
_CUT, _NO_DUR, _NEGATIVE = (
    int(Reason.CUT_DIGITS),
    int(Reason.MISSING_DURATION),
    int(Reason.NEGATIVE_DURATION),
)
_NO_BYTES, _METADATA = int(Reason.MEMORY_WITHOUT_BYTES), int(Reason.METADATA)
_FIRST_NOT_KEPT = int(Reason.FLOW) - int(Sort.LAUNCH_FLOW)
_LAUNCH_REASON, _SPAN_REASON = int(Reason.FLOW), int(Reason.PROFILER_SPAN)
_INSTANT_REASON, _CUDA_EVENT_REASON = int(Reason.INSTANT), int(Reason.CUDA_EVENT)
_PHASE_REASON = int(Reason.OTHER_PHASE)
_SPAN_SORT, _CUDA_EVENT_SORT = int(Sort.PROFILER_SPAN), int(Sort.CUDA_EVENT)
_OP_COLLECTIVE, _KERNEL_COLLECTIVE = int(Group.OP_COLLECTIVE), int(Group.KERNEL_COLLECTIVE)


@compiled
def sort_of(state, row):
    """The `Sort` of a raw row."""
    phase, code = load64(row + _PHASE), load64(row + _CATEGORY)
    known = load64(state + _NUM_KNOWN)
    if code < 0 or code > known:
        code = known
    if phase == 88:  # X
        return load8(load64(state + _OF_CATEGORY) + code)
    sort = load8(load64(state + _OF_PHASE) + phase)
    if sort == _FLOW_SORT and load8(load64(state + _LAUNCH_FLOWS) + code) != 0:
        return _LAUNCH_SORT
    name = load64(row + _NAME)
    if sort == _INSTANT_SORT and (name == _MEMORY or name == _OUT_OF_MEMORY):
        return _MEMORY_SORT
    return sort


@compiled
def count(state, row, reason):
    """Count the row under a reason."""
    at = load64(state + _COUNTS) + 24 * reason
    if load64(at) == 0:
        store64(at + 8, load64(row + _OFFSET))
        store64(at + 16, load64(row + _PHASE))
    store64(at, load64(at) + 1)


@compiled
def is_full(group):
    """Whether a group has no room for one more row."""
    return load64(group + _NUM_ROWS) >= load64(group + _MAX_ROWS)


@compiled
def append(group, row):
    """Write the row's fields behind the columns of a group."""
    at = load64(group + _NUM_ROWS)
    field = load64(group + _FIELDS)
    for _ in range(load64(group + _NUM_FIELDS)):
        value, column = load64(row + load64(field)), load64(field + 8)
        size = load64(field + 16)
        if size == 8:
            store64(column + 8 * at, value)
        elif size == 4:
            if value < -(2**31) or value >= 2**31:
                value = -1
            store32(column + 4 * at, value)
        else:
            store8(column + at, value)
        field += _FIELD_BYTES
    store64(group + _NUM_ROWS, at + 1)


@compiled
def reason_not_kept(sort):
    """Under which reason a sort of event that is never kept is counted; -1 for the others."""
    if sort == _LAUNCH_SORT:
        return _LAUNCH_REASON
    if sort == _SPAN_SORT:
        return _SPAN_REASON
    if sort == _INSTANT_SORT:
        return _INSTANT_REASON
    if sort == _CUDA_EVENT_SORT:
        return _CUDA_EVENT_REASON
    if sort > _CUDA_EVENT_SORT:
        return _PHASE_REASON
    return -1


@compiled
def check_times(state, row, has_end):
    """Whether the row's times can be kept; DUR becomes the end. What is wrong is counted."""
    flags = load64(row + _FLAGS)
    if flags & (_TS_RANGE | (_DUR_RANGE if has_end else 0)):
        count(state, row, _OUT_OF_RANGE)
        return False
    if flags & _SUB_NS:
        count(state, row, _CUT)
    start, dur = load64(row + _TS), load64(row + _DUR)
    if start == _NULL:
        count(state, row, _NO_TS)
        return False
    if not has_end:
        return True
    if dur == _NULL:
        count(state, row, _NO_DUR)
        dur = 0
    if dur < 0:
        count(state, row, _NEGATIVE)
        return False
    if start + dur < start:
        count(state, row, _OUT_OF_RANGE)
        return False
    store64(row + _DUR, start + dur)
    return True


@compiled
def commit(state, row):
    """Keep or count a row; False when a group has to be emptied first, and nothing was done."""
    sort = sort_of(state, row)
    reason = reason_not_kept(sort)
    if reason >= 0:
        count(state, row, reason)
        store64(state + _NUM_EVENTS, load64(state + _NUM_EVENTS) + 1)
        return True
    number = _KERNEL_SORT if sort <= _MEMSET_SORT else sort
    groups = load64(state + _GROUPS)
    group = groups + _GROUP_BYTES * number
    extra = groups + _GROUP_BYTES * (_OP_COLLECTIVE if number == _OP_SORT else _KERNEL_COLLECTIVE)
    may_be_collective = number == _OP_SORT or number == _KERNEL_SORT
    has_extra = may_be_collective and load64(row + _COLLECTIVE) != _NULL
    if is_full(group):
        store64(state + _FULL_GROUP, number)
        return False
    if has_extra and is_full(extra):
        store64(state + _FULL_GROUP, _OP_COLLECTIVE if number == _OP_SORT else _KERNEL_COLLECTIVE)
        return False
    store64(state + _NUM_EVENTS, load64(state + _NUM_EVENTS) + 1)
    if sort == _METADATA_SORT:
        count(state, row, _METADATA)
        if load64(row + _META) != _NULL:
            append(group, row)
        return True
    if not check_times(state, row, sort <= _UNSORTED_SORT):
        return True
    if sort == _MEMORY_SORT and load64(row + _BYTES) == _NULL:
        count(state, row, _NO_BYTES)
        return True
    if number == _KERNEL_SORT:
        store64(row + _ID, sort)
    if has_extra:
        phase = load64(row + _PHASE)
        store64(row + _PHASE, load64(group + _NUM_BEFORE) + load64(group + _NUM_ROWS))
        append(extra, row)
        store64(row + _PHASE, phase)
    append(group, row)
    return True
