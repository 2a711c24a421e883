"""The table that ncu prints, in its two forms.

`--page raw`: one row a launch and one column a counter, under a row of units. `--page details`: one row a
counter of a launch. Before and after the table stand lines of ncu itself (`==PROF== ...`) and whatever the
profiled program printed. Numbers have commas between thousands; units are scaled row by row (`us`, `ms`)
and kept as they stand.
"""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput, InputError
from tokenpath.ingest import arrow
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.growing import Words
from tokenpath.ingest.json_lines import lines
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options, Reader

_NUMBER = re.compile(
    r"([+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)(\s*\(.*\))?", re.ASCII
)
"""A number, and behind it the values of the instances that it sums up."""
_UNMEASURED = frozenset({"", "n/a", "nan", "no data"})
_OWN_LINE = "=="
_TROUBLE = ("==ERROR==", "==WARNING==")
_MAX_LAUNCH = 2**62

# Columns that say which launch a row is of; every other column of the raw page is a counter.
_LAUNCH_COLUMNS = frozenset(
    {
        *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context"),
        *("Stream", "Block Size", "Grid Size", "Device", "CC", "Section Name", "Invocations"),
    }
)
_NVTX_COLUMN = re.compile(
    r"(?:thread )?(?:Id:)?Domain:(?:Push/Pop|Start/Stop)_Range:|NVTX", re.IGNORECASE
)
_SETTINGS = {
    "device__attribute_display_name": "device.name",
    "CC": "device.compute_capability",
    "Process Name": "ncu.process",
}
"""Columns of texts that are kept, and their name as a setting."""


@dataclass
class _Rows:
    """Counters in columns."""

    launch: array[int] = field(default_factory=lambda: array("q"))
    value: array[float] = field(default_factory=lambda: array("d"))
    name: array[int] = field(default_factory=lambda: array("i"))
    unit: array[int] = field(default_factory=lambda: array("i"))
    kernel: array[int] = field(default_factory=lambda: array("i"))
    words: Words = field(default_factory=Words)


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """Read one file. DamagedInput when it ends before the table; InputError for a summary of launches."""
    builder = CaptureBuilder(reader, path, options)
    builder.origin.clock, builder.origin.profiler = "monotonic", "NVIDIA Nsight Compute"
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    table = _Table(builder)
    texts = (line.decode("utf-8", "replace") for _, line in lines(unpacked, builder.losses))
    header = table.find_header(texts)
    if header is None:
        raise DamagedInput(
            "the file ends before the table of counters",
            where=str(path),
            allowed="the output of ncu --csv --page raw or --page details",
        )
    if "Invocations" in header or "Kernel Name" not in header:
        raise InputError(
            "a summary of several launches says nothing about one launch",
            where=str(path),
            allowed="one row a launch",
            next_step="ncu --import REPORT.ncu-rep --csv --page raw",
        )
    table.read(csv.reader(texts, strict=False), header)
    table.finish()
    return builder.finish()


class _Table:
    """One table on its way to rows of `kernel_counter`."""

    def __init__(self, builder: CaptureBuilder) -> None:
        self._builder, self._losses = builder, builder.losses
        self._rows = _Rows()
        self._num_troubles, self._trouble = 0, ""

    def find_header(self, texts: Iterator[str]) -> list[str] | None:
        """Skip to the line of column names."""
        for text in texts:
            if '"Kernel Name"' in text:
                try:
                    (names,) = csv.reader([text.rstrip("\r")])
                except csv.Error:
                    names = []
                if "Process ID" in names:
                    return names
            self._skip_line(text)
        return None

    def _skip_line(self, text: str) -> None:
        self._builder.num_events += 1
        self._losses.add("line outside the table", lost=False)
        if text.startswith(_TROUBLE):
            self._num_troubles += 1
            self._trouble = self._trouble or text.strip()

    def read(self, rows: Iterator[list[str]], header: Sequence[str]) -> None:
        """All rows below the column names."""
        at = {name: number for number, name in reversed(list(enumerate(header)))}
        take = self._taker(header, at)
        number = 0
        while (row := self._next(rows)) is not None:
            number += 1
            if row and row[0].startswith(_OWN_LINE):
                self._skip_line(",".join(row))
            elif len(row) != len(header):
                self._builder.num_events += 1
                self._losses.add("row of another width", what=f"row {number} of the table")
            else:
                take(row)

    def _next(self, rows: Iterator[list[str]]) -> list[str] | None:
        while True:
            try:
                return next(rows, None)
            except csv.Error as error:
                self._builder.num_events += 1
                self._losses.add("damaged row", what=str(error))

    def _taker(self, header: Sequence[str], at: dict[str, int]) -> Callable[[list[str]], None]:
        if {"Metric Name", "Metric Value"} <= at.keys():
            return lambda row: self._take_detail(row, at)
        counters = [
            (number, name)
            for number, name in enumerate(header)
            if name not in _LAUNCH_COLUMNS and not _NVTX_COLUMN.search(name)
        ]
        units: dict[int, str] = {}

        def take_raw(row: list[str]) -> None:
            if not units and not row[at["Kernel Name"]].strip():
                units.update(enumerate(row))
                return
            launch = self._launch(row, at)
            for number, name in counters:
                self._add(launch, row[at["Kernel Name"]], name, units.get(number, ""), row[number])

        return take_raw

    def _take_detail(self, row: list[str], at: dict[str, int]) -> None:
        name = row[at["Metric Name"]]
        if not name.strip():
            self._builder.num_events += 1
            self._losses.add("advice of the profiler", lost=False)
            return
        unit = row[at["Metric Unit"]] if "Metric Unit" in at else ""
        self._add(
            self._launch(row, at), row[at["Kernel Name"]], name, unit, row[at["Metric Value"]]
        )

    def _launch(self, row: list[str], at: dict[str, int]) -> int:
        """Number of the launch, -1 where the file does not say; what else stands in the row is kept once."""
        for name, setting in _SETTINGS.items():
            if name in at and row[at[name]].strip():
                self._builder.setting(setting, row[at[name]].strip())
        if "Host Name" in at and self._builder.origin.host is None:
            self._builder.origin.host = row[at["Host Name"]].strip() or None
        text = row[at["ID"]].strip().replace(",", "") if "ID" in at else ""
        is_number = text.isascii() and text.isdigit() and len(text) < len(str(_MAX_LAUNCH))
        return int(text) if is_number else -1

    def _add(self, launch: int, kernel: str, name: str, unit: str, text: str) -> None:
        self._builder.num_events += 1
        text = text.strip()
        match = _NUMBER.fullmatch(text)
        if match is None:
            if text.lower() in _UNMEASURED:
                self._losses.add("counter without a value", lost=False)
            else:
                self._losses.add("counter that is no number", what=name, lost=False)
            return
        if match[2]:
            self._losses.add("values of the instances of a counter", dropped=False)
        value = float(match[1].replace(",", ""))
        if value in (float("inf"), float("-inf")):
            self._losses.add("counter without a value")
            return
        rows = self._rows
        rows.launch.append(launch)
        rows.value.append(value)
        rows.name.append(rows.words.code(name.strip()))
        rows.unit.append(rows.words.code(unit.strip()) if unit.strip() else -1)
        rows.kernel.append(rows.words.code(kernel.strip()) if kernel.strip() else -1)

    def finish(self) -> None:
        """Hand the rows on."""
        rows, texts = self._rows, self._rows.words.texts()
        if len(rows.value):
            self._builder.add(
                "kernel_counter",
                {
                    "launch": arrow.integers(np.array(rows.launch, np.int64), -1),
                    "name": _texts(rows.name, texts),
                    "value": np.array(rows.value, np.float64),
                    "unit": _texts(rows.unit, texts),
                    "range_name": _texts(rows.kernel, texts),
                },
            )
        if self._num_troubles:
            self._builder.note(
                "profiler-warning",
                f"warnings or errors of the profiler: {self._num_troubles:,}, the first: "
                f"{self._trouble[:300]}",
            )


def _texts(codes: array[int], texts: list[str]) -> pa.Array:
    return arrow.texts(np.array(codes, np.int32), texts)
