"""The scoreboard's arithmetic: medians, verdicts, what is not answered, going on where it stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.scoreboard.board import (
    OURS,
    Board,
    Key,
    Score,
    append,
    compare,
    interval,
    load,
    render,
    table,
)

BOARD = Board("b", "A board", ("x_ms",), {"x_ms": 0.05})


def scores(system: str, errors: list[float | None], column: str = "A") -> list[Score]:
    return [
        Score(
            Key("b", system, column, f"run{n}", "x_ms"),
            100.0,
            None if error is None else 100.0 * (1 + error),
        )
        for n, error in enumerate(errors)
    ]


def test_a_line_is_the_median_over_runs_and_counts_what_was_not_answered() -> None:
    lines = table(BOARD, scores(OURS, [0.01, -0.02, 0.03, None]))
    assert [line.median_abs for line in lines] == pytest.approx([0.02])
    assert (lines[0].num_answered, lines[0].num_runs) == (3, 4)
    assert lines[0].bias == pytest.approx(0.01)


def test_a_verdict_needs_an_interval_away_from_zero() -> None:
    ours = {f"run{n}": s for n, s in enumerate(scores(OURS, [0.01] * 20))}
    worse = {f"run{n}": s for n, s in enumerate(scores("r", [0.2 + 0.001 * n for n in range(20)]))}
    assert compare(ours, worse).startswith("better")
    assert compare(worse, ours).startswith("worse")
    mixed = {f"run{n}": s for n, s in enumerate(scores("r", [0.0, 0.02] * 10))}
    assert compare(ours, mixed).startswith("no difference")
    assert compare(ours, {}) == "0 runs in common"


def test_the_table_shows_targets_for_ours_only() -> None:
    page = render(BOARD, table(BOARD, scores(OURS, [0.01] * 5) + scores("rival", [0.1] * 5)))
    ours, rival = (
        line for line in page.splitlines() if line.startswith(("| tokenpath", "| rival"))
    )
    assert "| 5 |" in ours
    assert "| - |" in rival
    assert "better" in rival


def test_a_job_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    made = scores(OURS, [0.01, None])
    assert list(append(path, iter(made))) == made
    again = load(path)
    assert list(again.values()) == made
    changed = scores(OURS, [0.5])
    list(append(path, iter(changed)))
    assert load(path)[changed[0].key].relative == pytest.approx(0.5)


def test_runs_that_only_rivals_were_asked_count_as_not_answered_yet() -> None:
    lines = table(BOARD, scores(OURS, [0.01] * 3) + scores("rival", [0.1] * 5))
    assert [(line.num_answered, line.num_runs) for line in lines] == [(3, 5), (5, 5)]


def test_another_measurement_of_a_run_is_not_paired() -> None:
    ours = {f"run{n}": s for n, s in enumerate(scores(OURS, [0.01] * 4))}
    theirs = {
        run: Score(score.key, 100.0 if run == "run0" else 120.0, score.predicted)
        for run, score in ours.items()
    }
    assert compare(ours, theirs) == "1 runs in common"


def test_runs_of_a_cell_are_resampled_together() -> None:
    values = np.array([0.01] * 10 + [0.1] * 10)
    alone = interval(values)
    assert interval(values, [str(n) for n in range(20)]) == alone
    # Ten copies of two runs say what two runs say: anything between them.
    assert interval(values, ["a"] * 10 + ["b"] * 10) == pytest.approx((0.01, 0.1))
    odd = interval(np.array([1.0, 2.0, 3.0]))
    assert odd == (1.0, 3.0)
