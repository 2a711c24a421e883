"""Nsight Compute CSV: numbers, columns of several versions, what is no counter, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.compare import lost, reasons, rows
from ingest.nsys_export import NsysExport
from ingest.samples.ncu import DETAIL, LAUNCH, launch, table
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import DamagedInput, InputError, UnknownFormat
from tokenpath.ingest import read
from tokenpath.stitch import link


def load(folder: Path, text: str) -> Capture:
    path = folder / "t.csv"
    path.write_text(text)
    return read([path])


def detail(value: str) -> str:
    return table(DETAIL, [*launch(0, "k"), "S", "Duration", "us", value, ""])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234,567.25", 1234567.25),
        ("1234567", 1234567.0),
        ("0.5", 0.5),
        ("-3", -3.0),
        ("1.5e+09", 1.5e9),
        (" 7 ", 7.0),
        ("12 (5; 7)", 12.0),
    ],
)
def test_numbers(tmp_path: Path, text: str, value: float) -> None:
    assert rows(load(tmp_path, detail(text)), "kernel_counter", "value") == [value]


@pytest.mark.parametrize(
    "text", ["n/a", "", "nan", "1,23", "1.2.3", "(128, 1, 1)", "1e999", "0x10", "١٢", "inf"]
)
def test_what_is_no_number_is_counted(tmp_path: Path, text: str) -> None:
    capture = load(tmp_path, detail(text))
    assert capture.num_rows("kernel_counter") == 0
    counted = reasons(capture)
    assert (
        counted.get("counter without a value", 0) + counted.get("counter that is no number", 0) == 1
    )


def test_columns_of_old_versions_and_ranges_are_no_counters(tmp_path: Path) -> None:
    """`Kernel Time` and NVTX columns stood between the others; without `ID` the launch is unknown."""
    nvtx = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    header = [
        "Process ID",
        "Process Name",
        nvtx,
        "Kernel Name",
        "Kernel Time",
        "Stream",
        "sm__x.sum",
    ]
    units = ["", "", "", "", "", "", "inst"]
    values = ["1", "p", "5", "k", "2026-Jan-01 10:00:00", "7", "3"]
    capture = load(tmp_path, table(header, units, values))
    expected = [(None, "sm__x.sum", 3.0, "inst", "k")]
    columns = ("launch", "name", "value", "unit", "range_name")
    assert rows(capture, "kernel_counter", *columns) == expected


def test_output_of_the_program_may_come_in_between(tmp_path: Path) -> None:
    rows_of = table(DETAIL, [*launch(0, "k"), "S", "Duration", "us", "1", ""])
    capture = load(
        tmp_path, f'the "Kernel Name" is k\n{rows_of}==PROF== Disconnected, bye\nloss 3\n'
    )
    assert capture.num_rows("kernel_counter") == 1
    assert reasons(capture)["line outside the table"] == 2
    assert lost(capture) == {"row of another width": 1}


def test_errors_of_the_profiler_are_a_note(tmp_path: Path) -> None:
    error = "==ERROR== The user does not have permission to access counters"
    capture = load(tmp_path, f"{error}\n==WARNING== x\n{detail('1')}")
    assert rows(capture, "source_note", "code", "sentence") == [
        ("profiler-warning", f"warnings or errors of the profiler: 2, the first: {error}")
    ]


def test_a_summary_of_launches_is_refused(tmp_path: Path) -> None:
    header = ["Process ID", "Kernel Name", "Invocations", "Section Name", "Metric Name", "Average"]
    with pytest.raises(InputError, match="summary of several launches") as caught:
        load(tmp_path, table(header, ["1", "k", "2", "S", "Duration", "3"]))
    assert "--page raw" in str(caught.value)


def test_other_csv_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat):
        load(tmp_path, table(["Name", "Kernel Name"], ["a", "b"]))


def test_a_file_without_its_table(tmp_path: Path) -> None:
    from tokenpath.ingest.ncu.reader import NcuReader
    from tokenpath.ingest.reader import Options

    path = tmp_path / "t.csv"
    path.write_text("==PROF== Connected\n")
    with pytest.raises(DamagedInput, match="ends before the table"):
        NcuReader().read([path], Options())


def test_an_open_quote_ends_cleanly(tmp_path: Path) -> None:
    capture = load(tmp_path, detail("1") + '"1","2","' + "x\n" * 200_000)
    assert capture.num_rows("kernel_counter") == 1
    assert lost(capture)


def test_a_unit_is_that_of_its_column(tmp_path: Path) -> None:
    header = [*LAUNCH, "a", "b"]
    text = table(header, [*[""] * len(LAUNCH), "us", ""], [*launch(5, "k"), "1", "2"])
    assert rows(load(tmp_path, text), "kernel_counter", "launch", "name", "unit") == [
        (5, "a", "us"),
        (5, "b", None),
    ]


def test_counters_join_the_kernels_of_an_nsys_export(tmp_path: Path) -> None:
    export = NsysExport().call("cudaLaunchKernel", 1, 1).kernel("void gemm<int>(int*)", 5, 1)
    export.kernel("void norm<int>(int*)", 7, 1).kernel("void gemm<int>(int*)", 9, 1)
    path = tmp_path / "t.csv"
    names = ("gemm", "norm", "gemm")
    values = [
        [*launch(n, f"void {name}<int>(T1 *)"), "S", "Duration", "us", str(n), ""]
        for n, name in enumerate(names)
    ]
    path.write_text(table(DETAIL, *values))
    capture = link(read([export.write(tmp_path / "t.sqlite"), path]))
    validate(capture)
    assert rows(capture, "kernel_counter", "launch", "kernel_id") == [(0, 0), (1, 1), (2, 2)]
