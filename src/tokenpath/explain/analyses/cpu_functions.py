"""Python functions of the main thread that take long without an operator beneath them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s, union
from tokenpath.core.finding import Finding
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.activity import OP, WAIT
from tokenpath.explain.analyses.cpu_view import Host, Side, cost, pieces_left
from tokenpath.explain.labels import short_label

MIN_CALL_NS = 200_000
"""Python between operators takes less a call, profiled or not."""
MIN_FUNCTION = 0.5
"""A function inside the slow one is named instead when it has so much of its time itself."""
_SAMPLE = re.compile(r"\(\d+\): _?(?:sampl\w*|multinomial|top_?[kp]\w*|greedy\w*)$", re.ASCII)
_TO_LIST = re.compile(r"built-in method (?:tolist|numpy|item) of Tensor", re.ASCII)
_ORDER = re.compile(
    r"built-in (?:function (?:sorted|max|min|sum)|method (?:sort|choices?|random) )"
)
_SLEEP = re.compile(r"built-in (?:function|method) sleep\b|time\.sleep")
_NOT_SLOW = re.compile(
    r"multiprocessing/|/selectors\.py|/threading\.py|/queue\.py|zmq/|distributed/|torch/profiler|asyncio/|torch/autograd/"
)


@dataclass(frozen=True)
class _Calls:
    """Time without operators by the outermost function that has none."""

    side: Side
    """Whose."""
    root: NDArray[np.int32]
    """For each piece the outermost item without an operator around it, or its own function."""
    own: NDArray[np.int32]
    """For each piece the innermost function of a file."""
    length: Int64s
    """Time of each piece."""


def _calls(host: Host, side: Side) -> _Calls:
    items = side.items
    _, length, item = pieces_left(host, side)
    sleeps = np.array([bool(_SLEEP.search(text)) for text in items.labels] or [False])
    waits = (items.activity == WAIT) & ~sleeps[items.label]
    keep = (length > 0) & (items.activity[item] != OP) & ~waits[item]
    item, length = item[keep], length[keep]
    root = item.copy()
    while len(item):
        up = side.parent[root]
        rises = (up >= 0) & ~side.has_op[np.maximum(up, 0)]
        if not rises.any():
            break
        root[rises] = up[rises]
    # An item in an operator (a callback) has no root without operators but itself.
    root = side.function[root]
    # Between its operators a function only hands over, unless it stays away for long.
    keep = (root >= 0) & ((length >= MIN_CALL_NS) | ~side.has_op[np.maximum(root, 0)])
    return _Calls(side, root[keep], side.function[item[keep]], length[keep])


def sampling(host: Host) -> Iterator[Finding]:
    """Finding `cpu-sampling`: tensors turned into lists and ordered in Python."""
    total, calls, names = 0, 0, {}
    for side in host.sides:
        if not side.capture.num_rows("frame"):
            continue
        is_sampling = np.isin(np.arange(len(side.items.label)), _samplers(side))
        if not is_sampling.any():
            continue
        found = _calls(host, side)
        start, length, item = pieces_left(host, side)
        inside = _within(side, is_sampling)
        mine = inside[item] & (length > 0) & (side.items.activity[item] != OP)
        total += int(length[mine].sum())
        calls += int(is_sampling.sum())
        by = np.bincount(side.items.label[found.own], found.length, len(side.items.labels))
        label = side.items.labels[
            max(set(side.items.label[is_sampling].tolist()), key=lambda code: by[code])
        ]
        names[label] = side
        host.spend(side, union(start[mine], start[mine] + length[mine]))
    if total:
        label = next(iter(names))
        yield cost(
            host, "cpu-sampling",
            f"{short_label(label)} chose tokens in Python for {format_duration(total)} in {calls:,} calls "
            f"({format_percent(total, host.wall_ns)} of the window)",
            total, fix="sample with tensor operators (topk, multinomial) for the whole batch at once",
            falsifier="with argmax on the tensor instead the time stays", confidence=0.85, effort="code",
            place={"function": short_label(label), "thread": names[label].thread_name()},
        )  # fmt: skip


def _samplers(side: Side) -> NDArray[np.int64]:
    """Frames that are called so, or that turn a tensor into lists and order them."""
    items = side.items
    flags = [
        np.array([bool(names.search(text)) for text in items.labels] or [False])[items.label]
        for names in (_SAMPLE, _TO_LIST, _ORDER)
    ]
    lists = np.zeros(len(items.label), np.bool_)
    orders = lists.copy()
    for number, seen in ((1, lists), (2, orders)):
        caller = side.function[side.parent[np.flatnonzero(flags[number])]]
        seen[caller[caller >= 0]] = True
    found: NDArray[np.int64] = np.flatnonzero(flags[0] & (lists | orders) | lists & orders)
    return found


def _within(side: Side, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether an item is a chosen one or lies in one."""
    result = chosen.copy()
    at = np.arange(len(chosen), dtype=np.int32)
    while (at >= 0).any():
        result |= (at >= 0) & chosen[np.maximum(at, 0)]
        at = np.where(at >= 0, side.parent[np.maximum(at, 0)], -1).astype(np.int32)
    return result


def functions(host: Host) -> Iterator[Finding]:
    """Findings `slow-host-code`: one a function, all processes together."""
    found: dict[str, tuple[int, int, int, Side]] = {}
    for side in host.sides:
        if not side.capture.num_rows("frame"):
            continue
        calls = _calls(host, side)
        labels = side.items.label[calls.root]
        for code in np.unique(labels).tolist():
            mine = labels == code
            total = int(calls.length[mine].sum())
            count = len(np.unique(calls.root[mine]))
            # Once in a while a function stands still because its core is taken: slow ones are slow in most calls.
            if side.has_op[calls.root[mine]].any() and 2 * count < int(
                (side.items.label == code).sum()
            ):
                continue
            if total < MIN_CALL_NS * count or total < 0.005 * side.wall_ns:
                continue
            own = side.items.label[calls.own[mine]]
            by = np.bincount(own, calls.length[mine])
            best = int(by.argmax())
            name = side.items.labels[best if by[best] >= MIN_FUNCTION * total else code]
            if _NOT_SLOW.search(name):
                continue
            before = found.get(name, (0, 0, 0, side))
            most = side if total > before[2] else before[3]
            found[name] = before[0] + total, before[1] + count, max(total, before[2]), most
    for name, (total, count, most_ns, side) in found.items():
        where = side.place() if len(host.sides) > 1 and most_ns > 0.8 * total else {}
        yield cost(
            host, "slow-host-code",
            f"{short_label(name)} took {format_duration(total)} in {count:,} calls without an operator beneath "
            f"({format_percent(total, host.wall_ns)} of the window)",
            total, fix="make it faster, call it less often, or run it beside the step (another process, or a thread "
            "while operators run)",
            falsifier="with the function replaced by a constant answer the time stays", confidence=0.85,
            effort="code",
            place={"function": short_label(name), "thread": side.thread_name(), **where},
            details={"num_calls": count},
        )  # fmt: skip
