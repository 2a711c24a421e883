"""What-ifs that the user asked for: the wall to expect, and what would make it that long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import UsageError
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.core.units import format_duration, format_percent
from tokenpath.replay.change import WhatIf, joined
from tokenpath.replay.critical_path import CriticalPath, critical_path
from tokenpath.replay.grammar import Spoken, parse_what_if
from tokenpath.replay.replay import Replay
from tokenpath.replay.weights import changed_weights

_COLUMNS = (
    TableColumn("what_if", "what if", Unit.TEXT),
    TableColumn("wall_ns", "wall then", Unit.NS),
    TableColumn("gain_ns", "gain", Unit.NS),
    TableColumn("gain_low_ns", "at least", Unit.NS),
    TableColumn("gain_high_ns", "at most", Unit.NS),
    TableColumn("critical_path", "critical path then", Unit.TEXT, is_key_figure=False),
)
_NUM_PARTS = 3
"""Parts of the critical path that are named."""


def asked_what_ifs(capture: Capture, replay: Replay, texts: Sequence[str]) -> ShownTable:
    """Replay each what-if, and all of them together where there are several.

    UsageError for one that cannot be read, or that changes nothing in this capture, or without device work.
    """
    spoken = [parse_what_if(text) for text in texts]
    if not any(window.end_ns > window.start_ns for window in replay.windows):
        raise UsageError(
            "a what-if needs device work, and the capture holds none", where="--what-if"
        )
    answers = [_answer(capture, replay, item) for item in spoken]
    if len(spoken) > 1:
        likely = [item.build(capture, replay)[0] for item in spoken]
        answers.append(
            _answer_of(capture, replay, "all together", [joined("all together", likely)])
        )
    rows: list[Sequence[Cell]] = [answer.row for answer in answers]
    walls = "" if len(replay.windows) == 1 else "Walls and gains of all devices summed. "
    paths = "; ".join(f"{row[0]}: {row[-1]}" for row in rows)
    note = (
        f"{walls}Measured: {format_duration(answers[0].measured_ns)}. "
        f"Critical path then: {paths}. What each means: docs/replay.md."
    )
    columns: Sequence[TableColumn] = _COLUMNS
    if all(row[3] is None for row in rows):
        # Neither steps nor bounds: no interval to show.
        columns = (*_COLUMNS[:3], _COLUMNS[-1])
        rows = [(*row[:3], row[-1]) for row in rows]
    return ShownTable("what_ifs", "what if", columns, rows, len(rows), note, is_lead=True)


@dataclass(frozen=True)
class _Answer:
    measured_ns: int
    row: Sequence[Cell]


def _answer(capture: Capture, replay: Replay, spoken: Spoken) -> _Answer:
    return _answer_of(capture, replay, spoken.text, spoken.build(capture, replay))


def _answer_of(capture: Capture, replay: Replay, text: str, what_ifs: Sequence[WhatIf]) -> _Answer:
    """The first what-if is the likely one; the others bound it."""
    results = [replay.what_if(item) for item in what_ifs]
    likely = results[0]
    intervals = [found.interval_ns for found in results]
    bounds = [bound for interval in intervals if interval is not None for bound in interval]
    if len(results) > 1:
        bounds += [found.gain_ns for found in results]
    low, high = (min(bounds), max(bounds)) if bounds else (None, None)
    measured, gain = sum(likely.measured_ns), likely.gain_ns
    path = _longest_path(capture, replay, what_ifs[0])
    parts = ", ".join(
        f"{format_percent(duration, path.wall_ns)} {part}"
        for part, duration in list(path.parts_ns.items())[:_NUM_PARTS]
    )
    return _Answer(measured, (text, measured - gain, gain, low, high, parts))


def _longest_path(capture: Capture, replay: Replay, what_if: WhatIf) -> CriticalPath:
    changed = changed_weights(replay.places, what_if)
    longest = max(
        replay.in_windows, key=lambda device: device.window.end_ns - device.window.start_ns
    )
    return critical_path(capture, replay, longest, changed)
