"""Files of the load generator: the clock, what is empty, what is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.compare import reasons, rows
from ingest.samples.vllm_load import HEADER, requests, tokens
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.reader import Options
from tokenpath.ingest.vllm_load.reader import VllmLoadReader


def test_the_list_of_runs_places_the_files_and_describes_the_load(tmp_path: Path) -> None:
    listed = '{"runs":[{"run":"a","t0_unix_ns":1000,"rate_rps":2.5,"workload":{"mix":"short"}}]}'
    (tmp_path / "runs.json").write_text(listed)
    paths = [requests(tmp_path), tokens(tmp_path)]
    capture = VllmLoadReader().read(paths, Options())
    assert rows(capture, "source", "clock", "base_time_ns") == [("epoch", 1000)] * 2
    assert rows(capture, "request", "arrival_ns")[0] == 1000
    assert rows(capture, "token", "at_ns")[0] == 11_000
    assert rows(capture, "setting", "name", "value")[:2] == [
        ("load.rate_rps", "2.5"),
        ("load.mix", "short"),
    ]


def test_what_most_requests_share_is_a_setting(tmp_path: Path) -> None:
    path = tmp_path / "a.requests.csv"
    lines = ["req,group,shared_prefix,arrival_us", "a,1,96,1", "b,2,96,2", "c,1,96,3", "d,,0,4"]
    path.write_text("\n".join(lines) + "\n")
    found = dict(rows(VllmLoadReader().read([path], Options()), "setting", "name", "value"))
    assert found == {"load.shared_prefix_tokens": "96", "load.num_groups": "2"}


def test_numbers_that_are_none_are_null(tmp_path: Path) -> None:
    path = tmp_path / "a.requests.csv"
    path.write_text(HEADER + "\na,1,1,-5,x,1e3,,9999999999999999,,,,,,,,,,,,,nottrace\n")
    capture = VllmLoadReader().read([path], Options())
    columns = ("prompt_tokens", "output_tokens", "arrival_ns", "trace_id")
    assert rows(capture, "request", *columns) == [(None, None, None, None)]
    assert reasons(capture) == {"timestamp out of range": 1}


def test_a_file_without_a_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.requests.csv"
    path.write_text(HEADER + "\n")
    with pytest.raises(DamagedInput):
        VllmLoadReader().read([path], Options())
