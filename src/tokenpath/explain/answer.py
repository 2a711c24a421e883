"""The first two sentences of a report: the answer, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from tokenpath.core.finding import Finding, Kind
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analysis import Analysis
from tokenpath.explain.causes import CAUSES, HOST_NOT_READY
from tokenpath.explain.work import device_noun

_WHY = {
    "launch_latency": "for launches to reach it",
    "stream_dependency": "between back-to-back kernels",
    "event_wait": "for events of other streams",
    "collective_wait": "for collectives",
    "graph_internal": "between nodes of a graph",
    "no_work": "with no work to do",
    "launch_not_in_file": "for launches that the file does not hold",
    "queued_unexplained": "behind work that the file does not hold",
    "unattributed": "for an unknown reason",
    "host_synchronize": "for the host to launch again after a synchronise",
    "host_memcpy": "for the host to launch again after a blocking copy",
}
_GAIN = {
    "launch-bound": "Capturing the repeated part in device graphs",
    "exposed-communication": "Hiding communication behind compute",
    "exposed-copy": "Hiding or removing copies",
    "synchronisation-stall": "Removing the synchronisation",
    "blocking-copy": "Making the copies asynchronous",
    "graph-gaps": "Closing the gaps inside graphs",
    "allocator-stall": "Keeping the allocator out of the loop",
    "host-wait": "Feeding the launching thread in time",
    "event-wait": "Ending the awaited work earlier",
    "stream-handover": "Fewer, larger kernels",
    "no-work": "More load",
    "layout-copies": "Keeping one layout and number type",
    "unfused-elementwise": "Fusing the chains of pointwise kernels",
    "slow-kernel": "Kernels as fast as their shapes allow",
    "tail-wave": "Grids that fill the last wave",
    "low-occupancy": "Kernels with more resident warps",
    "wrong-precision": "The number type of the model in all products",
    "attention-underfilled": "Splitting the keys of decode attention over more blocks",
    "attention-imbalance": "Spreading the longest request over more blocks",
    "straggler": "Bringing the late rank level with the others",
    "slow-device": "Bringing the slow device level with the others",
    "rank-imbalance": "Balancing the work over ranks",
    "slow-link": "Communication as fast as the link allows",
    "small-messages": "Fewer, larger messages",
    "late-communication": "Starting communication during the backward pass",
    "communication-contention": "Keeping communication off the cores that compute",
    "gc-pause": "Keeping garbage collection out of the steps",
    "gil-contention": "Keeping other Python threads off the interpreter",
    "slow-host-code": "A faster function on the launching thread",
    "cpu-sampling": "Sampling on the device",
    "clock-throttling": "Clocks that hold",
}
MOSTLY = 0.8
"""From this share on a cause is called `nearly all`."""
UNKNOWN_SHARE = 0.05
"""From this share of the window on, idle time without a known cause is part of the answer."""


def answer(analysis: Analysis, findings: Sequence[Finding]) -> tuple[str, ...]:
    """One or two sentences."""
    if analysis.quality.idle_withheld is not None:
        first = analysis.quality.idle_withheld
        return (f"Cannot tell how busy the device was: {first}.", _next_capture(analysis))
    wall, busy = analysis.wall_ns, analysis.busy_ns
    if wall == 0:
        return ("The device work has no length: nothing to explain.",)
    idle = wall - busy
    names = analysis.capture["device"]["name"].to_pylist()
    (noun, *others) = {device_noun(names[device.work.device_id]) for device in analysis.devices}
    noun = "device" if others else noun
    count = len(analysis.devices)
    devices = f"The {noun}" if count == 1 else f"The {count} {noun}s"
    exposed = sum(device.funnel.split.exposed_communication.total for device in analysis.devices)
    if idle * 20 < wall:
        first = f"{devices} {_was(analysis)} busy {format_percent(busy, wall)} of the time"
        if exposed * 20 >= wall:
            first += f", {format_percent(exposed, wall)} of it in communication without compute"
        first += "."
    else:
        first = (
            f"{devices} waited {format_percent(idle, wall)} of the time{_mainly(analysis, idle)}."
        )
    return (first, _worth(analysis, findings))


def _was(analysis: Analysis) -> str:
    return "was" if len(analysis.devices) == 1 else "were"


def _mainly(analysis: Analysis, idle: int) -> str:
    by_cause = analysis.totals.idle_ns
    host_keys = [c.key for c in HOST_NOT_READY if c.key not in _WHY]
    why = {_WHY[c.key]: by_cause[c.key] for c in CAUSES if c.key in _WHY}
    why["for the host to launch the next kernel"] = sum(by_cause[key] for key in host_keys)
    reason, duration = max(why.items(), key=lambda item: item[1])
    share = duration / idle
    if share >= MOSTLY:
        return f", nearly all of it {reason}"
    if share >= 0.5:
        return f", most of it {reason}"
    return f", {format_percent(duration, idle)} of that {reason}"


def _worth(analysis: Analysis, findings: Sequence[Finding]) -> str:
    costs = [f for f in findings if f.kind is Kind.COST and f.gain_ns]
    unknown = sum(f.duration_ns or 0 for f in findings if f.kind is Kind.ABSTENTION)
    is_unknown = unknown >= UNKNOWN_SHARE * analysis.wall_ns
    unsaid = f"why {format_percent(unknown, analysis.wall_ns)} of the time was idle"
    if not costs and is_unknown:
        return f"The capture does not say {unsaid}, so nothing can be said about a fix."
    if not costs:
        return "Nothing seen here is worth fixing: the time is in the kernels themselves."
    best = costs[0]
    what = _GAIN.get(best.code, f"Fixing `{best.code}`")
    gain = best.gain_ns or 0
    about = "about" if best.gain_method == "replayed" else "at most"
    sentence = (
        f"{what} would bring back {about} {format_duration(gain)} "
        f"({format_percent(gain, analysis.wall_ns)})"
    )
    if is_unknown:
        return f"{sentence}; the capture does not say {unsaid}."
    if len(costs) == 1:
        return f"{sentence}; nothing else here is worth more than 0.5 %."
    larger = max(costs[1:], key=lambda finding: finding.gain_ns or 0)
    second = larger.gain_ns or 0
    if second > gain:
        # Ranked by what is sure and cheap: a larger promise further down must not read as a mistake.
        return (
            f"{sentence}; `{larger.code}` would bring more "
            f"({format_percent(second, analysis.wall_ns)}), but is harder or less sure."
        )
    return f"{sentence}; nothing else here is worth more than {format_percent(second, analysis.wall_ns)}."


def _next_capture(analysis: Analysis) -> str:
    codes = {note.code for note in analysis.quality.notes}
    if "graph-under-recorded" in codes:
        return (
            "Capture again with fewer steps, or with graphs off, so that every replay is recorded."
        )
    if "no-device-work" in codes:
        return "Capture again with ProfilerActivity.CUDA, and launch work before the capture ends."
    return "Capture again with a shorter window, so that the profiler's buffers hold it."
