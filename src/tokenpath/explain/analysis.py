"""Everything measured about a capture, before it is put into words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import EMPTY, Intervals, union
from tokenpath.core.report import ShownTable, Window
from tokenpath.core.units import format_ms, format_percent
from tokenpath.explain.artefacts import (
    MIN_GAP_NS,
    MIN_SHARE_OF_SPAN,
    Artefact,
    proven_gaps,
    suspect_gaps,
    warm_up_gaps,
)
from tokenpath.explain.causes import CAUSES, CauseTotals
from tokenpath.explain.exposed import Exposed, find_exposed
from tokenpath.explain.funnel import DeviceFunnel, measure
from tokenpath.explain.gaps import Gaps, find_gaps, with_host_causes
from tokenpath.explain.host_table import LaunchFigures, host_table, launch_figures
from tokenpath.explain.host_timeline import HostTimeline
from tokenpath.explain.kernel_table import kernel_table
from tokenpath.explain.labels import short_label
from tokenpath.explain.launches import LaunchCoverage, launch_coverage
from tokenpath.explain.overlaps import (
    Overlaps,
    find_overlaps,
    is_coarse_clock,
    without_corrupt_ends,
)
from tokenpath.explain.quality import Quality, assess
from tokenpath.explain.request import WindowRequest
from tokenpath.explain.waits import Waits, recorded_waits
from tokenpath.explain.window import (
    StepSpans,
    choose_window,
    holes,
    step_spans,
)
from tokenpath.explain.work import (
    COMMUNICATION,
    MEMCPY,
    BusySplit,
    DeviceWork,
    device_work,
    split_busy,
)


@dataclass(frozen=True)
class DeviceResult:
    """One device: the whole file and the window."""

    whole: DeviceWork
    """All its work as the file has it."""
    whole_busy_ns: int
    """Busy time of the whole file."""
    work: DeviceWork
    """Its work with the window set; impossible ends cut."""
    funnel: DeviceFunnel
    """The window, split."""
    gaps: Gaps
    """Idle gaps of the window, with causes."""
    totals: CauseTotals
    """Time without compute by cause."""
    spans: StepSpans
    """When the steps ran."""

    @property
    def believable(self) -> DeviceWork:
        """All its work over the whole file, impossible ends cut."""
        return self.work.within(self.whole.window_start_ns, int(self.work.end.max()))


@dataclass(frozen=True)
class Analysis:
    """All that `explain` measured."""

    capture: Capture
    """What it was measured on."""
    window: Window
    """What was analysed."""
    devices: Sequence[DeviceResult]
    """One a device with work."""
    totals: CauseTotals
    """Time without compute by cause, over all devices."""
    quality: Quality
    """What the capture supports."""
    coverage: LaunchCoverage
    """Launches against kernels."""
    overlaps: Sequence[Overlaps]
    """Same-stream overlaps, one a device."""
    launches: LaunchFigures
    """How the host fed the devices."""
    kernel_table: ShownTable
    """Kernels of the windows by name."""
    host_table: ShownTable
    """Operators and API calls around the windows by name."""
    unclassified_ns: int
    """Summed time of kernels without a family, in the window."""
    kernel_ns: int
    """Summed time of kernels in the window, copies left out."""

    @property
    def wall_ns(self) -> int:
        """The windows of all devices, summed."""
        return sum(device.funnel.split.wall_ns for device in self.devices)

    @property
    def busy_ns(self) -> int:
        """Their busy time, summed."""
        return sum(device.funnel.split.busy_ns for device in self.devices)


def analyse(capture: Capture, request: WindowRequest) -> Analysis:
    """Measure a linked capture; UsageError when the requested window does not exist."""
    whole = device_work(capture)
    is_coarse = is_coarse_clock(whole)
    overlaps = [find_overlaps(work, is_coarse) for work in whole]
    works = [without_corrupt_ends(work, item) for work, item in zip(whole, overlaps, strict=True)]
    waits = recorded_waits(capture)
    coverage = launch_coverage(capture, whole)
    spans = [step_spans(capture, work) for work in works]
    artefacts = find_artefacts(capture, works, waits)
    chosen, window = choose_window(capture, works, spans, artefacts, request)

    # Tables and causes need each other's results for nothing, and most of both runs without the GIL.
    with ThreadPoolExecutor(1, "tokenpath-tables") as pool:
        tables = pool.submit(_window_tables, capture, chosen)
        # The device side first; then the host is asked once, about all the time in which it was late.
        sides = [_device_side(work, waits) for work in chosen]
        host = HostTimeline(capture, _late_time(sides))
        devices = [
            _device_result(*parts, host) for parts in zip(whole, chosen, spans, sides, strict=True)
        ]
        launches, kernel_rows, host_rows = tables.result()
    kernel_ns, unclassified_ns = _classified(chosen)
    quality = assess(
        capture,
        chosen,
        coverage,
        overlaps,
        artefacts,
        [gap for device in devices for gap in warm_up_gaps(device.work, device.gaps)],
        is_coarse,
        unclassified_ns,
        kernel_ns,
    )
    if quality.idle_withheld is None:
        window = _with_whole_file(window, devices)
    return Analysis(
        capture=capture,
        window=window,
        devices=devices,
        totals=_sum_totals(devices),
        quality=quality,
        coverage=coverage,
        overlaps=overlaps,
        launches=launches,
        kernel_table=kernel_rows,
        host_table=host_rows,
        unclassified_ns=unclassified_ns,
        kernel_ns=kernel_ns,
    )


def _window_tables(
    capture: Capture, works: Sequence[DeviceWork]
) -> tuple[LaunchFigures, ShownTable, ShownTable]:
    launches = launch_figures(capture, works)
    return launches, kernel_table(capture, works), host_table(capture, works, launches)


def _with_whole_file(window: Window, devices: Sequence[DeviceResult]) -> Window:
    """The window, its reason ending in the figures of the whole file where they differ."""
    whole_files = [device.believable for device in devices]
    span = sum(work.span_ns for work in whole_files)
    if span == sum(device.work.span_ns for device in devices):
        return window
    idle = span - sum(work.busy().total for work in whole_files)
    whole = f"whole file {format_ms(span)} ms, idle {format_percent(idle, span)}"
    return replace(window, reason=f"{window.reason}; {whole}")


@dataclass(frozen=True)
class _DeviceSide:
    """What one device alone says about its window."""

    split: BusySplit
    gaps: Gaps
    communication: Exposed
    memcpy: Exposed


def _device_side(work: DeviceWork, waits: Waits) -> _DeviceSide:
    split = split_busy(work)
    return _DeviceSide(
        split,
        find_gaps(work, split.busy, waits),
        find_exposed(work, split.exposed_communication, COMMUNICATION, waits),
        find_exposed(work, split.exposed_memcpy, MEMCPY, waits),
    )


def _late_time(sides: Sequence[_DeviceSide]) -> Intervals:
    """All time in which the host was late, for whatever device."""
    late = [part.late for side in sides for part in (side.gaps, side.communication, side.memcpy)]
    if not late:
        return EMPTY
    return union(
        np.concatenate([part.start for part in late]), np.concatenate([part.end for part in late])
    )


def _device_result(
    whole: DeviceWork, work: DeviceWork, span: StepSpans, side: _DeviceSide, host: HostTimeline
) -> DeviceResult:
    found = with_host_causes(side.gaps, host, work)
    totals = _totals(found)
    totals.communication_ns = side.communication.by_cause(host, work)
    totals.memcpy_ns = side.memcpy.by_cause(host, work)
    return DeviceResult(
        whole=whole,
        whole_busy_ns=whole.busy().total,
        work=work,
        funnel=measure(work, side.split),
        gaps=found,
        totals=totals,
        spans=span,
    )


def find_artefacts(capture: Capture, works: Sequence[DeviceWork], waits: Waits) -> list[Artefact]:
    """Suspected and proven split artefacts of all devices."""
    artefacts = proven_gaps(capture, works)
    for work in works:
        hole = holes(work)
        longest = int((hole.end - hole.start).max()) if len(hole) else 0
        if longest >= max(MIN_GAP_NS, MIN_SHARE_OF_SPAN * work.span_ns):
            artefacts += suspect_gaps(work, find_gaps(work, work.busy(), waits))
    return artefacts


def _totals(found: Gaps) -> CauseTotals:
    totals = CauseTotals()
    length = found.duration_ns
    for number in np.unique(found.cause):
        mine = found.cause == number
        key = CAUSES[number].key
        totals.idle_ns[key] = int(length[mine].sum())
        totals.num_gaps[key] = int(mine.sum())
        totals.p50_ns[key] = _median(length[mine])
        totals.top_detail[key] = _top_label(found, mine)
    return totals


def _median(length: np.ndarray) -> int:
    return int(np.partition(length, (len(length) - 1) // 2)[(len(length) - 1) // 2])


def _top_label(found: Gaps, mine: np.ndarray) -> str:
    """The host item in which the gaps of a cause mostly fell, without folders."""
    known = mine & (found.label >= 0)
    if not known.any():
        return ""
    by_label: Counter[str] = Counter()
    codes, index = np.unique(found.label[known], return_inverse=True)
    time = np.bincount(index, weights=found.duration_ns[known])
    for code, duration in zip(codes, time, strict=True):
        by_label[found.labels[code]] += int(duration)
    return short_label(by_label.most_common(1)[0][0])


def _sum_totals(devices: Sequence[DeviceResult]) -> CauseTotals:
    if len(devices) == 1:
        return devices[0].totals
    summed = CauseTotals()
    lengths: dict[str, list[np.ndarray]] = {}
    for device in devices:
        for name in ("idle_ns", "communication_ns", "memcpy_ns", "num_gaps"):
            getattr(summed, name).update(getattr(device.totals, name))
        for key, detail in device.totals.top_detail.items():
            summed.top_detail[key] = summed.top_detail[key] or detail
        for number in np.unique(device.gaps.cause):
            mine = device.gaps.cause == number
            lengths.setdefault(CAUSES[number].key, []).append(device.gaps.duration_ns[mine])
    for key, parts in lengths.items():
        summed.p50_ns[key] = _median(np.concatenate(parts))
    return summed


def _classified(works: Sequence[DeviceWork]) -> tuple[int, int]:
    """Summed time of kernels (no copies) in the windows, and of those without a family."""
    total = unknown = 0
    for work in works:
        inside = work.in_window() & np.isin(work.kind, (0, COMMUNICATION))
        length = work.end - work.start
        total += int(length[inside].sum())
        if "other" in work.families:
            other = inside & (work.family == work.families.index("other"))
            unknown += int(length[other].sum())
    return total, unknown
