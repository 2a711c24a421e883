"""Every Nsight Systems file of the reference data: counts, spans and busy times equal to the nanosecond."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenpath import api
from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import union
from tokenpath.capture.validate import validate
from tokenpath.ingest import read
from tokenpath.stitch import link

FILES = (
    "h100_2gpu_1s",
    "healthy_1pct",
    "mfu_2gpu_after",
    "mfu_2gpu_before",
    "mock",
    "saxpy-mpi-cuda_nsys_perlmutter0",
)


@pytest.fixture(scope="module")
def expected(traces: Path) -> dict[str, Any]:
    numbers: dict[str, Any] = json.loads((traces / "reference_numbers.json").read_text())
    return numbers


def load(traces: Path, name: str) -> Capture:
    capture = read([traces / "nsys" / f"{name}.sqlite"])
    validate(capture)
    return capture


def kernels(capture: Capture, *kinds: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    codes, names = capture.codes("kernel", "kind")
    return np.isin(codes, [number for number, name in enumerate(names) if name in kinds])


@pytest.mark.parametrize("name", FILES)
def test_counts(traces: Path, expected: dict[str, Any], name: str) -> None:
    numbers = expected[f"nsys/{name}.sqlite"]
    capture = load(traces, name)
    skipped = dict(
        zip(*(capture["skip"][c].to_pylist() for c in ("reason", "num_events")), strict=True)
    )
    overhead = sum(text.startswith("overhead: ") for text in capture["range"]["name"].to_pylist())
    assert kernels(capture, "compute", "communication").sum() == numbers["kernels"]
    assert kernels(capture, "memcpy").sum() == numbers["memcpy"]
    repeated = skipped.get("call repeated for its call chain", 0)
    assert capture.num_rows("api_call") + repeated == numbers["runtime"]
    nvtx = capture.num_rows("op") + capture.num_rows("range") - overhead
    assert nvtx + skipped.get("name of an NVTX object", 0) == numbers["nvtx"]
    assert not any(row["lost"] for row in capture["skip"].to_pylist())


@pytest.mark.parametrize("name", FILES)
def test_span_and_busy_of_each_device(traces: Path, expected: dict[str, Any], name: str) -> None:
    capture = load(traces, name)
    numbers = expected[f"nsys/{name}.sqlite"]["devices"]
    start, end = capture.int64("kernel", "start_ns"), capture.int64("kernel", "end_ns")
    device, is_kernel = (
        capture.ids("kernel", "device_id"),
        kernels(capture, "compute", "communication"),
    )
    found = {}
    for row, index in enumerate(capture["device"]["index"].to_pylist()):
        here = device == row
        mine = here & is_kernel
        found[str(index)] = {
            "span_ns": int(end[here].max() - start[here].min()),
            "busy_ns": union(start[here], end[here]).total,
            "kernel_busy_ns": union(start[mine], end[mine]).total,
            "kernel_span_ns": int(end[mine].max() - start[mine].min()),
        }
    assert found == numbers


@pytest.mark.parametrize("name", ["h100_2gpu_1s", "mfu_2gpu_before"])
def test_processes_are_sources_and_launches_stay_in_theirs(traces: Path, name: str) -> None:
    capture = link(load(traces, name))
    assert capture.num_rows("source") == capture.num_rows("device") == 2
    call = capture.ids("kernel", "api_call_id")
    linked = np.flatnonzero(call >= 0)
    sources = capture.ids("api_call", "source_id")[call[linked]]
    assert (sources == capture.ids("kernel", "source_id")[linked]).all()
    launched = capture.int64("api_call", "start_ns")[call[linked]]
    assert (launched <= capture.int64("kernel", "start_ns")[linked]).all()
    assert (capture.ids("kernel", "op_id")[linked] >= 0).mean() > 0.5


def test_what_the_files_say_about_themselves(traces: Path) -> None:
    (gpu,) = load(traces, "mock")["device"].to_pylist()
    assert (gpu["name"], gpu["num_sms"]) == ("NVIDIA GeForce RTX 3080", 68)
    (source,) = load(traces, "saxpy-mpi-cuda_nsys_perlmutter0")["source"].to_pylist()
    assert (source["rank"], source["profiler"]) == (0, "NVIDIA Nsight Systems 2022.2.1.31")
    assert source["base_time_ns"] == 1_687_813_257_637_297_504
    unnamed = load(traces, "h100_2gpu_1s")["device"].to_pylist()
    assert [row["name"] for row in unnamed] == [None, None]


@pytest.mark.parametrize("name", FILES)
def test_explain_closes(traces: Path, name: str) -> None:
    report = api.explain([traces / "nsys" / f"{name}.sqlite"]).report
    assert report is not None


def test_a_healthy_run_gets_no_warning(traces: Path) -> None:
    shown = str(api.explain([traces / "nsys" / "healthy_1pct.sqlite"]).report)
    assert "exposed-communication" not in shown


def test_the_four_processes_of_nsys_jax(traces: Path) -> None:
    """Ranges with device work, each with its projection; the rank is that of XLA's process."""
    folders = sorted((traces / "nsys_jax" / "pax_fsdp4_4proc").iterdir())
    capture = read(folders)
    validate(capture)
    assert capture["source"]["rank"].to_pylist() == [0, 1, 2, 3]
    assert set(capture["device"]["name"].to_pylist()) == {"NVIDIA A100-SXM4-40GB"}
    assert capture.num_rows("range") == 114_396
    assert not any(row["lost"] for row in capture["skip"].to_pylist())
