"""Nsight Compute CSV: the raw page and the details page."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from ingest.samples import Sample

LAUNCH = [
    *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream"),
    *("Block Size", "Grid Size", "Device", "CC"),
]
DETAIL = [*LAUNCH, "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name"]


def launch(number: int, kernel: str, secret: str = "") -> list[str]:
    """The columns that say which launch a row is of."""
    place = [str(number), "1234", secret or "python3", secret or "host", kernel, "1", "7"]
    return [*place, "(128, 1, 1)", "(80, 1, 1)", "0", "8.0"]


def table(*rows: list[str]) -> str:
    """Rows as ncu writes them: every field quoted."""
    target = io.StringIO()
    csv.writer(target, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return target.getvalue()


BEFORE = "==PROF== Connected to process 1234\nhello from the program\n"
AFTER = "==PROF== Disconnected from process 1234\n"


def raw(folder: Path) -> Path:
    path = folder / "raw.csv"
    names = ["dram__bytes_read.sum", "gpu__time_duration.sum", "sm__throughput.avg.pct"]
    text = table(
        [*LAUNCH, *names],
        [*[""] * len(LAUNCH), "byte", "nsecond", "%"],
        [*launch(0, "gemm"), "2,000,000,000", "2,000", "n/a"],
        [*launch(1, "norm"), "4096", "3.5", "1.0"],
        ["1", "short"],
    )
    path.write_text(BEFORE + text + AFTER)
    return path


def details(folder: Path) -> Path:
    path = folder / "details.csv"
    text = table(
        DETAIL,
        [*launch(0, "gemm"), "Speed Of Light", "Duration", "usecond", "1,205.00", ""],
        [*launch(0, "gemm"), "Launch", "Function Cache Configuration", "", "PreferNone", ""],
        [*launch(0, "gemm"), "Speed Of Light", "", "", "", "SOLBottleneck"],
        [*launch(1, "norm"), "Occupancy", "Achieved Occupancy", "%", "50", ""],
    )
    path.write_text(BEFORE + text)
    return path


def planted(folder: Path, secret: str) -> Path:
    path = folder / "t.csv"
    text = table(
        [*LAUNCH, "dram__bytes.sum", "device__attribute_display_name", secret],
        [*[""] * len(LAUNCH), secret, "", secret],
        [*launch(0, secret, secret), "1", secret, "3"],
    )
    path.write_text(f"==ERROR== {secret}\n{BEFORE}{text}{AFTER}")
    return path


def many(folder: Path, num_events: int) -> Path:
    path = folder / "t.csv"
    rows = [[*launch(n, "gemm"), "S", "Duration", "us", str(n), ""] for n in range(num_events)]
    path.write_text(BEFORE + table(DETAIL, *rows))
    return path


COLUMNS = ("launch", "range_name", "name", "value", "unit", "kernel_id", "start_ns")
SAMPLES = [
    Sample(
        "ncu raw",
        "ncu",
        raw,
        {
            ("kernel_counter", *COLUMNS): [
                (0, "gemm", "dram__bytes_read.sum", 2e9, "byte", None, None),
                (0, "gemm", "gpu__time_duration.sum", 2000.0, "nsecond", None, None),
                (1, "norm", "dram__bytes_read.sum", 4096.0, "byte", None, None),
                (1, "norm", "gpu__time_duration.sum", 3.5, "nsecond", None, None),
                (1, "norm", "sm__throughput.avg.pct", 1.0, "%", None, None),
            ],
            ("source", "host", "profiler"): [("host-0", "NVIDIA Nsight Compute")],
        },
        {"line outside the table": 3, "counter without a value": 1, "row of another width": 1},
        planted,
        many,
    ),
    Sample(
        "ncu details",
        "ncu",
        details,
        {
            ("kernel_counter", *COLUMNS): [
                (0, "gemm", "Duration", 1205.0, "usecond", None, None),
                (1, "norm", "Achieved Occupancy", 50.0, "%", None, None),
            ],
            ("setting", "name", "value"): [
                ("device.compute_capability", "8.0"),
                ("ncu.process", "python3"),
            ],
        },
        {
            "line outside the table": 2,
            "counter that is no number": 1,
            "advice of the profiler": 1,
        },
        planted,
        many,
    ),
]
