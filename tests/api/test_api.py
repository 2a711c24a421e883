"""The verbs as Python calls: what they take, what they give back, what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

import tokenpath.api
from ingest.traces import Trace
from tokenpath.api import Explained, WindowRequest, about, codes, convert, explain, inspect, load
from tokenpath.api.annotate import annotate
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import InputError, TokenpathError, UsageError
from tokenpath.core.report import Trust

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"


def small(**top: int) -> Trace:
    """Two kernels with 90 us between them."""
    trace = Trace(**top).launched(GEMM, launch_us=0, start_us=10, dur_us=10)
    return trace.op("aten::linear", 15, 100).launched(GEMM, launch_us=105, start_us=110, dur_us=10)


def test_everything_exported_is_there() -> None:
    for name in tokenpath.api.__all__:
        assert getattr(tokenpath.api, name)


def test_explain_takes_paths_as_text_or_path_or_a_capture(tmp_path: Path) -> None:
    path = small().write(tmp_path / "a.json")
    capture = load([path])
    results = [explain([path]), explain([str(path)]), explain(capture)]
    assert all(isinstance(result, Explained) for result in results)
    assert results[2].capture is capture
    assert len({str(result.report) for result in results}) == 1


def test_load_gives_a_linked_and_valid_capture(tmp_path: Path) -> None:
    capture = load([small().write(tmp_path / "a.json")])
    assert isinstance(capture, Capture)
    validate(capture)
    assert capture["kernel"]["api_call_id"].null_count == 0


def test_load_of_nothing() -> None:
    with pytest.raises(InputError, match="no file named"):
        load([])


def test_load_of_folders_and_globs(tmp_path: Path) -> None:
    for rank in (0, 1, 2):
        small(rank=rank, world_size=3).write(tmp_path / f"rank{rank}.json")
    for paths in (
        [tmp_path],
        [f"{tmp_path}/*.json"],
        [tmp_path / f"rank{n}.json" for n in (0, 1, 2)],
    ):
        assert load(paths)["source"]["rank"].to_pylist() == [0, 1, 2]
    assert load([f"{tmp_path}/rank[01].json"]).num_rows("source") == 2
    with pytest.raises(InputError):
        load([f"{tmp_path}/none*.json"])


def test_a_name_with_brackets_is_a_name_first(tmp_path: Path) -> None:
    path = small().write(tmp_path / "run[1].json")
    assert load([path]).num_rows("kernel") == 2


def test_the_same_file_twice_counts_once(tmp_path: Path) -> None:
    path = small().write(tmp_path / "a.json")
    assert load([path, path]).num_rows("kernel") == 2


def test_a_capture_folder_stands_alone(tmp_path: Path) -> None:
    path = small().write(tmp_path / "a.json")
    convert([path], tmp_path / "capture")
    assert load([tmp_path / "capture"]).num_rows("kernel") == 2
    with pytest.raises(InputError, match="together with other input"):
        load([tmp_path / "capture", path])


def test_convert_gives_back_what_it_wrote(tmp_path: Path) -> None:
    written = convert([small().write(tmp_path / "a.json")], tmp_path / "capture")
    read = load([tmp_path / "capture"])
    for name in written:
        assert read[name].equals(written[name]), name


def test_convert_leaves_nothing_behind_when_the_input_is_bad(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("no json")
    with pytest.raises(InputError):
        convert([tmp_path / "bad.json"], tmp_path / "capture")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


def test_progress_is_told_in_bytes(tmp_path: Path) -> None:
    path = small().write(tmp_path / "a.json")
    told: list[tuple[int, int | None]] = []
    load([path], progress=lambda done, total: told.append((done, total)))
    assert told
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == path.stat().st_size
    assert {total for _, total in told} <= {None, path.stat().st_size}


def test_inspect_gives_no_verdict(tmp_path: Path) -> None:
    trace = small(rank=3, world_size=8).range("ProfilerStep#0", 0, 50)
    report = inspect([trace.write(tmp_path / "a.json")])
    assert (report.verb, report.funnel, report.findings) == ("inspect", None, ())
    assert report.trust is Trust.GOOD
    assert "2 pieces of device work, 2 API calls, 1 operators" in report.answer[0]
    tables = {table.key: table for table in report.tables}
    (source,) = tables["sources"].rows
    assert (source[0], source[1], source[2], source[3]) == ("a.json", "kineto", 3, 8)
    (device,) = tables["devices"].rows
    assert device[1] == "NVIDIA H100 80GB HBM3"
    counts = dict(row[:2] for row in tables["tables"].rows)
    assert (counts["kernel"], counts["api_call"], counts["op"], counts["step"]) == (2, 2, 1, 1)


def test_inspect_counts_what_was_lost(tmp_path: Path) -> None:
    trace = small().kernel(GEMM, 500, -3).kernel(GEMM, 600, -3)
    report = inspect([trace.write(tmp_path / "a.json")])
    (row,) = [row for row in report.tables[3].rows if row[1] == "yes"]
    assert row[2] == 2
    assert "2 of them lost or repaired" in report.answer[0]


def test_a_window_that_does_not_exist(tmp_path: Path) -> None:
    path = small().write(tmp_path / "a.json")
    with pytest.raises(UsageError):
        explain([path], window=WindowRequest(first_step=0, end_step=1))
    assert issubclass(UsageError, TokenpathError)


def test_annotations_are_the_window_and_every_gap(tmp_path: Path) -> None:
    result = explain([small().write(tmp_path / "a.json")])
    window, gap = annotate(result.analysis)
    assert (window.start_ns, window.end_ns) == (10_000, 120_000)
    assert (gap.start_ns, gap.end_ns) == (20_000, 110_000)
    assert gap.name == "in a framework op"


def test_pages_by_code() -> None:
    assert len(codes()) >= 12
    assert all(about(code).startswith(f"# {code}\n") for code in codes())
    with pytest.raises(UsageError, match="no finding is called"):
        about("no-such-code")
