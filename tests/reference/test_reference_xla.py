"""Real JAX and TensorFlow profiles against what xprof 2.24.2 makes of the same files, and one form against the other."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from ingest.compare import reasons, rows
from tokenpath.api import load
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest import read

_TENSORFLOW = "GPU-multi-worker_192.0.2.1_6003"
_JAX = "jax_conv_minimal_08"
_TPU = "tpu_inference_2.v1"
_SAME = {
    "kernel": (
        "stream_id start_ns end_ns name kind family grid block registers_per_thread bytes correlation_id"
    ),
    "step": "name number start_ns end_ns",
    "api_call": "start_ns end_ns name correlation_id",
    "collective": "op output_bytes dtype",
}


@pytest.fixture(scope="module")
def folder(traces: Path) -> Path:
    return traces / "xplane"


def expected(folder: Path, name: str, tool: str) -> Any:
    """What xprof's tool says of a file."""
    return json.loads(
        gzip.decompress((folder / "expected" / f"{name}.{tool}.json.gz").read_bytes())
    )


def table_of(found: Any) -> list[dict[str, Any]]:
    """The rows of one of its tables, by column."""
    names = [column["id"] for column in found["cols"]]
    return [
        dict(zip(names, [cell and cell.get("v") for cell in row["c"]], strict=True))
        for row in found["rows"]
    ]


def profile(folder: Path, name: str) -> Capture:
    capture = read([folder / f"{name}.xplane.pb"])
    validate(capture)
    return capture


@pytest.mark.parametrize("name", [_TENSORFLOW, _JAX])
def test_kernels_are_those_of_kernel_stats(folder: Path, name: str) -> None:
    """Every kernel: launch shape, registers, occurrences; total, least and longest time to the ns."""
    durations: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    columns = ("kind", "name", "grid", "block", "registers_per_thread", "start_ns", "end_ns")
    for kind, kernel, grid, block, registers, start, end in rows(
        profile(folder, name), "kernel", *columns
    ):
        if kind != "memcpy":
            shape = (",".join(map(str, block)), ",".join(map(str, grid)))
            durations[(kernel, *shape, registers or 0)].append(end - start)
    stated: dict[tuple[Any, ...], list[tuple[float, ...]]] = defaultdict(list)
    for row in table_of(expected(folder, name, "kernel_stats")):
        key = (row["kernel_name"], row["block_dim"], row["grid_dim"], row["registers_per_thread"])
        times = (row[f"{what}_duration_us"] for what in ("total", "min", "max"))
        stated[key].append((*times, row["occurrences"]))
    assert set(durations) == set(stated)
    for key, found in durations.items():
        parts = stated[key]  # several where kernels of one name serve several operators
        assert len(found) == sum(part[3] for part in parts)
        assert sum(found) == round(1000 * sum(part[0] for part in parts))
        assert min(found) == round(1000 * min(part[1] for part in parts))
        assert max(found) == round(1000 * max(part[2] for part in parts))


def test_hlo_instructions_are_those_of_hlo_stats(folder: Path) -> None:
    """The same instructions as often and as long in all; xprof sums the device's own clock, on which 449
    events lasted longer or shorter than on the timeline, and a note says so."""
    capture = profile(folder, _TPU)
    durations: dict[str, list[int]] = defaultdict(list)
    for name, start, end in rows(capture, "kernel", "name", "start_ns", "end_ns"):
        durations[name].append(end - start)
    stated = {row["hlo_op_name"]: row for row in table_of(expected(folder, _TPU, "hlo_stats"))}
    counts = {name: row["occurrences"] for name, row in stated.items()}
    assert {name: len(found) for name, found in durations.items()} == counts
    total = 1000 * sum(row["total_time"] for row in stated.values())
    assert sum(map(sum, durations.values())) == pytest.approx(total, rel=1e-4)
    assert sum(durations["all-reduce"]) == pytest.approx(
        1000 * stated["all-reduce"]["total_time"], rel=1e-4
    )
    ((code, sentence),) = rows(capture, "source_note", "code", "sentence")
    assert code == "xla-clock-jumps"
    assert sentence.startswith("449 of 6,013 device events")


def test_idle_time_of_a_tpu_is_that_of_the_overview(folder: Path) -> None:
    """Of each core, from its first to its last work; xprof says 13.4 % idle, mean of four cores."""
    capture = profile(folder, _TPU)
    busy = span = 0
    for device in range(4):
        own = capture["kernel"].filter(pc.equal(capture["kernel"]["device_id"], device))
        start, end = own["start_ns"].to_pylist(), own["end_ns"].to_pylist()
        reach = start[0]
        for begin, close in sorted(zip(start, end, strict=True)):
            busy += max(0, close - max(begin, reach))
            reach = max(reach, close)
        span += max(end) - min(start)
    (properties,) = [
        page["p"]
        for page in expected(folder, _TPU, "overview_page")
        if "device_idle_time_percent" in page.get("p", {})
    ]
    assert f"{100 * (1 - busy / span):.1f}%" == properties["device_idle_time_percent"] == "13.4%"


def test_the_step_lasts_as_long_as_in_the_overview(folder: Path) -> None:
    """Two devices ran step 0; xprof shows the later one."""
    capture = profile(folder, _TENSORFLOW)
    steps = rows(capture, "step", "number", "start_ns", "end_ns")
    assert [(number, end - start) for number, start, end in steps] == [
        (0, 19_865_491),
        (0, 21_310_352),
    ]
    page = expected(folder, _TENSORFLOW, "overview_page")[1]
    cells = [cell["v"] for cell in page["rows"][0]["c"]]
    assert (cells[0], round(cells[-1] * 1e6)) == ("0", 21_310_352)


def test_every_kernel_of_a_step_knows_it(folder: Path) -> None:
    """By the profiler's group number; each of the two devices has its own step."""
    capture = load([folder / f"{_TENSORFLOW}.xplane.pb"])
    found = rows(capture, "kernel", "device_id", "kind", "step_id")
    assert {(device, step) for device, kind, step in found if kind == "compute"} == {(4, 0), (6, 1)}


def test_launches_are_found(folder: Path) -> None:
    for name in (_TENSORFLOW, _JAX):
        capture = load([folder / f"{name}.xplane.pb"])
        assert capture["kernel"]["api_call_id"].null_count <= 1, name


def test_device_figures_and_clock(folder: Path) -> None:
    tpu = profile(folder, _TPU)
    assert set(rows(tpu, "device", "name", "vendor")) == {("TPU v6 Lite", "google")}
    settings = dict(rows(tpu, "setting", "name", "value"))
    assert settings["device:TPU:0.peak_teraflops_per_second"] == "918.0"
    assert rows(tpu, "source", "clock", "clock_offset_ns") == [("epoch", 1741722099081044120)]
    assert rows(profile(folder, _JAX), "device", "vendor", "num_sms")[0] == ("amd", 304)
    assert rows(profile(folder, _TENSORFLOW), "source", "clock") == ["monotonic"]


@pytest.mark.parametrize("name", [_TENSORFLOW, _TPU])
def test_both_forms_of_a_run_give_the_same_numbers(folder: Path, name: str) -> None:
    """The JSON knows no start of the profile: its clock counts from there."""
    whole = profile(folder, name)
    text = read([folder / "trace_json" / f"{name}.trace.json.gz"])
    validate(text)
    (offset,) = rows(whole, "source", "clock_offset_ns")
    for table, named in _SAME.items():
        columns = named.split()
        assert _moved(whole, table, columns, offset) == _moved(text, table, columns, 0), table
    plain = ["start_ns", "end_ns", "name"]
    ops, ops_of_text = (
        _moved(one, "op", plain, shift) for one, shift in ((whole, offset), (text, 0))
    )
    # Internal marks of the input pipeline are not converted.
    internal = {row for row in ops if row[2].startswith("Prefetch")}
    assert [row for row in ops if row not in internal] == ops_of_text
    ranges = _moved(whole, "range", [*plain, "domain"], offset)
    assert [row for row in ranges if row[3] != "Async XLA Ops"] == _moved(
        text, "range", [*plain, "domain"], 0
    )


def _moved(capture: Capture, table: str, columns: list[str], offset: int) -> list[tuple[Any, ...]]:
    found = [
        tuple(
            value - offset
            if column.endswith("_ns")
            else tuple(value)
            if isinstance(value, list)
            else value
            for column, value in zip(columns, row, strict=True)
        )
        for row in rows(capture, table, *columns)
    ]
    return sorted(found, key=repr)


def test_nothing_is_lost(folder: Path) -> None:
    for path in sorted(folder.glob("*.xplane.pb")):
        if "CORRUPT" not in path.name:
            capture = read([path])
            assert not any(rows(capture, "skip", "lost")), (path.name, reasons(capture))


def test_a_corrupt_file_is_refused_with_a_reason(folder: Path) -> None:
    with pytest.raises(DamagedInput) as caught:
        read([folder / "tpu_inference_2.CORRUPT.xplane.pb"])
    assert "U+FFFD" in str(caught.value)
    assert "byte 0" in str(caught.value)
