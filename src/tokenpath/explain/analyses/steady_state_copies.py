"""Copies between host and device against the link that carries them, pinned and pageable apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import covered
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.explain.analysis import Analysis, DeviceResult
from tokenpath.explain.work import MEMCPY

Int64s = NDArray[np.int64]

LINK_BYTES_PER_S = {3: 15.75e9, 4: 31.5e9, 5: 63.0e9}
"""One direction of 16 lanes by PCIe generation (PCI-SIG: 8, 16, 32 GT/s, 128b/130b)."""
PCIE_GENERATION = {
    "v100": 3, "t4": 3, "a100": 4, "a10": 4, "a10g": 4, "l4": 4, "l40s": 4, "rtx-4090": 4,
    "mi210": 4, "mi250": 4, "mi250x": 4, "h100": 5, "h200": 5, "h800": 5, "h20": 5, "b200": 5,
    "b300": 5, "rtx-pro": 5, "mi300x": 5, "mi325x": 5, "mi355x": 5,
}  # fmt: skip
"""Host link of the parts (their data sheets); Grace superchips are left out: their host link is NVLink-C2C."""
PINNED_SHARE = 0.75
"""Share of the link's rate that large pinned copies reach (nvbandwidth: 0.8 and more on an idle host)."""
PAGEABLE_BYTES_PER_S = 6e9
"""What pageable copies reach: the driver stages them through a pinned buffer with one core."""
MIN_BYTES = 1 << 18
"""Smaller copies are held by latency."""
SLOW_RATIO = 2.0
"""A copy that takes this many times longer than attainable is slow."""

_KIND = re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost|H2D|D2H", re.IGNORECASE)
_PAGEABLE = re.compile(r"pageable", re.IGNORECASE)

COLUMNS = (
    TableColumn("device", "device", Unit.TEXT),
    TableColumn("name", "copy", Unit.TEXT),
    TableColumn("count", "count", Unit.COUNT),
    TableColumn("bytes", "bytes", Unit.BYTES),
    TableColumn("total_ns", "total", Unit.NS),
    TableColumn("exposed_ns", "exposed", Unit.NS),
    TableColumn("bytes_per_s", "bytes/s", Unit.PER_S),
    TableColumn("attainable_bytes_per_s", "attainable", Unit.PER_S),
)


@dataclass(frozen=True)
class SlowCopies:
    """Large copies of one kind on one device that are far below their link's rate."""

    device: int
    """Position in `analysis.devices`."""
    name: str
    """Kind, as the profiler calls it: direction, pinned or pageable."""
    rows: Int64s
    """Rows of `kernel`, longest first."""
    duration_ns: Int64s
    """Their durations."""
    attainable_ns: Int64s
    """At the attainable rate."""
    bytes_per_s: float
    """Their rate."""
    attainable_bytes_per_s: float
    """The attainable one."""
    exposed_share: float
    """Share of their time in which nothing else runs on the device."""

    @property
    def excess_ns(self) -> int:
        """Exposed time above attainable."""
        return int((self.duration_ns - self.attainable_ns).sum() * self.exposed_share)


def attainable_rate(hardware: str | None, name: str) -> float | None:
    """Bytes per second that a large copy of this kind can reach; None for an unknown part or no host copy."""
    if hardware is None or not _KIND.search(name):
        return None
    for prefix, generation in PCIE_GENERATION.items():
        if f"{hardware}-".startswith(f"{prefix}-"):
            pinned = LINK_BYTES_PER_S[generation] * PINNED_SHARE
            return min(pinned, PAGEABLE_BYTES_PER_S) if _PAGEABLE.search(name) else pinned
    return None


def copies(analysis: Analysis) -> tuple[ShownTable | None, list[SlowCopies]]:
    """A row a kind of copy and device, longest first, and the slow ones; no table without copies."""
    capture = analysis.capture
    rows: list[Sequence[Cell]] = []
    slow: list[SlowCopies] = []
    for number, device in enumerate(analysis.devices):
        hardware = capture["device"]["hardware"][device.work.device_id].as_py()
        for name, chosen in _kinds(capture, device).items():
            rate = attainable_rate(hardware, name)
            row, found = _measure(capture, number, device, name, chosen, rate)
            rows.append(row)
            if found is not None:
                slow.append(found)
    if not rows:
        return None, []
    rows.sort(key=lambda row: (-int(row[4] or 0), str(row[0]), str(row[1])))
    note = "Rates are those of copies of 256 KiB and more; attainable is known for host links only."
    return ShownTable("copies", "Copies", COLUMNS, rows, len(rows), note), slow


def _kinds(capture: Capture, device: DeviceResult) -> dict[str, Int64s]:
    work = device.work
    chosen = np.flatnonzero(work.in_window() & (work.kind == MEMCPY))
    codes, names = capture.codes("kernel", "name")
    code = codes[work.row[chosen]]
    return {names[one]: chosen[code == one] for one in np.unique(code).tolist()}


def _measure(
    capture: Capture,
    number: int,
    device: DeviceResult,
    name: str,
    chosen: Int64s,
    rate: float | None,
) -> tuple[Sequence[Cell], SlowCopies | None]:
    work = device.work
    num_bytes = capture.int64("kernel", "bytes", -1)[work.row[chosen]]
    duration = (work.end - work.start)[chosen]
    exposed = covered(work.start[chosen], work.end[chosen], device.funnel.split.exposed_memcpy)
    large = num_bytes >= MIN_BYTES
    total = int(duration[large].sum())
    measured = float(num_bytes[large].sum()) / total * 1e9 if total else None
    known = num_bytes[num_bytes >= 0]
    row: Sequence[Cell] = (
        work.label,
        name,
        len(chosen),
        int(known.sum()) if len(known) else None,
        int(duration.sum()),
        int(exposed.sum()),
        measured,
        rate,
    )
    if rate is None or not total:
        return row, None
    attainable = (num_bytes / rate * 1e9).astype(np.int64)
    late = np.flatnonzero(large & (duration > SLOW_RATIO * attainable))
    late = late[np.argsort(-duration[late], kind="stable")]
    if len(late) == 0:
        return row, None
    spent = int(duration[late].sum())
    return row, SlowCopies(
        number,
        name,
        work.row[chosen[late]].astype(np.int64),
        duration[late],
        attainable[late],
        float(num_bytes[late].sum()) / spent * 1e9,
        rate,
        float(exposed[late].sum() / spent),
    )
