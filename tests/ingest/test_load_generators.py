"""Load generators: exact times, notes where they apply, damage and hostile input, the page of names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.pages import read as read_page
from docs.pages import rows as page_rows
from ingest.compare import lost, reasons, rows
from ingest.samples import aiperf, guidellm, inference_perf, llmperf, sglang_bench, vllm_bench
from ingest.samples import csv_requests as plain
from tokenpath.capture.capture import Capture
from tokenpath.core.errors import TokenpathError
from tokenpath.ingest import read
from tokenpath.ingest.load_json import BEGIN, Members
from tokenpath.ingest.load_metrics import METRICS, statistic
from tokenpath.ingest.load_times import token_times
from tokenpath.ingest.losses import Losses

Build = Callable[[Path], Path]


def notes(capture: Capture) -> set[str]:
    return set(rows(capture, "source_note", "code"))


def vllm(**changes: Any) -> Build:
    return lambda folder: vllm_bench.write(folder, vllm_bench.result(**changes))


def sglang(**changes: Any) -> Build:
    return lambda folder: sglang_bench.write(folder, {**sglang_bench.RESULT, **changes})


NOTES: list[tuple[Build, set[str]]] = [
    (
        vllm(),
        {"itl-per-chunk", "closed-loop-client", "failed-requests-excluded", "warm-up-included"}
        | {"no-request-ids"},
    ),
    (
        vllm(is_detailed=False, max_concurrency=None, failed=0),
        {"itl-per-chunk", "warm-up-included", "aggregate-only"},
    ),
    (
        sglang(),
        {"aggregate-only", "closed-loop-client", "itl-smoothed", "tokens-retokenised"},
    ),
    (
        sglang(**sglang_bench.LISTS, backend="vllm", max_concurrency=None),
        {"no-request-ids", "itl-per-chunk", "tokens-retokenised"},
    ),
    (
        lambda folder: guidellm.write(folder, guidellm.old()),
        {"closed-loop-client", "failed-requests-excluded", "itl-is-request-mean"}
        | {"warm-up-included"},
    ),
    (
        lambda folder: guidellm.write(folder, guidellm.new()),
        {"itl-is-request-mean", "tpot-includes-first-token"},
    ),
    (
        lambda folder: aiperf.write_lines(folder, aiperf.RECORD),
        {"itl-per-chunk", "itl-is-request-mean"},
    ),
    (
        lambda folder: aiperf.write_lines(folder, aiperf.FAILED),
        {"failed-requests-excluded", "warm-up-included", "no-request-ids"},
    ),
    (
        lambda folder: aiperf.write(folder, aiperf.SUMMARY),
        {"aggregate-only", "closed-loop-client", "failed-requests-excluded"}
        | {"itl-is-request-mean", "tokens-retokenised"},
    ),
    (
        lambda folder: inference_perf.write(folder, inference_perf.SUMMARY),
        {"aggregate-only", "failed-requests-excluded", "tokens-retokenised"}
        | {"tpot-includes-first-token"},
    ),
    (
        lambda folder: inference_perf.write(folder, [inference_perf.REQUEST]),
        {"no-request-ids", "itl-zero-within-chunk"},
    ),
    (
        lambda folder: llmperf.write(folder, llmperf.SUMMARY),
        {"aggregate-only", "closed-loop-client", "failed-requests-excluded"}
        | {"tokens-retokenised", "tpot-includes-first-token", "warm-up-included"},
    ),
    (plain.table(plain.BURSTGPT), {"workload-without-latencies"}),
    (plain.table("arrival_s,prompt_tokens\n1,2\n"), {"no-request-ids"}),
    (plain.table("request_id,arrival_s,prompt_tokens\na,1,2\n"), set()),
]


@pytest.mark.parametrize(("build", "expected"), NOTES, ids=range(len(NOTES)))
def test_a_note_stands_where_it_applies_and_only_there(
    build: Build, expected: set[str], tmp_path: Path
) -> None:
    assert notes(read([build(tmp_path)])) == expected


@given(
    st.floats(0, 1e6),
    st.lists(st.floats(0, 10) | st.floats(0, 1e-6), max_size=300),
)
def test_sums_of_gaps_are_exact(start_s: float, gaps: list[float]) -> None:
    """Against the sum of the doubles themselves; half a nanosecond may go either way."""
    start = round(Decimal(start_s) * 10**9)
    times = token_times(start, gaps)
    assert times is not None
    assert times[0] == start
    assert (np.diff(times) >= 0).all()
    total = Decimal(0)
    for gap, time in zip(gaps, times[1:].tolist(), strict=True):
        total += Decimal(gap) * 10**9
        assert abs(time - start - total) <= Decimal("0.501")


@pytest.mark.parametrize(
    "gaps", [[-1.0], [float("nan")], [float("inf")], [1e10], [10**400], ["0.1"], [True], [None]]
)
def test_gaps_that_are_none_are_refused(gaps: list[Any]) -> None:
    assert token_times(0, gaps) is None


def test_bad_gaps_are_counted_and_the_request_stays(tmp_path: Path) -> None:
    lists = {**vllm_bench.LISTS, "itls": [[-1.0, 0.1], "x", []]}
    capture = read([vllm_bench.write(tmp_path, vllm_bench.result(**lists))])
    assert capture.num_rows("request") == 3
    assert lost(capture)["gaps that are no times"] == 2


def test_runs_appended_to_one_file_are_told_apart(tmp_path: Path) -> None:
    path = vllm_bench.write(tmp_path, vllm_bench.result(), vllm_bench.result(request_rate=4.0))
    capture = read([path])
    assert rows(capture, "request", "request_id") == [f"#{r}.{n}" for r in (0, 1) for n in range(3)]
    settings = dict(rows(capture, "setting", "name", "value"))
    assert (settings["0.request_rate"], settings["1.request_rate"]) == ("inf", "4.0")
    labels = set(rows(capture, "summary", "labels"))
    assert labels == {'{"run": "0"}', '{"run": "1"}'}


def test_old_results_without_start_times_state_lengths(tmp_path: Path) -> None:
    lists = {
        name: vllm_bench.LISTS[name] for name in ("input_lens", "output_lens", "ttfts", "itls")
    }
    result = {**vllm_bench.SETTINGS, **vllm_bench.TOTALS, **lists}
    capture = read([vllm_bench.write(tmp_path, result)])
    assert rows(capture, "request", "arrival_ns", "stated_ttft_ns", "stated_decode_ns") == [
        (None, 100_000_000, 30_000_001),
        (None, 50_000_000, 0),
        (None, None, None),
    ]
    assert capture.num_rows("token") == 0


def test_what_stands_before_the_damage_is_read(tmp_path: Path) -> None:
    path = vllm_bench.write(tmp_path, vllm_bench.result(), vllm_bench.result())
    text = path.read_text()
    first = text.index("\n")
    path.write_text(text[: first - 40] + text[first:])
    capture = read([path])
    assert capture.num_rows("request") == 6
    assert sum(lost(capture).values()) >= 1
    path.write_text(text[:first].replace('"errors"', '"errors'))
    assert reasons(read([path]))["damaged JSON"] == 1


@pytest.mark.parametrize(
    "value",
    ["[" * 100_000, "9" * 10_000, '{"a":' * 5_000, "1e999", '"\\ud800"', "-", '"' + "x" * 10**6],
)
def test_hostile_members_end_in_counted_losses(value: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    whole = json.dumps(vllm_bench.result())
    for text in (whole[:-1] + f', "more": {value}}}', whole.replace("0.0625", value)):
        path.write_text(text)
        try:
            capture = read([path])
        except TokenpathError:
            continue
        assert capture.num_rows("source") == 1


def test_members_go_down_only_where_they_are_told() -> None:
    losses = Losses()
    text = '\ufeff{"a": [1, {"b": 2}], "c": {"d": []}} {"a": []}\n{bad}\n{"z": 1}'
    found = list(Members(text, [(), ("a",)], losses))
    assert [path for path, value in found if value is BEGIN] == [(), ("a",), (), ("a",), (), ()]
    assert [(path, value) for path, value in found if value is not BEGIN] == [
        (("a", "*"), 1),
        (("a", "*"), {"b": 2}),
        (("c",), {"d": []}),
        (("z",), 1),
    ]
    assert [loss.reason for loss in losses.rows()] == ["damaged JSON"]


def test_private_settings_are_counted_and_not_kept(tmp_path: Path) -> None:
    private = {
        "api_key": "k",
        "extra_headers": {"x": "y"},
        "target_url": "http://a",
        "hostname": "h",
    }
    capture = read([vllm_bench.write(tmp_path, vllm_bench.result(**private, note="kept"))])
    names = rows(capture, "setting", "name")
    assert not set(private) & set(names)
    assert "note" in names
    assert reasons(capture)["private setting"] == len(private)
    assert "private setting" not in lost(capture)


def test_statistics_have_one_name() -> None:
    names = ("median", "avg", "p999", "p001", "p99", "p0.1", "std_dev", "mode", "px", "p1.2.3")
    assert [statistic(name) for name in names] == [
        *("p50", "mean", "p99.9", "p0.1", "p99", "p0.1", "std", None, None, None),
    ]


def test_the_page_lists_the_canonical_names() -> None:
    page = page_rows(read_page("docs/formats/load-generators.md"))
    listed = {row[0].strip("`"): (row[1], row[2]) for row in page if re.match(r"`\w+\.", row[0])}
    assert listed == METRICS


def test_the_notes_on_the_page_are_those_that_are_given() -> None:
    traps = read_page("docs/formats/load-generators.md").split("## Traps")[1]
    given_notes = set().union(*(expected for _, expected in NOTES)) | {"time-zone-assumed"}
    assert set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", traps)) == given_notes
