"""rocprofv3: files of one run joined, schema 4 of rocpd, order within a file, hostile databases."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from ingest.compare import reasons, rows
from ingest.samples.rocprof import (
    CALLS,
    KERNELS,
    dispatch,
    document,
    kernel_row,
    small_records,
    write_csv,
    write_json,
    write_rocpd,
)
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import DamagedInput, InputError, TokenpathError
from tokenpath.ingest import read
from tokenpath.ingest.rocprof.names import strip_descriptor


def write_run(folder: Path) -> list[Path]:
    """The files of one run, and the kernels of another."""
    agents = ("Node_Id", "Logical_Node_Id", "Agent_Type", "Cu_Count", "Product_Name")
    copies = (
        *("Kind", "Direction", "Source_Agent_Id", "Destination_Agent_Id"),
        *("Correlation_Id", "Start_Timestamp", "End_Timestamp"),
    )
    counters = (
        *("Correlation_Id", "Dispatch_Id", "Agent_Id", "Kernel_Name", "Counter_Name"),
        *("Counter_Value", "Start_Timestamp", "End_Timestamp"),
    )
    calls = [
        ("HIP_RUNTIME_API", "hipLaunchKernel", 42, 7, 1, 1000, 1100),
        ("HIP_RUNTIME_API", "hipMemcpyAsync", 42, 7, 2, 1200, 1300),
    ]
    marks = [
        ("MARKER_CORE_RANGE_API", "decode", 42, 7, 5, 900, 4000),
        ("MARKER_CONTROL_API", "roctxProfilerPause", 42, 8, 6, 950, 960),
    ]
    kernels = [kernel_row("f [clone .kd]", 2000, 2500, 1)]
    copy = ("MEMORY_COPY", "MEMORY_COPY_DEVICE_TO_HOST", "Agent 4", "Agent 0", 2, 2600, 2700)
    counted = (1, 1, "Agent 4", "f", "SQ_WAVES", 12.5, 2000, 2500)
    return [
        write_csv(folder / "1_kernel_trace.csv", KERNELS, kernels),
        write_csv(folder / "1_hip_api_trace.csv", CALLS, calls),
        write_csv(folder / "1_marker_api_trace.csv", CALLS, marks),
        write_csv(folder / "1_memory_copy_trace.csv", copies, [copy]),
        write_csv(folder / "1_counter_collection.csv", counters, [counted]),
        write_csv(
            folder / "1_agent_info.csv",
            agents,
            [(0, 0, "CPU", 0, "EPYC"), (4, 4, "GPU", 304, "AMD Instinct MI300X")],
        ),
        write_csv(folder / "2_kernel_trace.csv", KERNELS, kernels),
    ]


def test_files_of_one_run_share_devices_and_threads_and_link(tmp_path: Path) -> None:
    capture = read(write_run(tmp_path))
    validate(capture)
    assert capture.num_rows("source") == 7
    assert rows(capture, "device", "index", "name", "num_sms") == [
        (0, "AMD Instinct MI300X", 304),
        (4, None, None),
    ]
    kernels = rows(capture, "kernel", "name", "kind", "device_id", "api_call_id")
    assert kernels == [
        ("f", "compute", 0, 0),
        (kernels[1][0], "memcpy", 0, 1),
        ("f", "compute", 1, None),
    ]
    assert rows(capture, "thread", "pid", "tid") == [("42", "7"), ("42", "8")]
    assert rows(capture, "range", "name", "thread_id") == [("decode", 0)]
    assert rows(capture, "api_call", "name")[-1] == "roctxProfilerPause"
    assert rows(capture, "kernel_counter", "kernel_id", "name", "value") == [(0, "SQ_WAVES", 12.5)]


def test_order_of_the_files_does_not_matter(tmp_path: Path) -> None:
    files = write_run(tmp_path)[:-1]
    one, two = read(files), read(files[::-1])
    for table in ("device", "thread"):
        plain = [capture[table].drop(["source_id"]).to_pylist() for capture in (one, two)]
        assert plain[0] == plain[1]
    assert sorted(calls_of_kernels(one)) == sorted(calls_of_kernels(two))
    for capture in (one, two):
        (number,) = rows(capture, "kernel_counter", "kernel_id")
        assert rows(capture, "kernel", "name")[number] == "f"


def calls_of_kernels(capture: Capture) -> list[tuple[str, str]]:
    calls = rows(capture, "api_call", "name")
    return [(name, calls[call]) for name, call in rows(capture, "kernel", "name", "api_call_id")]


def test_several_processes_in_one_json_keep_their_ids_apart(tmp_path: Path) -> None:
    """Kernel and correlation ids count from one in each process."""
    one = document(small_records(), name="f")["rocprofiler-sdk-tool"]
    two = document({"kernel_dispatch": [dispatch(7000, 8000)]}, name="g")["rocprofiler-sdk-tool"]
    path = write_json(tmp_path, {"rocprofiler-sdk-tool": [*one, *two]})
    capture = read([path])
    assert rows(capture, "kernel", "name", "api_call_id")[1:] == [("f", 0), ("g", None)]


def test_nothing_but_kernels_and_no_symbols(tmp_path: Path) -> None:
    tool = {"buffer_records": {"kernel_dispatch": [dispatch(5, 9, kernel=77)]}}
    capture = read([write_json(tmp_path, {"rocprofiler-sdk-tool": [tool]})])
    assert rows(capture, "kernel", "name", "start_ns") == [("unknown kernel", 5)]
    assert reasons(capture) == {"kernel without a name": 1}


def test_zero_stamps_are_counted_not_kept(tmp_path: Path) -> None:
    records = {"kernel_dispatch": [dispatch(0, 0), dispatch(-5, 3), dispatch(4, 4)]}
    capture = read([write_json(tmp_path, document(records))])
    assert rows(capture, "kernel", "start_ns", "end_ns") == [(4, 4)]
    counted = reasons(capture)
    assert (counted["zero timestamp"], counted["timestamp out of range"]) == (1, 1)


def test_a_damaged_record_costs_that_record(tmp_path: Path) -> None:
    records = {"kernel_dispatch": [dispatch(n, n + 1, link=n) for n in range(1, 6)]}
    path = write_json(tmp_path, document(records))
    text = path.read_text()
    at = text.index('"start_timestamp": 3')
    path.write_text(text[:at] + "oops " + text[at:])
    capture = read([path])
    assert rows(capture, "kernel", "start_ns") == [1, 2, 4, 5]
    assert reasons(capture)["malformed record"] == 1


def test_tables_of_rocpd_schema_4_name_tracks(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with sqlite3.connect(path) as database:
        suffix = "_00001f4c"
        for name, columns in {
            "string": "id, string",
            "info_category": "id, name",
            "info_process": "id, pid",
            "info_thread": "id, pid, tid, name",
            "info_kernel_symbol": "id, display_name",
            "track": "id, pid, tid, agent_id, queue_id, stream_id, name_id",
            "event": "id, stack_id, correlation_id, category_id, extdata",
            "region": "id, track_id, name_id, start, end, event_id",
            "sample": "id, track_id, timestamp, event_id",
            "kernel_dispatch": "id, track_id, kernel_id, dispatch_id, start, end, event_id",
        }.items():
            database.execute(f"CREATE TABLE rocpd_{name}{suffix} ({columns})")
        for name, row in (
            ("string", (1, "hipLaunchKernel")),
            ("info_category", (1, "HIP_RUNTIME_API")),
            ("info_category", (2, "MARKER_CORE_API")),
            ("info_process", (42, 4200)),
            ("info_thread", (7, 42, 77, "main")),
            ("info_kernel_symbol", (5, "f.kd")),
            ("track", (1, 42, 7, 3, 1, 6, None)),
            ("event", (1, 9, 0, 1, "{}")),
            ("event", (2, 10, 0, 2, '{"message": "here"}')),
            ("region", (1, 1, 1, 100, 200, 1)),
            ("sample", (1, 1, 150, 2)),
            ("kernel_dispatch", (1, 1, 5, 1, 300, 400, 1)),
        ):
            marks = ", ".join("?" * len(row))
            database.execute(f"INSERT INTO rocpd_{name}{suffix} VALUES ({marks})", row)
    capture = read([path])
    columns = ("name", "stream_id", "start_ns", "correlation_id", "api_call_id")
    assert rows(capture, "kernel", *columns) == [("f", 6, 300, 9, 0)]
    assert rows(capture, "device", "index") == [3]
    assert rows(capture, "range", "name", "start_ns", "end_ns") == [("here", 150, 150)]
    assert rows(capture, "thread", "pid", "tid", "name") == [("4200", "77", "main")]


@pytest.mark.parametrize(
    "schema",
    [
        # A view in the place of a table, which would run for ever.
        (
            "CREATE VIEW rocpd_kernel_dispatch AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1"
            " FROM n) SELECT x AS start, x AS end FROM n"
        ),
        "CREATE TABLE rocpd_kernel_dispatch_00001f4c (start, end AS (zeroblob(1000000000)) VIRTUAL)",
        "CREATE TABLE rocpd_kernel_dispatch_00001f4c (start BLOB, end BLOB, agent_id TEXT)",
        'CREATE TABLE "rocpd_region_00001f4c" ("a""; DROP TABLE x; --" TEXT, start, end)',
    ],
)
def test_hostile_schemas_are_read_as_far_as_they_are_plain(tmp_path: Path, schema: str) -> None:
    path = tmp_path / "r.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE rocpd_string_00001f4c (id, string)")
        database.execute("INSERT INTO rocpd_string_00001f4c VALUES ('x', x'ff00')")
        database.execute(schema)
    before = path.read_bytes()
    capture = read([path])
    validate(capture)
    assert capture.num_rows("kernel") == 0
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["r.db"]


def test_a_packed_database_is_refused_with_a_way_out(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "r.db.gz"
    path.write_bytes(gzip.compress(write_rocpd(tmp_path, [(1, 2)]).read_bytes()))
    with pytest.raises(InputError, match="unpack it first"):
        read([path])


def test_a_file_with_no_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "1_results.json"
    path.write_text('{"rocprofiler-sdk-tool": []}')
    with pytest.raises(DamagedInput):
        read([path])


@pytest.mark.parametrize(
    "header", ['"Kind","Agent_Id","Queue_Id",\n', '"Kind","Direction","Kind"\n']
)
def test_csv_of_other_columns_is_refused(tmp_path: Path, header: str) -> None:
    path = tmp_path / "1_kernel_trace.csv"
    path.write_text(header)
    with pytest.raises(TokenpathError):
        read([path])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("f(int) [clone .kd]", "f(int)"), ("f.kd", "f"), ("Cijk_MT64", "Cijk_MT64")],
)
def test_the_suffix_of_a_descriptor_goes(name: str, expected: str) -> None:
    assert strip_descriptor(name) == expected


def test_depth_and_size_are_bounded(tmp_path: Path) -> None:
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    records = {"kernel_dispatch": [{"dispatch_info": deep}, dispatch(1, 2)], "hip_api": deep}
    text = json.dumps(document(records))
    bomb = text.replace('"memory_copy"', '"x"') + "[" * 100_000
    (tmp_path / "1_results.json").write_text(bomb)
    capture = read([tmp_path / "1_results.json"])
    assert rows(capture, "kernel", "start_ns") == [1]
