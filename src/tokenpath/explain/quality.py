"""What the capture can support, said before any verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenpath.capture.capture import Capture
from tokenpath.core.report import Note, Severity, Trust
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.artefacts import Artefact, WarmUp
from tokenpath.explain.launches import LaunchCoverage
from tokenpath.explain.overlaps import Overlaps
from tokenpath.explain.work import DeviceWork

MAX_MISSING_SHARE = 0.05
"""With more launches than this without a kernel, device time is missing and idle is withheld."""
MAX_LOST_SHARE = 0.01
"""With more events than this lost to broken times, idle is withheld."""
MAX_UNCLASSIFIED_SHARE = 0.05
"""More kernel time than this without a family is worth a warning."""
MAX_DEPENDENT_LAUNCH_NS = 100_000
"""A kernel launched by programmatic dependent launch overlaps the one before it by its prologue: some
microseconds, never this long."""
_BROKEN_TIME = ("timestamp", "duration", "end before start", "time")


@dataclass(frozen=True)
class Quality:
    """The notes, and whether the idle number may be shown."""

    notes: tuple[Note, ...]
    """Worst first."""
    idle_withheld: str | None
    """Why idle time is withheld; None when the capture supports it."""

    @property
    def trust(self) -> Trust:
        """The verdict over all notes."""
        if self.idle_withheld is not None:
            return Trust.UNUSABLE
        if any(note.severity is Severity.WARNING for note in self.notes):
            return Trust.LIMITED
        return Trust.GOOD


def assess(
    capture: Capture,
    works: Sequence[DeviceWork],
    coverage: LaunchCoverage,
    overlaps: Sequence[Overlaps],
    artefacts: Sequence[Artefact],
    warm_ups: Sequence[WarmUp],
    is_coarse: bool,
    unclassified_ns: int,
    kernel_ns: int,
) -> Quality:
    """All notes on a capture."""
    notes = [
        *_losses(capture),
        *_missing_sides(capture, works, coverage),
        *_launches(coverage),
        *_overlap_notes(overlaps, is_coarse, "nvidia" in capture["device"]["vendor"].to_pylist()),
        *_artefact_notes(artefacts),
        *_warm_up_notes(warm_ups),
        *_mixture(capture, works),
    ]
    if is_coarse:
        notes.append(
            Note(
                "coarse-clock",
                Severity.INFO,
                "all device times are whole microseconds: gaps and overlaps below 1 us do not show",
            )
        )
    if kernel_ns:
        share = unclassified_ns / kernel_ns
        severity = Severity.WARNING if share > MAX_UNCLASSIFIED_SHARE else Severity.INFO
        notes.append(
            Note(
                "unclassified-kernels",
                severity,
                f"{format_percent(unclassified_ns, kernel_ns)} of kernel time has no known family",
                {"unclassified_ns": unclassified_ns, "share": share},
            )
        )
    order = {Severity.WITHHELD: 0, Severity.WARNING: 1, Severity.INFO: 2}
    notes.sort(key=lambda note: order[note.severity])
    withheld = [note.sentence for note in notes if note.severity is Severity.WITHHELD]
    return Quality(tuple(notes), withheld[0] if withheld else None)


def _losses(capture: Capture) -> list[Note]:
    num_events = sum(capture["source"]["num_events"].to_pylist())
    lost = [row for row in capture["skip"].to_pylist() if row["lost"] and row["num_events"]]
    notes = []
    for row in sorted(lost, key=lambda row: -row["num_events"]):
        is_broken_time = any(word in row["reason"] for word in _BROKEN_TIME)
        share = row["num_events"] / max(num_events, 1)
        severity = Severity.WARNING
        plural = "" if row["num_events"] == 1 else "s"
        sentence = f"{row['num_events']:,} event{plural} lost or repaired: {row['reason']}"
        if is_broken_time and share > MAX_LOST_SHARE:
            severity = Severity.WITHHELD
            sentence = (
                f"idle unreliable: {share:.1%} of the events have no usable time "
                f"({row['num_events']:,} of {num_events:,}: {row['reason']})"
            )
        details = {"reason": row["reason"], "num_events": row["num_events"], "share": share}
        if row["example"]:
            details["example"] = row["example"]
        notes.append(Note("lost-events", severity, sentence, details))
    return notes


def _missing_sides(
    capture: Capture, works: Sequence[DeviceWork], coverage: LaunchCoverage
) -> list[Note]:
    if not works:
        if coverage.num_launches or coverage.num_replays:
            count = coverage.num_launches + coverage.num_replays
            sentence = f"{count:,} launches and no device work: idle is unknown"
            return [Note("no-device-work", Severity.WITHHELD, sentence)]
        sentence = "no device work and no launch in the capture: it shows the host only"
        return [Note("no-device-work", Severity.WARNING, sentence)]
    if capture.num_rows("api_call") == 0:
        return [
            Note(
                "missing-host-side",
                Severity.WARNING,
                "no runtime or driver calls in the capture: idle time is exact, its causes are unknown",
            )
        ]
    if coverage.num_unlaunched:
        share = coverage.num_unlaunched / coverage.num_work
        return [
            Note(
                "launch-not-in-file",
                Severity.WARNING if share > MAX_MISSING_SHARE else Severity.INFO,
                f"{coverage.num_unlaunched:,} of {coverage.num_work:,} kernels and copies have no "
                f"launch in the file ({format_duration(coverage.unlaunched_ns)} of device work)",
                {"num_work": coverage.num_work, "num_unlaunched": coverage.num_unlaunched},
            )
        ]
    return []


def _launches(coverage: LaunchCoverage) -> list[Note]:
    notes = []
    if coverage.num_replays_empty:
        recorded = coverage.num_replays - coverage.num_replays_empty
        notes.append(
            Note(
                "graph-under-recorded",
                Severity.WITHHELD,
                f"idle unreliable: {recorded:,} of {coverage.num_replays:,} graph replays recorded",
                {"num_replays": coverage.num_replays, "num_recorded": recorded},
            )
        )
    if coverage.num_replays_partial:
        notes.append(
            Note(
                "graph-partly-recorded",
                Severity.WARNING,
                f"{coverage.num_replays_partial:,} of {coverage.num_replays:,} graph replays have "
                "fewer kernels than others of the same graph: idle is an upper bound",
                {"num_partial": coverage.num_replays_partial},
            )
        )
    if coverage.num_missing:
        is_much = coverage.missing_share > MAX_MISSING_SHARE
        text = f"{coverage.num_missing:,} of {coverage.num_launches:,} launches have no kernel"
        notes.append(
            Note(
                "kernel-not-in-file",
                Severity.WITHHELD if is_much else Severity.WARNING,
                f"idle unreliable: {text}" if is_much else f"{text}: idle is an upper bound",
                {"num_launches": coverage.num_launches, "num_missing": coverage.num_missing},
            )
        )
    for count, code, where in (
        (coverage.num_head, "dropped-head", "first"),
        (coverage.num_tail, "dropped-tail", "last"),
    ):
        if count:
            notes.append(
                Note(
                    code,
                    Severity.INFO,
                    f"the {where} {count:,} launches have no kernel: the window holds only what "
                    "the capture covers",
                    {"num_launches": count},
                )
            )
    if coverage.num_captured:
        notes.append(
            Note(
                "graph-capture",
                Severity.INFO,
                f"{coverage.num_captured:,} launches were recorded into a device graph, not run",
                {"num_launches": coverage.num_captured},
            )
        )
    if coverage.num_early:
        notes.append(
            Note(
                "clock-skew",
                Severity.WARNING,
                f"{coverage.num_early:,} kernels start before their launch: host and device clocks "
                "disagree, so causes of short gaps may be wrong",
                {"num_kernels": coverage.num_early},
            )
        )
    return notes


def _overlap_notes(overlaps: Sequence[Overlaps], is_coarse: bool, is_nvidia: bool) -> list[Note]:
    notes = []
    corrupt = sum(len(item.corrupt) for item in overlaps)
    total = sum(item.num_overlaps for item in overlaps) - corrupt
    if corrupt:
        notes.append(
            Note(
                "impossible-duration",
                Severity.WARNING,
                f"{corrupt:,} kernels reach over many later ones of their stream: their ends are "
                "corrupt and were cut at the next start",
                {"num_kernels": corrupt},
            )
        )
    if total > 0:
        length = sum(item.total_ns for item in overlaps)
        rounding = sum(item.num_rounding for item in overlaps)
        longest = max(item.longest_ns for item in overlaps)
        what = "work side by side under one stream number"
        if rounding == total:
            what = "rounding to microseconds"
        elif is_nvidia and longest <= MAX_DEPENDENT_LAUNCH_NS:
            what = "programmatic dependent launch"
        notes.append(
            Note(
                "same-stream-overlap",
                Severity.INFO,
                f"{total:,} same-stream overlap{'s' if total > 1 else ''} "
                f"({what}, {format_duration(length)} in all)",
                {
                    "num_overlaps": total,
                    "total_ns": length,
                    "longest_ns": longest,
                    "is_coarse_clock": is_coarse,
                },
            )
        )
    return notes


def _artefact_notes(artefacts: Sequence[Artefact]) -> list[Note]:
    notes = []
    for artefact in artefacts:
        proof = "split artefact, proven" if artefact.is_proven else "probably a split artefact"
        notes.append(
            Note(
                "split-artefact",
                Severity.INFO if artefact.is_proven else Severity.WARNING,
                f"gap of {format_duration(artefact.duration_ns)}: {proof}; {artefact.reason}",
                {
                    "start_ns": artefact.start_ns,
                    "end_ns": artefact.end_ns,
                    "duration_ns": artefact.duration_ns,
                    "is_proven": artefact.is_proven,
                    "is_left_out": artefact.is_trimmed,
                    "covered_share": artefact.covered_share,
                    "kernel_row": artefact.kernel_row,
                },
            )
        )
    return notes


def _warm_up_notes(warm_ups: Sequence[WarmUp]) -> list[Note]:
    what = {
        "host_api": "inside runtime calls, the launching call included (modules load on first use)",
        "host_allocator": "allocating or freeing device memory",
    }
    return [
        Note(
            "warm-up-gap",
            Severity.WARNING,
            f"gap of {format_duration(gap.duration_ns)} on {gap.device_label}: the host was "
            f"{what[gap.cause]}; probably warm-up, choose a later window with --steps or --from",
            {"duration_ns": gap.duration_ns, "kernel_row": gap.kernel_row, "cause": gap.cause},
        )
        for gap in warm_ups
    ]


def _mixture(capture: Capture, works: Sequence[DeviceWork]) -> list[Note]:
    notes = []
    by_source: dict[int, int] = {}
    sources = capture.ids("device", "source_id")
    for work in works:
        number = int(sources[work.device_id])
        by_source[number] = by_source.get(number, 0) + 1
    if any(count > 1 for count in by_source.values()):
        notes.append(
            Note(
                "several-devices",
                Severity.INFO,
                f"{max(by_source.values())} devices in one file: each is analysed on its own",
                {"num_devices": max(by_source.values())},
            )
        )
    if capture.num_rows("thread") and capture.num_rows("api_call"):
        threads = capture["thread"].select(["source_id", "pid"]).to_pylist()
        used = set(capture.ids("api_call", "thread_id").tolist())
        launching: dict[int, set[str]] = {}
        for row in used:
            launching.setdefault(threads[row]["source_id"], set()).add(threads[row]["pid"])
        most = max((len(pids) for pids in launching.values()), default=0)
        if most > 1:
            notes.append(
                Note(
                    "several-processes",
                    Severity.INFO,
                    f"{most} processes make runtime calls in one file",
                    {"num_processes": most},
                )
            )
    return notes
