"""The tree of the device side: step, phase, part, kernel or cause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

from tokenpath.core.stats_bootstrap import Interval
from tokenpath.core.units import format_duration
from tokenpath.explain.causes import CAUSES
from tokenpath.explain.compare.device import (
    COMPUTE_PREFIX,
    EXPOSED_COMMUNICATION,
    EXPOSED_MEMCPY,
    IDLE_PREFIX,
    IDLE_WITHHELD,
    MEMSET_PART,
    Detail,
)
from tokenpath.explain.compare.nodes import Node, largest_first, parent
from tokenpath.explain.compare.noise import difference
from tokenpath.explain.compare.sides import Pooled
from tokenpath.explain.labels import short_label

MAX_ROLES = 6
"""Kernels and host items shown below one part."""
_MAX_NAME = 60
_LABELS = {
    EXPOSED_COMMUNICATION: "communication, exposed",
    EXPOSED_MEMCPY: "copies, exposed",
    MEMSET_PART: "fills",
    IDLE_WITHHELD: "idle, cause withheld",
    **{IDLE_PREFIX + cause.key: cause.label for cause in CAUSES},
}


def device_tree(first: Pooled, second: Pooled, unit: str) -> Node:
    """Mean time per unit on both sides, taken apart."""
    phases = sorted({*first.phase.tolist(), *second.phase.tolist()})
    if len(phases) == 1:
        return _phase_node(first, second, None, "step", unit)
    children = [
        _phase_node(first, second, phase, phase or "other", f"{phase or 'other'} steps")
        for phase in phases
    ]
    return parent(
        "step", unit, children, interval=_interval(first, second, tuple(first.time_ns), None)
    )


def _phase_node(first: Pooled, second: Pooled, phase: str | None, key: str, label: str) -> Node:
    parts = sorted({*first.time_ns, *second.time_ns})
    compute = [part for part in parts if part.startswith(COMPUTE_PREFIX)]
    idle = [part for part in parts if part.startswith(IDLE_PREFIX)]
    single = [part for part in parts if part not in (*compute, *idle)]
    by_part = [_details_by_part(side.details, phase) for side in (first, second)]
    children = [
        parent(
            name,
            name,
            [_part(first, second, by_part, phase, part) for part in members],
            interval=_interval(first, second, members, phase),
        )
        for name, members in (("compute", compute), ("idle", idle))
        if members
    ]
    children += [_part(first, second, by_part, phase, part) for part in single]
    return parent(
        key, label, children, interval=_interval(first, second, parts, phase),
        note=_num_steps(first, second, phase),
    )  # fmt: skip


def _num_steps(first: Pooled, second: Pooled, phase: str | None) -> str:
    if phase is None or not first.has_steps:
        return ""
    shares = [
        100 * float((side.phase == phase).mean()) if len(side.phase) else 0.0
        for side in (first, second)
    ]
    return f"{shares[0]:.0f} % -> {shares[1]:.0f} % of steps"


def _interval(
    first: Pooled, second: Pooled, parts: Sequence[str], phase: str | None
) -> Interval | None:
    columns = [side.column(parts, phase) for side in (first, second)]
    found = difference(first.samples(columns[0]), second.samples(columns[1]))
    if found is None:
        return None
    # The samples leave the ragged ends of recordings out; the difference itself does not.
    means = [
        int(column.sum()) / side.num_units
        for column, side in zip(columns, (first, second), strict=True)
    ]
    shift = means[1] - means[0] - found.point
    return Interval(found.point + shift, found.low + shift, found.high + shift, found.level)


def _part(
    first: Pooled,
    second: Pooled,
    by_part: Sequence[dict[str, list[Detail]]],
    phase: str | None,
    part: str,
) -> Node:
    means = [
        Fraction(int(side.column([part], phase).sum()), side.num_units) for side in (first, second)
    ]
    label = _LABELS.get(part, part.removeprefix(COMPUTE_PREFIX).replace("_", " "))
    details = [found.get(part, []) for found in by_part]
    roles = _roles(details, means, (first.num_units, second.num_units), part)
    return Node(
        part.rpartition("/")[2],
        label,
        means[0],
        means[1],
        tuple(roles),
        _interval(first, second, [part], phase),
    )


def _details_by_part(details: Sequence[Detail], phase: str | None) -> dict[str, list[Detail]]:
    found: dict[str, list[Detail]] = defaultdict(list)
    for detail in details:
        if phase is None or detail.phase == phase:
            found[detail.part].append(detail)
    return found


def _roles(
    details: Sequence[Sequence[Detail]],
    means: Sequence[Fraction],
    num_units: Sequence[int],
    part: str,
) -> list[Node]:
    """What a part is made of: kernels of one name, else launched by one operator, else the rest.

    Where kernels of a part overlap each other, their times are scaled to the part's.
    """
    names = [{detail.name for detail in side} for side in details]
    shared = names[0] & names[1]
    ops = [{d.op for d in side if d.op and d.name not in shared} for side in details]
    shared_ops = ops[0] & ops[1]
    totals: list[dict[tuple[str, str], list[int]]] = [{}, {}]
    for side, found in zip(details, totals, strict=True):
        for detail in side:
            role = _role(detail, shared, shared_ops, part.startswith(IDLE_PREFIX))
            entry = found.setdefault(role, [0, 0])
            entry[0] += detail.total_ns
            entry[1] += detail.count
    sums = [sum(total for total, _ in found.values()) for found in totals]
    if any(mean and not whole for mean, whole in zip(means, sums, strict=True)):
        return []
    nodes = []
    for role in sorted({*totals[0], *totals[1]}):
        kind, name = role
        values: list[Fraction] = []
        told: list[str] = []
        for found, mean, whole, units in zip(totals, means, sums, num_units, strict=True):
            total, count = found.get(role, [0, 0])
            values.append(mean * Fraction(total, whole) if whole else Fraction(0))
            told.append(
                f"{count / units:,.4g} x {format_duration(total / count)}" if count else "none"
            )
        nodes.append(
            Node(
                f"{kind}:{name}",
                _role_label(kind, name, values),
                values[0],
                values[1],
                note=" -> ".join(told),
            )
        )
    if not nodes or (len(nodes) == 1 and not nodes[0].label):
        return []
    return largest_first(nodes, MAX_ROLES, "others")


def _role(detail: Detail, shared: set[str], shared_ops: set[str], is_idle: bool) -> tuple[str, str]:
    if detail.name in shared or is_idle:
        return "name", detail.name
    return ("op", detail.op) if detail.op in shared_ops else ("rest", "")


def _role_label(kind: str, name: str, values: Sequence[Fraction]) -> str:
    if kind == "op":
        return f"{name}, by other kernels"
    if kind == "rest":
        only = "" if all(values) else "A" if values[0] else "B"
        return f"kernels that only {only} has" if only else "kernels of other names"
    short = short_label(name) if name else "nothing recorded"
    short = short.removeprefix("void ")
    return short if len(short) <= _MAX_NAME else short[: _MAX_NAME - 1] + "…"
