"""The one compiled function that Python calls."""

from __future__ import annotations

# mypy: ignore-errors
# numba finds the types; all of them are int64.
from tokenpath.ingest.kineto.columns import NULL, NUM_COLUMNS, Col
from tokenpath.ingest.kineto.compiled.commit import commit
from tokenpath.ingest.kineto.compiled.event import read_event
from tokenpath.ingest.kineto.compiled.json import FALLBACK, MORE, skip_space
from tokenpath.ingest.kineto.compiled.machine import compiled, load8, load64, store64
from tokenpath.ingest.kineto.compiled.texts import (
    adopt_texts,
    code_of,
    fill_pair_slots,
    fill_slots,
    pair_of,
)
from tokenpath.ingest.kineto.state import Op, S, Status

_POSITION, _LIMIT, _BASE, _ROW = 8 * S.POSITION, 8 * S.LIMIT, 8 * S.BASE, 8 * S.ROW
_STOP, _ST_STOPPED = 8 * S.STOP, int(Status.STOPPED)
_ST_MORE, _ST_END, _ST_FALLBACK = int(Status.MORE), int(Status.END), int(Status.FALLBACK)
_ST_GROW, _ST_FULL = int(Status.GROW), int(Status.GROUP_FULL)
_FLAGS, _OFFSET = 8 * Col.FLAGS, 8 * Col.OFFSET
_NULL, _ROW_BYTES = NULL, 8 * NUM_COLUMNS
_SCAN, _COMMIT, _CODE_OF = int(Op.SCAN), int(Op.COMMIT), int(Op.CODE_OF)
_PAIR_OF, _FILL_SLOTS, _ADOPT = int(Op.PAIR_OF), int(Op.FILL_SLOTS), int(Op.ADOPT_TEXTS)


@compiled
def scan(state):
    """Read events from POSITION on until something stops it; the `Status` says what."""
    at, limit = load64(state + _POSITION), load64(state + _LIMIT)
    base, row, stop = load64(state + _BASE), load64(state + _ROW), load64(state + _STOP)
    while True:
        while at < limit:
            at = skip_space(at, limit)
            if at < limit and load8(at) == 44:
                at += 1
            else:
                break
        status = _ST_MORE
        if at >= limit:
            break
        char = load8(at)
        if char == 93:
            at += 1
            status = _ST_END
            break
        if at >= stop:
            status = _ST_STOPPED
            break
        status = _ST_FALLBACK
        if char != 123:
            break
        for column in range(0, _ROW_BYTES, 8):
            store64(row + column, _NULL)
        store64(row + _FLAGS, 0)
        store64(row + _OFFSET, base + at)
        end = read_event(state, at + 1, limit, row)
        if end < 0:
            status = _ST_MORE if end == MORE else _ST_FALLBACK if end == FALLBACK else _ST_GROW
            break
        if not commit(state, row):
            status = _ST_FULL
            break
        at = end
    store64(state + _POSITION, at)
    return status


@compiled
def run(state, op, a, b, c):
    """Do what `Op` says; everything is an int64."""
    if op == _SCAN:
        return scan(state)
    if op == _COMMIT:
        return 0 if commit(state, load64(state + _ROW)) else _ST_FULL
    if op == _CODE_OF:
        return code_of(state, a, b, c)
    if op == _PAIR_OF:
        return pair_of(state, a, b)
    if op == _FILL_SLOTS:
        return fill_slots(state, a)
    if op == _ADOPT:
        return adopt_texts(state, a, b, c)
    return fill_pair_slots(state, a)
