"""Why the host was late: compilers, garbage, data, sampling on the host, one slow function, or pauses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s, covered, union
from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.activity import PYTHON
from tokenpath.explain.analyses.contract import Context, Proposal, Result
from tokenpath.explain.analyses.host_copies import held_by_copies, without_waiting
from tokenpath.explain.analyses.host_late import LateTime, late_time
from tokenpath.explain.analyses.host_names import COMPILE, GARBAGE, LOADER, SAMPLING, SAMPLING_CORE
from tokenpath.explain.analyses.host_pauses import pauses
from tokenpath.explain.labels import short_label
from tokenpath.replay.change import WhatIf, joined, without_host_time

MIN_SHARE = 0.005
"""Late time below this share of the window is not looked into."""
MIN_SAMPLING = 0.3
"""A gap belongs to sampling when its operators, without a launch among them, have so much of it."""
MIN_FUNCTION = 0.4
"""A function is named when it has so much of the late time that is left ..."""
MIN_CALL_NS = 200_000
"""... and takes so long at the median of its gaps: shorter ones are the usual cost of launching."""

ONE_RANK = 0.8
"""From this share of a cause's time on one rank, the others wait for that rank because of it."""


def analyse(context: Context) -> Result:
    """Split the time for which the host was late; each finding takes its time off the general claim."""
    late = late_time(context.analysis)
    wall = context.analysis.wall_ns
    if late is None or not wall or late.total_ns < MIN_SHARE * wall:
        return Result()
    spent = np.zeros(len(late.start), np.int64)
    made = (
        _named(context, late, spent, COMPILE, "recompilation"),
        _named(context, late, spent, GARBAGE, "gc-pause"),
        _named(context, late, spent, LOADER, "data-starved"),
        _sampling(context, late, spent),
        _function(context, late, spent),
        *pauses(context, late, spent),
    )
    found = [one for one in made if one is not None]
    return Result(
        findings=[finding for finding, _ in found],
        proposals=[Proposal(finding, partial(_given, change)) for finding, change in found],
    )


def _given(change: WhatIf) -> WhatIf:
    return change


_TEXTS: Mapping[str, tuple[str, str, str, str]] = {
    "recompilation": (
        "the host compiled or loaded kernels",
        "mark the changing sizes as dynamic, pad them to a few, warm every shape up before serving",
        "with all shapes warmed up the gaps stay",
        "code",
    ),
    "gc-pause": (
        "the interpreter collected garbage",
        "gc.freeze() after warm-up, a higher threshold, or gc.disable() with collections between requests",
        "with gc.disable() the pauses stay",
        "setting",
    ),
    "data-starved": (
        "the training loop waited for its next batch",
        "more loader workers, prefetching, pinned memory; cheaper decoding and augmentation",
        "with one batch used over and over the gaps stay",
        "setting",
    ),
}


def _named(
    context: Context, late: LateTime, spent: Int64s, names: re.Pattern[str], code: str
) -> tuple[Finding, WhatIf] | None:
    """Late time inside frames, operators, calls or ranges with such names, on the late thread."""
    capture = context.capture
    mine = np.zeros(len(late.start), np.int64)
    for thread in np.unique(late.thread).tolist():
        starts, ends = [], []
        for table in ("frame", "op", "api_call", "range"):
            codes, texts = capture.codes(table, "name")
            wanted = np.array([names.search(text) is not None for text in texts] or [False])
            if not wanted.any():
                continue
            rows = np.flatnonzero(wanted[np.maximum(codes, 0)] & (codes >= 0))
            rows = rows[capture.ids(table, "thread_id")[rows] == thread]
            starts.append(capture.int64(table, "start_ns")[rows])
            ends.append(capture.int64(table, "end_ns")[rows])
        rows = np.flatnonzero(late.thread == thread)
        if starts:
            inside = covered(
                late.start[rows],
                late.end[rows],
                union(np.concatenate(starts), np.concatenate(ends)),
            )
            mine[rows] = inside
    # A gap that such an item has most of is all its doing: what surrounds it is part of the same detour.
    whole = late.end - late.start
    mine = np.where(2 * mine >= whole, whole, mine)
    mine = np.minimum(mine, whole - spent)
    least = MIN_CALL_NS if code == "gc-pause" else 5 * MIN_CALL_NS
    if mine.sum() < max(least, MIN_SHARE * context.analysis.wall_ns):
        return None
    spent += mine
    rows = np.flatnonzero(mine)
    what, fix, falsifier, effort = _TEXTS[code]
    sentence = (
        f"{what} for {format_duration(int(mine.sum()))} in {len(rows):,} gaps "
        f"({format_percent(int(mine.sum()), context.analysis.wall_ns)} of the window), and the device waited"
    )
    return finding_of(
        context, late, rows, mine[rows], code, sentence, fix, falsifier, 0.95, effort, {}
    )


def _sampling(context: Context, late: LateTime, spent: Int64s) -> tuple[Finding, WhatIf] | None:
    """Gaps in which the host itself computed what sampling needs."""
    capture = context.capture
    codes, texts = capture.codes("op", "name")
    core = np.array([SAMPLING_CORE.search(text) is not None for text in texts] or [False])
    wanted = np.array([SAMPLING.search(text) is not None for text in texts] or [False])
    if not core.any():
        return None
    start, end = capture.int64("op", "start_ns"), capture.int64("op", "end_ns")
    thread = capture.ids("op", "thread_id")
    launching = np.unique(capture.ids("kernel", "api_call_id"))
    calls = launching[launching >= 0]
    called = capture.int64("api_call", "start_ns")[calls]
    caller = capture.ids("api_call", "thread_id")[calls]
    share = np.zeros(len(late.start), np.int64)
    has_core = np.zeros(len(late.start), np.bool_)
    for number in np.unique(late.thread).tolist():
        rows = np.flatnonzero(wanted[np.maximum(codes, 0)] & (codes >= 0) & (thread == number))
        launches = np.sort(called[caller == number])
        on_host = np.searchsorted(launches, start[rows]) == np.searchsorted(launches, end[rows])
        rows = rows[on_host]
        gaps = np.flatnonzero(late.thread == number)
        share[gaps] = covered(late.start[gaps], late.end[gaps], union(start[rows], end[rows]))
        rows = rows[core[codes[rows]]]
        has_core[gaps] = (
            covered(late.start[gaps], late.end[gaps], union(start[rows], end[rows])) > 0
        )
    whole = late.end - late.start
    mine = np.where(has_core & (share >= MIN_SAMPLING * whole), whole - spent, 0)
    total = int(mine.sum())
    if total < MIN_SHARE * context.analysis.wall_ns:
        return None
    spent += mine
    rows = np.flatnonzero(mine)
    finding, change = finding_of(
        context, late, rows, mine[rows], "cpu-sampling",
        f"tokens were sampled on the host in {len(rows):,} gaps, {format_duration(total // len(rows))} each "
        f"({format_percent(total, context.analysis.wall_ns)} of the window), while the device waited",
        "sample on the device: keep logits there and copy token ids only; no host-side logits processors",
        "with greedy sampling on the device the gaps stay", 0.9, "code", {},
    )  # fmt: skip
    # The logits come over first, while the host stands: sampled on the device, they stay there.
    copies, alone = held_by_copies(context, for_sampling=True)
    return _longer(finding, int(alone.sum()), "exposed-copy", context.analysis.wall_ns), joined(
        change.label, [change, without_waiting(context, copies, "logits stay on the device")]
    )


def _longer(finding: Finding, more_ns: int, general: str, wall_ns: int) -> Finding:
    """The claim with time of another general claim."""
    total = (finding.duration_ns or 0) + more_ns
    return replace(
        finding,
        value=total / wall_ns,
        duration_ns=total,
        share=total / wall_ns,
        gain_ns=total,
        part_of_ns={**finding.part_of_ns, general: more_ns} if more_ns else finding.part_of_ns,
    )


def _function(context: Context, late: LateTime, spent: Int64s) -> tuple[Finding, WhatIf] | None:
    """One Python function that has most of the late time, gap after gap."""
    pieces, items = late.pieces, late.segments.items
    is_left = (spent == 0)[pieces.gap]
    rows = np.flatnonzero((pieces.activity == PYTHON) & is_left)
    left = int((late.end - late.start)[spent == 0].sum())
    if len(rows) == 0 or left < MIN_SHARE * context.analysis.wall_ns:
        return None
    names: dict[str, int] = {}
    of_label = np.array(
        [names.setdefault(_without_line(label), len(names)) for label in items.labels], np.int64
    )
    name = of_label[items.label[pieces.item[rows]]]
    time = np.bincount(name, pieces.length[rows], len(names))
    best = int(time.argmax())
    if time[best] < MIN_FUNCTION * left or time[best] < MIN_SHARE * context.analysis.wall_ns:
        return None
    mine = np.zeros(len(late.start), np.int64)
    chosen = rows[name == best]
    np.add.at(mine, pieces.gap[chosen], pieces.length[chosen])
    gaps = np.flatnonzero(mine)
    usual = int(np.median(mine[gaps]))
    # One gap of many, here and there, is a pause: what held the function up is not the function.
    if usual < MIN_CALL_NS or len(gaps) < 3 or not _is_regular(context, late, gaps, mine):
        return None
    spent += mine
    by_label = np.bincount(items.label[pieces.item[chosen]], pieces.length[chosen])
    label = short_label(items.labels[int(by_label.argmax())])
    total = int(mine.sum())
    return finding_of(
        context, late, gaps, mine[gaps], "slow-host-code",
        f"{label} ran for {format_duration(usual)} at the median of {len(gaps):,} gaps "
        f"({format_percent(total, context.analysis.wall_ns)} of the window), while the device waited for the launch",
        "make this function faster, or run it while the device works (asynchronous scheduling)",
        "with the function replaced by a constant answer the gaps stay", 0.85, "code",
        {"function": label},
    )  # fmt: skip


def _is_regular(context: Context, late: LateTime, gaps: Int64s, mine: Int64s) -> bool:
    """Whether the function is slow as often as it is called: its long gaps are no rare ones."""
    steps = max((len(device.spans.start) for device in context.analysis.devices), default=0)
    if steps >= 3:
        return len(gaps) >= 0.5 * steps
    times = np.sort(late.start[gaps])
    return len(times) < 3 or float(np.std(mine[gaps]) / mine[gaps].mean()) < 0.5


def _without_line(label: str) -> str:
    """The same function has one name wherever in it the profiler stood."""
    return re.sub(r"\(\d+\): ", ": ", label)


def _held_up(
    context: Context, late: LateTime, rows: NDArray[np.int64], spent: NDArray[np.int64]
) -> dict[str, int]:
    """What all ranks lose by a host that is late on one: who is late is said by `straggler`, why is said here."""
    source = context.capture.ids("thread", "source_id")[late.thread[rows]]
    by_source = np.bincount(source, spent)
    if len(context.analysis.devices) < 2 or by_source.max() < ONE_RANK * spent.sum():
        return {}
    return {"straggler": int(by_source.max()) * len(context.analysis.devices)}


def finding_of(
    context: Context,
    late: LateTime,
    rows: Int64s,
    spent: NDArray[np.int64],
    code: str,
    sentence: str,
    fix: str,
    falsifier: str,
    confidence: float,
    effort: str,
    place: Mapping[str, str],
    thread: int | None = None,
) -> tuple[Finding, WhatIf]:
    """A claim on some of the late time, and the change that takes it out."""
    wall, total = context.analysis.wall_ns, int(spent.sum())
    threads = np.bincount(late.thread[rows], spent)
    main = int(threads.argmax()) if thread is None else thread
    longest = rows[np.argsort(-spent, kind="stable")][:5]
    finding = Finding(
        code=code,
        sentence=sentence,
        kind=Kind.COST,
        value=total / wall,
        unit="share of the window",
        duration_ns=total,
        share=total / wall,
        gain_ns=total,
        gain_method="ceiling",
        status=context.status,
        evidence=(
            Evidence(
                "kernel",
                tuple(late.kernel[longest].tolist()),
                len(rows),
                "kernels that end the gaps",
            ),
        ),
        falsifier=falsifier,
        fix=fix,
        details={"num_gaps": len(rows), "p50_ns": int(np.median(spent))},
        place={"thread": late.thread_name(main), **place},
        part_of_ns={**late.part_of_ns(rows, spent), **_held_up(context, late, rows, spent)},
        confidence=confidence,
        effort=effort,
    )
    low = late.start[rows]
    change = without_host_time(f"without {code}", late.thread[rows], low, low + spent)
    return finding, change
