"""What is shown, independent of how: the renderers of `export` know these types and no verb.

All times are int64 nanoseconds. The order of the fields of `Report` is the order on every medium.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tokenpath.core.finding import Finding

REPORT_SCHEMA_VERSION = 1
"""1: first release. Raised when a field of the JSON form changes meaning or goes away."""

Cell = str | int | float | bool | None


class Trust(enum.StrEnum):
    """What the capture as a whole can support."""

    GOOD = "good"
    LIMITED = "limited"
    UNUSABLE = "unusable"


class Severity(enum.StrEnum):
    """What a note does to the numbers."""

    INFO = "info"
    """Known, and harmless to every number shown."""
    WARNING = "warning"
    """Some numbers are bounds or cover less than the whole."""
    WITHHELD = "withheld"
    """A number is not shown, and this is why."""


@dataclass(frozen=True)
class Note:
    """One statement about the quality of the capture."""

    code: str
    """Stable code: `launch-missing`, `split-artefact`."""
    severity: Severity
    """What it does to the numbers."""
    sentence: str
    """The statement, with its numbers."""
    details: Mapping[str, object] = field(default_factory=dict)
    """The numbers, JSON types only."""


@dataclass(frozen=True)
class FunnelRow:
    """One line of a funnel; the rows of depth d+1 that follow a row of depth d add up to it."""

    key: str
    """Stable key within its parent: `busy`, `gemm`, `host_not_ready`."""
    label: str
    """What a person reads."""
    depth: int
    """0 for the wall."""
    duration_ns: int
    """Length."""
    note: str | None = None
    """Short remark at the end of the line: `in 1,934 gaps, p50 9.1 us`."""
    is_part: bool = True
    """False for a line that is shown beside the sum and does not take part in it."""


@dataclass(frozen=True)
class Funnel:
    """A wall and what it is made of; closes exactly."""

    title: str
    """`total`, or the device, rank or step it is about."""
    rows: Sequence[FunnelRow]
    """First row is the wall, at depth 0; depth grows by at most one from row to row."""

    def __post_init__(self) -> None:
        """ValueError for rows that make no tree below a wall: their sums could not be checked."""
        above = -1
        for index, row in enumerate(self.rows):
            if not 0 <= row.depth <= above + 1:
                raise ValueError(
                    f"row {index} ({row.key}) of funnel {self.title!r}: depth {row.depth}"
                )
            above = row.depth
        if not self.rows:
            raise ValueError(f"funnel {self.title!r} has no wall")

    @property
    def wall_ns(self) -> int:
        """The whole."""
        return self.rows[0].duration_ns

    def residuals(self) -> dict[str, int]:
        """Rows whose parts do not add up to them, with the difference: empty when the funnel closes."""
        broken: dict[str, int] = {}
        for index, row in enumerate(self.rows):
            parts = 0
            has_parts = False
            for below in self.rows[index + 1 :]:
                if below.depth <= row.depth:
                    break
                if below.depth == row.depth + 1 and below.is_part:
                    parts += below.duration_ns
                    has_parts = True
            if has_parts and parts != row.duration_ns:
                broken[row.key] = row.duration_ns - parts
        return broken


class Unit(enum.StrEnum):
    """How the cells of a column are written."""

    TEXT = "text"
    COUNT = "count"
    NS = "ns"
    SHARE = "share"
    """0 to 1."""
    PERCENT = "percent"
    """0 to 100."""
    BYTES = "bytes"
    PER_S = "per_s"
    NUMBER = "number"


@dataclass(frozen=True)
class TableColumn:
    """One column of a shown table."""

    key: str
    """Name in the JSON; the unit ends it."""
    label: str
    """Heading for people."""
    unit: Unit
    """How to write the cells."""
    is_key_figure: bool = True
    """False for columns that narrow media leave out."""


@dataclass(frozen=True)
class ShownTable:
    """A table of a report; rows are sorted, the most important first."""

    key: str
    """Stable key: `kernels`, `idle_causes`."""
    title: str
    """Heading."""
    columns: Sequence[TableColumn]
    """Columns in order."""
    rows: Sequence[Sequence[Cell]]
    """One cell a column; None is shown as unknown."""
    num_rows_in_all: int
    """More than `len(rows)` when the tail was left out."""
    note: str | None = None
    """A remark under the table."""
    is_lead: bool = False
    """Whether it is part of the answer: shown right after it, not only with the details."""


@dataclass(frozen=True)
class TimelineLane:
    """One line of the overview: time cut into equal bins, each bin's length split by category."""

    label: str
    """`GPU 0`, `GPU 0 communication`, `host thread 8013`."""
    categories: Sequence[str]
    """What the bins are split into."""
    busy_ns: Sequence[Sequence[int]]
    """One row a category, one number a bin; the rows of a bin add up to at most the bin."""


@dataclass(frozen=True)
class Timeline:
    """The overview timeline."""

    start_ns: int
    """Start of the first bin."""
    end_ns: int
    """End of the last bin."""
    window_start_ns: int
    """Start of the analysis window."""
    window_end_ns: int
    """End of the analysis window."""
    lanes: Sequence[TimelineLane]
    """From top to bottom."""


@dataclass(frozen=True)
class Window:
    """What was analysed, and why that."""

    start_ns: int
    """Start on the capture's clock."""
    end_ns: int
    """End on the capture's clock."""
    name: str
    """`whole capture`, `steps 10:20`, `steady state: steps 2 to 23`."""
    reason: str
    """Why this window, in one sentence."""


@dataclass(frozen=True)
class Report:
    """An answer and everything it stands on, in the order in which it is shown."""

    verb: str
    """`explain`, `inspect`, `simulate`."""
    headline: str
    """What was looked at, in one line: engine, devices, steps, wall, quality."""
    answer: Sequence[str]
    """One or two sentences: the answer."""
    trust: Trust
    """What the capture can support."""
    window: Window | None
    """The analysed window; None when nothing could be analysed."""
    funnel: Funnel | None
    """The total; None when withheld."""
    findings: Sequence[Finding]
    """Ranked by what fixing them would bring."""
    dismissed: Sequence[str]
    """What was looked at and is not worth it, one phrase each."""
    notes: Sequence[Note]
    """Quality of the capture."""
    device_funnels: Sequence[Funnel] = ()
    """One a device, when there is more than one."""
    step_funnels: Sequence[Funnel] = ()
    """One a step range, when steps are known."""
    request_funnels: Sequence[Funnel] = ()
    """Latencies of requests: all of them summed, or those of the one that the report is about."""
    tables: Sequence[ShownTable] = ()
    """Idle causes, kernels, host."""
    timeline: Timeline | None = None
    """The overview."""
    state: str = "measured"
    """`measured`, `synthetic` or `simulated`: shown with every report that is not measured."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """Machine-readable facts for the JSON: sources, devices with span_ns and busy_ns, skips."""
