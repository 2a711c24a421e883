"""Tables of metrics and stated figures: each value belongs to one series, whatever the labels and values."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from explain.serving import SOURCE
from tokenpath.capture.capture import Capture, build_table
from tokenpath.explain.metrics_table import metrics_table, stated_answer


def sample(value: float | None, kind: str = "gauge", at: int = 1, **labels: str) -> dict[str, Any]:
    return {
        "source_id": 0,
        "at_ns": at,
        "name": "queue.requests",
        "source_name": "x",
        "kind": kind,
        "labels": json.dumps(labels, sort_keys=True),
        "value": value,
        "unit": "s",
    }


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    """(value, labels) of each row of the table."""
    tables = {"source": [SOURCE], "counter_sample": rows}
    found = metrics_table(Capture({name: table(name, part) for name, part in tables.items()}))
    assert found is not None
    return [(row[1], row[3]) for row in found.rows]


def table(name: str, rows: list[dict[str, Any]]) -> Any:
    return build_table(name, {key: [row[key] for row in rows] for key in rows[0]})


def test_ranks_of_an_engine_are_series_of_their_own() -> None:
    rows = [sample(3, engine="0", model_name="m"), sample(8, engine="1", model_name="m")]
    assert shown(rows) == [("3", "engine=0"), ("8", "engine=1")]
    assert shown(rows[:1]) == [("3", None)]


def test_histograms_of_ranks_are_not_mixed() -> None:
    rows = [
        sample(count, "bucket", engine=engine, le=le)
        for engine, counts in (("0", (5, 5)), ("1", (0, 7)))
        for le, count in zip(("1", "+Inf"), counts, strict=True)
    ]
    assert shown(rows) == [
        ("p50 0..1, p99 0..1 (5 observations)", "engine=0"),
        ("p50 1..inf, p99 1..inf (7 observations)", "engine=1"),
    ]


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e300, -0.0, 2.0**62])
def test_any_value_can_be_shown(value: float) -> None:
    assert len(shown([sample(value)])) == 1


@pytest.mark.parametrize("le", ["", "abc", "nan", "+Inf", "1e999"])
def test_any_bound_can_be_shown(le: str) -> None:
    shown([sample(1, "bucket", le=le), sample(2, "bucket", le="+Inf"), sample(3, "sum")])


@pytest.mark.parametrize("labels", ["[1]", "3", "null", "{", '{"le": 3}'])
def test_labels_of_another_form(labels: str) -> None:
    shown([sample(1, "bucket") | {"labels": labels}, sample(2)])


def test_the_first_of_several_sources_is_the_one_that_is_quoted() -> None:
    rows = [
        {
            "source_id": source,
            "name": "latency.ttft",
            "source_name": "t",
            "statistic": "p50",
            "value": value,
            "unit": "s",
        }
        for source, value in ((0, 1.5), (1, 9.0))
    ]
    capture = Capture({"source": table("source", [SOURCE] * 2), "summary": table("summary", rows)})
    (sentence,) = stated_answer(capture)
    assert "p50 1.5 s" in sentence
    assert "first of 2 sources" in sentence
