"""From findings to what fixing them would bring: each claim's what-if, timed again on the measured run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokenpath.capture.intervals import Int64s
from tokenpath.core.finding import Finding, Kind
from tokenpath.core.report import Note, Severity
from tokenpath.core.units import INT64_MAX, format_percent
from tokenpath.explain.activity import ALLOCATOR, activity_of_call
from tokenpath.explain.analyses.contract import Proposal
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.causes import CAUSE_NUMBER
from tokenpath.replay.change import HostChange, WhatIf, joined
from tokenpath.replay.replay import Replay, Retimed

MAX_UNEXPLAINED = 0.25
"""From this share of the critical path on that no dependency explains, a replay says little: ceilings stay."""
MIN_KEPT = 0.1
"""A finding whose fix brings less than this share of the time it explains was beside the critical path."""

_CAPPED = frozenset({"exposed-communication", "exposed-copy", "stream-handover", "graph-gaps"})
"""Codes whose change takes all there is, although the finding promises only what could go."""

_BOUND = frozenset({"synchronisation-stall", "blocking-copy"})
"""Codes whose change is a bound: the host runs on without a result that it may need."""
_BOUND_TIMES, _BOUND_CONFIDENCE = 2, 0.6
"""From so many times its own time on, such a gain is one that the rest of the run must go along with; how sure it
then is, where the finding does not say."""

FindingKey = tuple[str, str | None, tuple[tuple[str, str], ...]]
_Make = Callable[["Scene"], WhatIf]


@dataclass(frozen=True)
class Scene:
    """What the change of a finding is made from."""

    analysis: Analysis
    """What was measured."""
    replay: Replay
    """The measured run."""

    def gaps_of(self, *causes: str) -> tuple[Int64s, Int64s, Int64s]:
        """Kernel rows that end the idle gaps of these causes, and the gaps' starts and ends."""
        numbers = [CAUSE_NUMBER[key] for key in causes]
        rows, starts, ends = [], [], []
        for device in self.analysis.devices:
            gaps = device.gaps
            mine = np.isin(gaps.cause, numbers) & (gaps.kernel >= 0)
            rows.append(device.work.row[gaps.kernel[mine]].astype(np.int64))
            starts.append(gaps.start[mine])
            ends.append(gaps.end[mine])
        return np.concatenate(rows), np.concatenate(starts), np.concatenate(ends)


@dataclass(frozen=True)
class Fix:
    """A finding whose fix was replayed."""

    finding: Finding
    """With its replayed gain."""
    what_if: WhatIf
    """What was changed."""
    alone: Retimed
    """The run with that change alone."""


@dataclass(frozen=True)
class Gains:
    """Findings with what fixing them would bring."""

    findings: Sequence[Finding]
    """All findings, replayed ones with their new gain; order kept, those without worth taken out."""
    fixes: Sequence[Fix]
    """What was replayed and is worth it."""
    dismissed: Sequence[tuple[Finding, Retimed]]
    """What was replayed and is not: off the critical path."""
    note: Note | None
    """Why nothing was replayed, where that matters."""


def _most(finding: Finding, num_devices: int) -> int | None:
    """What a fix brings at most, whatever its change brings; None for no limit."""
    is_shared = finding.code == "straggler" and "explained_by_others_ns" in finding.details
    if finding.code in _CAPPED or is_shared:
        return finding.gain_ns
    # The change shortens launches that closer findings explain as well. Idle time of one device that others wait
    # for counts once for each.
    return (finding.duration_ns or 0) * num_devices if finding.code == "launch-bound" else None


def key_of(finding: Finding) -> FindingKey:
    """By what a proposal is matched to its finding, whatever `settle` has taken off it."""
    return finding.code, finding.scope, tuple(sorted(finding.place.items()))


def replayed_gains(
    analysis: Analysis,
    replay: Replay,
    findings: Sequence[Finding],
    proposals: Sequence[Proposal],
    min_share: float,
) -> Gains:
    """Replace ceilings and estimates by replayed gains, for every finding whose change is known.

    The graph is built only when there is such a finding. A fix that brings less than `min_share` of the wall,
    and hardly anything of the time that the finding explains, is dismissed.
    """
    proposed: Mapping[FindingKey, Proposal] = {key_of(p.finding): p for p in proposals}
    makers = [_maker(finding, proposed) for finding in findings]
    if analysis.quality.idle_withheld is not None or not any(makers) or not analysis.devices:
        return Gains(findings, (), (), None)
    unexplained = _unexplained(analysis, replay)
    if unexplained > MAX_UNEXPLAINED:
        return Gains(findings, (), (), _note(unexplained))
    scene = Scene(analysis, replay)
    kept: list[Finding] = []
    fixes: list[Fix] = []
    dismissed: list[tuple[Finding, Retimed]] = []
    for finding, make in zip(findings, makers, strict=True):
        if make is None:
            kept.append(finding)
            continue
        what_if = make(scene)
        alone = replay.what_if(what_if)
        most = _most(finding, len(analysis.devices))
        if alone.gain_ns < MIN_KEPT * (finding.duration_ns or 0) and finding.code in _OTHERWISE:
            what_if = _OTHERWISE[finding.code](scene)
            alone, most = replay.what_if(what_if), finding.gain_ns
        is_small = alone.gain_ns < min_share * analysis.wall_ns
        if is_small and alone.gain_ns < MIN_KEPT * (finding.duration_ns or 0):
            dismissed.append((finding, alone))
            continue
        shown = with_gain(finding, alone, what_if.label, most)
        kept.append(shown)
        fixes.append(Fix(shown, what_if, alone))
    return Gains(kept, fixes, dismissed, None)


def with_gain(finding: Finding, alone: Retimed, label: str, most_ns: int | None = None) -> Finding:
    """The finding with the gain of a replay, at most `most_ns`, and the wall that is to be expected.

    Its interval is the wider of what the gain varies from step to step and what the finding knew of its own
    gain, in proportion.
    """
    most = INT64_MAX if most_ns is None else most_ns
    gain = min(max(alone.gain_ns, 0), most)
    intervals = [found for found in (alone.interval_ns, _in_proportion(finding, gain)) if found]
    confidence = finding.confidence
    if finding.code in _BOUND and finding.duration_ns and gain > finding.duration_ns:
        # At least the stretches that were seen behind the waits can go.
        intervals.append((finding.duration_ns, gain))
        if confidence is None and gain > _BOUND_TIMES * finding.duration_ns:
            confidence = _BOUND_CONFIDENCE
    low = min((found[0] for found in intervals), default=gain)
    high = max((found[1] for found in intervals), default=gain)
    return replace(
        finding,
        gain_ns=gain,
        gain_method="replayed",
        confidence=confidence,
        gain_interval_ns=(min(max(low, 0), gain), max(min(high, most), gain))
        if intervals
        else None,
        details={
            **finding.details,
            "what_if": label,
            "expected_wall_ns": sum(alone.measured_ns) - gain,
            "gain_before_replay_ns": finding.gain_ns,
        },
    )


def _in_proportion(finding: Finding, gain_ns: int) -> tuple[int, int] | None:
    if finding.gain_interval_ns is None or not finding.gain_ns:
        return None
    low, high = finding.gain_interval_ns
    return round(gain_ns * low / finding.gain_ns), round(gain_ns * high / finding.gain_ns)


def _unexplained(analysis: Analysis, replay: Replay) -> float:
    """The largest share of any device's critical path that no dependency explains."""
    from tokenpath.replay.critical_path import critical_path

    return max(
        (
            critical_path(analysis.capture, replay, device).unexplained_share
            for device in replay.in_windows
        ),
        default=0.0,
    )


def _note(unexplained: float) -> Note:
    return Note(
        "replay-unexplained",
        Severity.INFO,
        f"gains are ceilings: no recorded dependency explains {format_percent(round(unexplained * 10_000), 10_000)} "
        "of the critical path, so a replay would hold that time fixed",
        {"unexplained_share": unexplained},
    )


def _maker(finding: Finding, proposed: Mapping[FindingKey, Proposal]) -> _Make | None:
    is_cost = finding.kind is Kind.COST and finding.scope != "requests"
    # What is as it should be was promised no gain, and gets none.
    if not is_cost or not finding.duration_ns or not finding.gain_ns:
        return None
    found = proposed.get(key_of(finding))
    if found is not None:
        proposal = found
        return lambda _: proposal.what_if()
    if finding.code in _OF_PLACE:
        return lambda scene: _catching_up(scene, finding.place)
    return _BY_CODE.get(finding.code)


def _catching_up(scene: Scene, place: Mapping[str, str]) -> WhatIf:
    devices = [
        device.work.device_id
        for device in scene.analysis.devices
        if device.work.label == place.get("device")
    ]
    return WhatIf(f"{place.get('device', 'the rank')} level with the others", catching_up=devices)


def _launch_bound(scene: Scene) -> WhatIf:
    """Device graphs; within one nothing is on its way from the host."""
    from tokenpath.replay.what_ifs import device_graphs

    graphs = device_graphs(scene.analysis.capture, scene.replay.graph)
    return replace(graphs, prompt=[scene.gaps_of("launch_latency")[0]])


def _no_waits(scene: Scene, cause: str, label: str, *, is_copy: bool) -> WhatIf:
    """The waits after which the device stood idle for that cause."""
    graph = scene.replay.graph
    calls = graph.measured.calls
    _, start, end = scene.gaps_of(cause)
    mine = np.flatnonzero((graph.own_ns >= 0) & (calls.waits != is_copy))
    back = calls.end[mine] + graph.measured.origin_ns + graph.measured.shift_ns[calls.source[mine]]
    by_start = np.argsort(start, kind="stable")
    place = np.searchsorted(start[by_start], back, side="right") - 1
    inside = (place >= 0) & (back <= end[by_start[np.maximum(place, 0)]])
    return WhatIf(label, not_waiting=[calls.row[mine[inside]]])


def _no_allocator(scene: Scene) -> WhatIf:
    from tokenpath.replay.what_ifs import host_time_where, without_blocking_copies

    def allocates(name: str) -> bool:
        return activity_of_call(name) == ALLOCATOR

    label = "allocator out of the loop"
    time = host_time_where(scene.analysis.capture, "api_call", label, allocates)
    return joined(label, [time, without_blocking_copies(scene.replay.graph)])


def _late_host(scene: Scene, causes: Sequence[str], label: str) -> WhatIf:
    """The host time gone in which the device stood idle for these causes."""
    thread_of_call = scene.analysis.capture.ids("api_call", "thread_id")
    numbers = [CAUSE_NUMBER[key] for key in causes]
    threads, starts, ends = [], [], []
    for device in scene.analysis.devices:
        late = device.gaps.late
        mine = np.isin(device.gaps.cause[late.rows], numbers)
        threads.append(thread_of_call[late.call[mine]])
        starts.append(late.start[mine])
        ends.append(late.end[mine])
    return WhatIf(
        label,
        host=[HostChange(np.concatenate(threads), np.concatenate(starts), np.concatenate(ends))],
    )


def _prompt(scene: Scene, cause: str, label: str) -> WhatIf:
    return WhatIf(label, prompt=[scene.gaps_of(cause)[0]])


def _hidden(scene: Scene, kind: str, label: str) -> WhatIf:
    from tokenpath.replay.what_ifs import hide_kernels

    return hide_kernels(label, scene.analysis.capture, kind)


_BY_CODE: Mapping[str, _Make] = {
    "launch-bound": _launch_bound,
    "synchronisation-stall": lambda scene: _no_waits(
        scene, "host_synchronize", "without these synchronises", is_copy=False
    ),
    "blocking-copy": lambda scene: _no_waits(
        scene, "host_memcpy", "copies that do not block", is_copy=True
    ),
    "allocator-stall": _no_allocator,
    "host-wait": lambda scene: _late_host(scene, ["host_wait"], "the launching thread fed in time"),
    "stream-handover": lambda scene: _prompt(
        scene, "stream_dependency", "no gap between kernels of a stream"
    ),
    "graph-gaps": lambda scene: _prompt(scene, "graph_internal", "no gap inside graphs"),
    "exposed-communication": lambda scene: _hidden(
        scene, "communication", "communication beside compute"
    ),
    "exposed-copy": lambda scene: _hidden(scene, "memcpy", "copies beside compute"),
    "rank-imbalance": lambda _: WhatIf("work balanced over ranks", is_balanced=True),
}
"""The change that fixes a finding of a code, for findings that come without one."""

_OF_PLACE = frozenset({"straggler", "slow-device"})
"""Codes whose fix brings the device that the finding names level with the others."""

_OTHERWISE: Mapping[str, _Make] = {
    "launch-bound": lambda scene: _late_host(
        scene,
        ("host_op", "host_api", "host_python", "host_untraced"),
        "host work of these gaps off the launching thread",
    ),
}
"""The change where the one above brings next to nothing: few long stretches of host work, which no device graph
takes away. It brings no more than the finding claims, for closer findings may claim the rest."""
