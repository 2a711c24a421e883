"""A tree of contributions: at every place the parts add up to the whole on both sides, exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tokenpath.core.stats_bootstrap import Interval

MOSTLY = 0.5
"""The answer goes down as long as one part explains at least this share of the difference above it."""


@dataclass(frozen=True)
class Node:
    """One part of a mean time, of the first side and of the second."""

    key: str
    """Stable key within its parent."""
    label: str
    """What a person reads."""
    first_ns: Fraction
    """Mean per unit on the first side."""
    second_ns: Fraction
    """On the second."""
    children: Sequence[Node] = ()
    """Parts that add up to it on both sides; none for a leaf."""
    interval: Interval | None = None
    """Of second - first, ns; None where samples are too few to tell noise."""
    note: str = ""
    """What it was on both sides, in a few words."""
    is_detail: bool = False
    """Left out of the tree of a terminal."""

    @property
    def difference_ns(self) -> Fraction:
        """Second - first."""
        return self.second_ns - self.first_ns

    @property
    def is_noise(self) -> bool | None:
        """Whether chance alone explains the difference; None where that is unknown."""
        return None if self.interval is None else self.interval.holds(0.0)

    def residuals(self) -> dict[str, Fraction]:
        """Nodes whose parts do not add up to them, with the difference: empty when all is well."""
        broken: dict[str, Fraction] = {}
        for node, _ in walk(self):
            if node.children:
                for side in ("first_ns", "second_ns"):
                    missing = getattr(node, side) - sum(getattr(c, side) for c in node.children)
                    if missing:
                        broken[f"{node.key}.{side}"] = missing
        return broken


def walk(node: Node, depth: int = 0) -> Iterator[tuple[Node, int]]:
    """The node and all below it, parts in their order, each with its depth."""
    yield node, depth
    for child in node.children:
        yield from walk(child, depth + 1)


def parent(key: str, label: str, children: Sequence[Node], **more: Interval | str | None) -> Node:
    """A node that is the sum of its parts, the largest difference first."""
    kept = sorted(
        (c for c in children if c.first_ns or c.second_ns),
        key=lambda child: (-abs(child.difference_ns), child.key),
    )
    interval, note = more.get("interval"), more.get("note")
    return Node(
        key,
        label,
        sum((child.first_ns for child in kept), Fraction(0)),
        sum((child.second_ns for child in kept), Fraction(0)),
        tuple(kept),
        interval if isinstance(interval, Interval) else None,
        note if isinstance(note, str) else "",
    )


def largest_first(children: Sequence[Node], at_most: int, rest_label: str) -> list[Node]:
    """The parts by difference; those beyond `at_most` summed into one."""
    ordered = sorted(children, key=lambda child: (-abs(child.difference_ns), child.key))
    if len(ordered) <= at_most:
        return ordered
    rest = ordered[at_most - 1 :]
    return [
        *ordered[: at_most - 1],
        Node(
            "rest",
            f"{len(rest)} {rest_label}",
            sum((child.first_ns for child in rest), Fraction(0)),
            sum((child.second_ns for child in rest), Fraction(0)),
        ),
    ]


@dataclass(frozen=True)
class Way:
    """How the answer goes down from the root to what explains most."""

    steps: Sequence[Node] = field(default_factory=tuple)
    """Below the root, each a part of the one before."""


def way_down(root: Node) -> Way:
    """From the root to the part that explains most, as long as one part does."""
    steps: list[Node] = []
    node = root
    while node.children and node.difference_ns:
        best = max(node.children, key=lambda child: child.difference_ns / node.difference_ns)
        if best.difference_ns / node.difference_ns < MOSTLY or best.key == "rest":
            break
        steps.append(best)
        node = best
    return Way(tuple(steps))


def whole_ns(root: Node) -> dict[int, tuple[int, int, int]]:
    """(first, second, difference) of each node by `id`, in whole ns, parts still adding up to wholes."""
    first, second = round(root.first_ns), round(root.second_ns)
    found = {id(root): (first, second, second - first)}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        one, two, _ = found[id(node)]
        sides = [
            apportion(whole, [getattr(child, side) for child in node.children])
            for whole, side in ((one, "first_ns"), (two, "second_ns"))
        ]
        for child, a, b in zip(node.children, *sides, strict=True):
            found[id(child)] = (a, b, b - a)
            waiting.append(child)
    return found


def apportion(whole: int, parts: Sequence[Fraction]) -> list[int]:
    """Whole numbers next to the parts that add up to `whole`: the largest remainders are rounded up.

    (Hamilton's method; Balinski and Young, Fair Representation, 1982.)
    """
    floors = [part.numerator // part.denominator for part in parts]
    missing = whole - sum(floors)
    order = sorted(range(len(parts)), key=lambda n: (floors[n] - parts[n], n))
    for number in order[: max(missing, 0)]:
        floors[number] += 1
    for number in reversed(order[missing:] if missing < 0 else []):
        floors[number] -= 1
    return floors
