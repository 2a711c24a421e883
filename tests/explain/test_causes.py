"""Every cause of time without compute, each on a trace that can have no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import CASES, Case
from explaining import absent, report_of, rows_of

from tokenpath.explain.causes import CAUSES, HOST_NOT_READY, Group

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)


@every_case
def test_the_time_goes_to_exactly_this_cause(case: Callable[[], Case], tmp_path: Path) -> None:
    expected = case()
    report = report_of(expected.trace, tmp_path)
    assert absent(report, "idle") == expected.idle
    assert absent(report, "exposed_communication") == expected.communication
    assert absent(report, "exposed_memcpy") == expected.memcpy


@every_case
def test_the_funnel_shows_the_same_and_closes(case: Callable[[], Case], tmp_path: Path) -> None:
    expected = case()
    report = report_of(expected.trace, tmp_path)
    assert report.funnel is not None
    assert report.funnel.residuals() == {}
    rows = rows_of(report)
    assert rows["idle"] == sum(expected.idle.values())
    assert rows.get("unattributed", 0) == 0
    host = {cause.key for cause in HOST_NOT_READY}
    late = sum(duration for key, duration in expected.idle.items() if key in host)
    assert rows.get("host_not_ready", 0) == late
    for key, duration in expected.idle.items():
        assert rows[key] == duration


@every_case
def test_groups_reconcile_to_the_time_without_compute(
    case: Callable[[], Case], tmp_path: Path
) -> None:
    expected = case()
    report = report_of(expected.trace, tmp_path)
    group_of = {cause.key: cause.group.value for cause in CAUSES}
    groups = dict.fromkeys((group.value for group in Group), 0)
    for part in (expected.idle, expected.communication, expected.memcpy):
        for key, duration in part.items():
            groups[group_of[key]] += duration
    told: Any = report.facts["compute_absent"]
    assert told["groups_ns"] == groups
    assert told["total_ns"] == sum(groups.values())


def test_every_cause_that_a_gap_can_have_has_a_case() -> None:
    seen: set[str] = set()
    for case in CASES:
        expected = case()
        seen |= {*expected.idle, *expected.communication, *expected.memcpy}
    # Every gap gets a cause, so this one only stands in the funnel, with 0.
    assert seen == {cause.key for cause in CAUSES} - {"unattributed"}
