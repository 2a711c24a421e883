"""What our analysis adds to a trace: gaps with their causes."""

from __future__ import annotations

from tokenpath.explain.analysis import Analysis
from tokenpath.explain.causes import CAUSES
from tokenpath.export.perfetto import Annotation


def annotate(analysis: Analysis) -> list[Annotation]:
    """The analysis window and every idle gap with its cause, one track a device."""
    window = analysis.window
    found = [
        Annotation(
            "tokenpath window", window.start_ns, window.end_ns, window.name, {"why": window.reason}
        )
    ]
    for device in analysis.devices:
        gaps = device.gaps
        for row in range(len(gaps.start)):
            cause = CAUSES[gaps.cause[row]]
            label = int(gaps.label[row])
            args: dict[str, object] = {"group": cause.group.value, "meaning": cause.meaning}
            if label >= 0:
                args["host_was_in"] = gaps.labels[label]
            found.append(
                Annotation(
                    f"{device.work.label} idle",
                    int(gaps.start[row]),
                    int(gaps.end[row]),
                    cause.label,
                    args,
                )
            )
    return found
