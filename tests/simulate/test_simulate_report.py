"""What a person reads of a simulated run."""

from __future__ import annotations

from tokenpath.core.report import Report, Trust
from tokenpath.export import text
from tokenpath.export.html import render as html
from tokenpath.simulate.report import answer, summary_tables
from tokenpath.simulate.summary import Summary

MS = 1e6
RUN = Summary(
    num_requests=100,
    num_finished=100,
    duration_ns=10**10,
    latency_ns={
        "ttft": {"mean": 90 * MS, "p50": 80 * MS, "p90": 200 * MS, "p99": 412 * MS},
        "tpot": {"mean": 11 * MS, "p50": 11.2 * MS, "p90": 12 * MS, "p99": 20 * MS},
    },
    requests_per_s=10.0,
    output_tokens_per_s=1280.0,
    input_tokens_per_s=5000.0,
    goodput_per_s=9.0,
    slo_share=0.9,
    mean_kv_share=0.25,
    max_kv_share=0.5,
    cached_share=None,
    num_preemptions=0,
    mean_running=12.5,
    max_queued=3,
    utilisation=0.31,
)
INTERVALS = {"p99_ttft_ns": (350 * MS, 480 * MS), "requests_per_s": (9.5, 10.5)}


def report() -> Report:
    tables = summary_tables(RUN, INTERVALS)
    return Report(
        "simulate",
        "a model",
        answer(RUN, INTERVALS),
        Trust.GOOD,
        None,
        None,
        [],
        [],
        [],
        tables=tables,
        state="simulated",
    )


def test_the_answer_leads_with_the_latency_and_its_interval() -> None:
    first, second = answer(RUN, INTERVALS)
    assert first == (
        "Half of the requests get their first token within 80.00 ms, 99 % within 412.00 ms (90 % interval "
        "350.00 ms to 480.00 ms); then a token comes every 11.20 ms at the median."
    )
    assert second.endswith("90.0 % of the requests keep every limit (9.00/s).")


def test_lead_tables_follow_the_answer_in_80_columns_without_details() -> None:
    shown = text.render(report())
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert "SIMULATED" in shown
    where = next(number for number, line in enumerate(lines) if line.startswith("TTFT"))
    assert "412.00" in lines[where]
    assert "350.00" in lines[where]
    assert any("prefix cache" in line for line in lines) is False  # unknown, so not shown
    assert shown == text.render(report(), details=True)  # shown once


def test_html_has_the_tables_as_lead() -> None:
    assert '"is_lead":true' in html(report()).replace(" ", "")


def test_without_intervals_there_are_no_columns_for_them() -> None:
    latency, load = summary_tables(RUN)
    assert [column.key for column in latency.columns] == [
        "latency", "mean_ns", "p50_ns", "p90_ns", "p99_ns",
    ]  # fmt: skip
    assert [column.key for column in load.columns] == ["figure", "value"]
