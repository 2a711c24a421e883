"""The report of a comparison: one sentence, then the tree it stands on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import UsageError
from tokenpath.core.report import Cell, Note, Report, Severity, ShownTable, TableColumn, Trust, Unit
from tokenpath.core.units import format_duration
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.compare.comparability import (
    SAME_WORK,
    device_notes,
    noise_notes,
    overlap,
    request_notes,
)
from tokenpath.explain.compare.device import device_side
from tokenpath.explain.compare.nodes import Node, walk, way_down, whole_ns
from tokenpath.explain.compare.serving import engine_step_tree, request_trees
from tokenpath.explain.compare.sides import Pooled, anchor, by_recording, pool
from tokenpath.explain.compare.tree import device_tree

MIN_SHOWN = 0.02
"""A part whose difference is a smaller share of all differences is left out of the terminal's tree."""
MAX_DEPTH = 4
_COLUMNS = (
    TableColumn("part", "mean time of", Unit.TEXT),
    TableColumn("first_ns", "A", Unit.NS),
    TableColumn("second_ns", "B", Unit.NS),
    TableColumn("difference_ns", "B - A", Unit.NS),
    TableColumn("share", "of all", Unit.SHARE),
    TableColumn("low_ns", "from", Unit.NS, is_key_figure=False),
    TableColumn("high_ns", "to", Unit.NS, is_key_figure=False),
    TableColumn("note", "A -> B", Unit.TEXT, is_key_figure=False),
)


@dataclass(frozen=True)
class Run:
    """One run of a side."""

    capture: Capture
    """The linked capture."""
    analysis: Analysis
    """Its device side, measured."""


@dataclass(frozen=True)
class Compared:
    """The trees of a comparison."""

    requests: Node | None
    """Mean latency of a request."""
    engine_steps: Node | None
    """Mean step of the scheduler."""
    device: Node | None
    """Mean step of a device, or what stands for one."""
    observer: str | None
    """Who saw the requests."""
    unit: str
    """What the device's means are taken over."""
    notes: Sequence[Note]
    """What limits the comparison."""

    @property
    def roots(self) -> list[Node]:
        """The trees there are, from the request down."""
        return [
            root for root in (self.requests, self.engine_steps, self.device) if root is not None
        ]


def compare(first: Sequence[Run], second: Sequence[Run]) -> Compared:
    """Take the difference of two sides apart; UsageError where they have nothing in common."""
    captures = [[run.capture for run in side] for side in (first, second)]
    found = request_trees(*captures)
    engine = engine_step_tree(*captures)
    device, unit, notes = _device(first, second)
    requests, observer = found if found is not None else (None, None)
    if requests is not None:
        notes = [*request_notes(*captures), *notes]
    result = Compared(requests, engine, device, observer, unit, notes)
    if not result.roots:
        raise UsageError(
            "the two sides have nothing in common that could be compared",
            allowed="requests, scheduler steps or device work on both sides",
            next_step="tokenpath inspect FILE shows what each holds",
        )
    return replace(result, notes=[*notes, *noise_notes(result.roots, (len(first), len(second)))])


def _device(first: Sequence[Run], second: Sequence[Run]) -> tuple[Node | None, str, list[Note]]:
    one, two = _pooled(first), _pooled(second)
    if one is None or two is None:
        return None, "", []
    unit = "step"
    if not (one.has_steps and two.has_steps):
        one = by_recording(_pooled(first, by_steps=False) or one)
        two = by_recording(_pooled(second, by_steps=False) or two)
        is_same = (overlap(one, two) or 0.0) >= SAME_WORK
        unit = "recording"
        found = anchor(one, two, [run.analysis for run in (*first, *second)])
        if found is not None and (found.is_regular or not is_same):
            one = _pooled(first, by_steps=False, anchor=found.name) or one
            two = _pooled(second, by_steps=False, anchor=found.name) or two
            # Stretches that differ by nature say nothing about chance.
            one, two = (replace(side, is_cut=found.is_regular) for side in (one, two))
            if is_same:
                one, two = by_recording(one), by_recording(two)
            else:
                short = found.name.split("<")[0].split("(")[0].removeprefix("void ").strip()
                unit = f"run of {short}"
    return device_tree(one, two, unit), unit, device_notes(one, two, unit)


def _pooled(
    runs: Sequence[Run], *, by_steps: bool = True, anchor: str | None = None
) -> Pooled | None:
    sides = [device_side(run.analysis, by_steps=by_steps, anchor=anchor) for run in runs]
    known = [found for found in sides if found is not None]
    return pool(known) if known else None


def build_report(compared: Compared, first: Sequence[Run], second: Sequence[Run]) -> Report:
    """Put the trees into words."""
    tables = [_table(compared, root) for root in compared.roots]
    warned = any(note.severity is Severity.WARNING for note in compared.notes)
    states = {
        state for run in (*first, *second) for state in run.capture["source"]["state"].to_pylist()
    } - {"measured"}
    return Report(
        verb="compare",
        headline=f"A: {_side_name(first)} · B: {_side_name(second)}",
        answer=answer(compared),
        trust=Trust.LIMITED if warned else Trust.GOOD,
        window=None,
        funnel=None,
        findings=(),
        dismissed=(),
        notes=compared.notes,
        tables=tables,
        state=min(states) if states else "measured",
        facts={
            "unit": compared.unit or None,
            "observer": compared.observer,
            "trees": [_plain(root, whole_ns(root)) for root in compared.roots],
        },
    )


def _side_name(runs: Sequence[Run]) -> str:
    capture = runs[0].capture
    names = Counter(str(name or "unnamed device") for name in capture["device"]["name"].to_pylist())
    engines = Counter(name for name in capture["step"]["engine"].to_pylist() if name)
    parts = [f"{count} x {name}" for name, count in names.most_common(2)]
    parts += [name for name, _ in engines.most_common(1)]
    if requests := len(set(capture["request"]["request_id"].to_pylist())):
        parts.append(f"{requests:,} requests")
    if len(runs) > 1:
        parts.append(f"{len(runs)} runs")
    return ", ".join(parts) or "no device work"


def answer(compared: Compared) -> tuple[str, ...]:
    """The difference in one sentence; a second one from the level below, where there is one."""
    sentences = []
    for root in compared.roots:
        sentences.append(_sentence(root, _noun(compared, root)))
        if root.is_noise:
            break
    if compared.unit.startswith("run of"):
        sentences.append(
            "No steps are marked and the recordings hold different amounts of work: a kernel that both "
            "spend much time in is the measure of it."
        )
    return tuple(sentences[:2])


def _noun(compared: Compared, root: Node) -> str:
    if root is compared.requests:
        return f"request ({compared.observer})"
    return "engine step" if root is compared.engine_steps else compared.unit


def _sentence(root: Node, noun: str) -> str:
    one, two, change = float(root.first_ns), float(root.second_ns), float(root.difference_ns)
    ratio = f"{100 * change / one:+.1f} %" if one else "from nothing"
    sides = f"{format_duration(one)} -> {format_duration(two)}, {ratio}"
    if root.interval is not None:
        low, high = (_signed(end) for end in (root.interval.low, root.interval.high))
        sides += f", 95 %: {low} to {high}"
    if root.is_noise or not change:
        return f"No difference shown per {noun}: {sides}."
    less = "more" if change > 0 else "less"
    sentence = f"B takes {format_duration(abs(change))} {less} per {noun} ({sides})"
    steps = way_down(root).steps
    if steps:
        path = " > ".join(step.label for step in steps)
        sentence += f": {_signed(float(steps[-1].difference_ns))} in {path}"
    against = _against(root)
    if against is not None:
        sentence += f", against {_signed(float(against.difference_ns))} in {against.label}"
    return sentence + "."


def _against(root: Node) -> Node | None:
    """The part that goes the other way, where it hides much of what changed."""
    change = root.difference_ns
    leaves = [child for child in root.children if child.difference_ns * change < 0]
    worst = max(leaves, key=lambda child: abs(child.difference_ns), default=None)
    if worst is None or abs(worst.difference_ns) * 2 < abs(change):
        return None
    return worst


def _signed(duration_ns: float) -> str:
    return ("+" if duration_ns > 0 else "") + format_duration(duration_ns)


def _table(compared: Compared, root: Node) -> ShownTable:
    whole = whole_ns(root)
    moved = max((abs(child.difference_ns) for child in root.children), default=root.difference_ns)
    total = abs(root.difference_ns)
    rows: list[Sequence[Cell]] = []
    count = 0
    for node, depth in walk(root):
        count += 1
        if depth > MAX_DEPTH or (depth > 1 and abs(node.difference_ns) < MIN_SHOWN * moved):
            continue
        first, second, difference = whole[id(node)]
        rows.append(
            (
                "  " * depth + node.label,
                first,
                second,
                difference,
                float(node.difference_ns / root.difference_ns)
                if total and not root.is_noise
                else None,
                None if node.interval is None else round(node.interval.low),
                None if node.interval is None else round(node.interval.high),
                node.note or None,
            )
        )
    noun = _noun(compared, root)
    return ShownTable(
        f"difference_{root.key}",
        f"Per {noun}, on average",
        _COLUMNS,
        rows,
        count,
        "Parts add up to what stands above them.",
        is_lead=True,
    )


def _plain(node: Node, whole: dict[int, tuple[int, int, int]]) -> dict[str, object]:
    """A tree as JSON: whole nanoseconds that add up."""
    first, second, difference = whole[id(node)]
    plain: dict[str, object] = {
        "key": node.key,
        "label": node.label,
        "first_ns": first,
        "second_ns": second,
        "difference_ns": difference,
    }
    if node.interval is not None:
        plain["interval_ns"] = [round(node.interval.low), round(node.interval.high)]
        plain["is_noise"] = node.is_noise
    if node.note:
        plain["note"] = node.note
    if node.children:
        plain["parts"] = [_plain(child, whole) for child in node.children]
    return plain
