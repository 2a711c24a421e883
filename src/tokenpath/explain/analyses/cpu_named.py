"""Host time that programs and profilers name: garbage collection, compilers, the data loader."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from tokenpath.core.finding import Finding
from tokenpath.core.units import format_duration, format_percent
from tokenpath.explain.analyses.cpu_view import Host, cost
from tokenpath.explain.analyses.host_names import COMPILE, GARBAGE, LOADER

MIN_LOADER = 0.05
"""Share of the wall that a loop may spend on its next batch: less is what handing it over takes."""
COMPILERS = re.compile(
    COMPILE.pattern + r"|dynamo_timed|compile_inner|backend_compile|inductor_compile|aot_collect",
    re.ASCII,
)
"""Compilers at work, with the names that newer ones give their ranges."""


def named(host: Host) -> Iterator[Finding]:
    """Findings `recompilation`, `gc-pause` and `data-starved`."""
    yield from _named(
        host, "recompilation", COMPILERS, 0.0, "the program compiled in the profiled steps",
        "mark the changing sizes as dynamic, pad them to a few, warm every shape up before the loop",
        "with all shapes warmed up the time stays", "code",
    )  # fmt: skip
    yield from _named(
        host, "gc-pause", GARBAGE, 0.0, "the interpreter collected garbage",
        "gc.freeze() after warm-up, a higher threshold, or gc.disable() with collections between steps",
        "with gc.disable() the time stays", "setting",
    )  # fmt: skip
    yield from _named(
        host, "data-starved", LOADER, MIN_LOADER, "the loop stood and made or awaited its next batch",
        "more loader workers, prefetching; cheaper decoding and augmentation",
        "with one batch used over and over the time stays", "setting",
    )  # fmt: skip


def _named(
    host: Host,
    code: str,
    names: re.Pattern[str],
    least: float,
    what: str,
    fix: str,
    falsifier: str,
    effort: str,
) -> Iterator[Finding]:
    """The time of all sides in items with such names, if it is that share of the wall."""
    parts = [(side, host.left(side, side.named(names))) for side in host.sides]
    total = sum(time.total for _, time in parts)
    if not total or total < least * host.wall_ns:
        return
    side, most = max(parts, key=lambda part: part[1].total)
    table = max(("frame", "op", "range"), key=lambda t: len(side.rows_named(t, names)))
    rows = side.rows_named(table, names)
    length = (host.sides[0].capture.int64(table, "end_ns") -
              host.sides[0].capture.int64(table, "start_ns"))[rows]  # fmt: skip
    count = sum(len(time) for _, time in parts)
    for each, time in parts:
        host.spend(each, time)
    yield cost(
        host, code,
        f"{what} {count:,} times for {format_duration(total)} in all "
        f"({format_percent(total, host.wall_ns)} of the window)",
        total, fix=fix, falsifier=falsifier, confidence=0.95, effort=effort,
        place={"thread": side.thread_name(), **(side.place() if most.total > 0.8 * total else {})},
        evidence=(table, rows[np.argsort(-length, kind="stable")]),
    )  # fmt: skip
