"""Who waits for whom, as a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpath.capture.intervals import Int64s
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.core.units import format_duration
from tokenpath.explain.analyses.stragglers_arrivals import Arrivals, rank_of
from tokenpath.explain.analyses.stragglers_kernels import AgainstOthers
from tokenpath.explain.analysis import Analysis

_COLUMNS = (
    TableColumn("rank", "rank", Unit.TEXT),
    TableColumn("caused_ns", "others waited for it", Unit.NS),
    TableColumn("waited_ns", "it waited", Unit.NS),
    TableColumn("num_caused", "collectives it held up", Unit.COUNT),
    TableColumn("idle_excess_ns", "more idle", Unit.NS),
    TableColumn("busy_excess_ns", "more busy", Unit.NS),
    TableColumn("slowdown", "equal work", Unit.NUMBER),
    TableColumn("compute_excess_ns", "more compute", Unit.NS, is_key_figure=False),
)


@dataclass(frozen=True)
class Blame:
    """What one device made the others wait, and why it was late."""

    device: int
    """Position among the devices of the analysis."""
    caused_ns: int
    """Exposed waiting of the others that goes back to it."""
    net_ns: int
    """The same over what the typical other device causes."""
    collectives: Int64s
    """Collectives that it held up."""
    parts: Int64s
    """Its parts in which it was late of its own accord."""
    own_ns: int
    """What it loses itself: as much as each of those that waited."""
    idle_excess_ns: int
    """How much longer its device was idle in all than the typical other one."""
    busy_excess_ns: int
    """How much longer its device computed, filled and copied in all."""


def device_name(analysis: Analysis, device: int) -> str:
    """`rank 3`, or the device's label where the rank is unknown."""
    rank = rank_of(analysis, analysis.devices[device])
    return analysis.devices[device].work.label if rank is None else f"rank {rank}"


def arrivals_table(
    analysis: Analysis,
    arrivals: Arrivals,
    blames: list[Blame],
    kernels: list[AgainstOthers] | None,
) -> ShownTable:
    """One row a device, those that others waited for most first."""
    waited = np.bincount(arrivals.device, arrivals.exposed_ns, len(analysis.devices))
    rows: list[list[Cell]] = [
        [
            device_name(analysis, blame.device),
            blame.caused_ns,
            int(waited[blame.device]),
            len(blame.collectives),
            blame.idle_excess_ns,
            blame.busy_excess_ns,
            None if kernels is None else round(kernels[blame.device].slowdown, 3),
            None if kernels is None else kernels[blame.device].excess_ns,
        ]
        for blame in sorted(blames, key=lambda blame: -blame.caused_ns)
    ]
    skew = sum(blame.caused_ns for blame in blames)
    note = (
        f"Waiting with no compute beside it: {format_duration(int(waited.sum()))}, of it "
        f"{format_duration(skew)} behind a rank that was late by itself; the rest is the start of the "
        "recording, or no rank in particular. Equal work: time of the same kernels over the other ranks'."
    )
    if arrivals.residual_ns is not None:
        note += f" Clocks agree to {format_duration(arrivals.residual_ns)}."
    return ShownTable("arrivals", "Who waits for whom", _COLUMNS, rows, len(rows), note)
