"""The board counts what it says, and a place draws the same scenario whoever asks."""

from __future__ import annotations

from collections import Counter

import pytest

from tokenpath.core.errors import UsageError
from tokenpath.lab.board import Rate, confusion, summarise, to_json
from tokenpath.lab.draw import DECOY_SHARE, NONE_SHARE, TWO_SHARE, draw
from tokenpath.lab.judge import Judgement
from tokenpath.lab.truth import load_fault_kinds


def _one(
    *kinds: str,
    top1: bool | None = True,
    lost: float = 0.1,
    first: str = "gc-pause",
    error: float | None = 0.1,
    alarm: bool | None = None,
    level: int = 2,
) -> Judgement:
    right = top1 if kinds else None
    return Judgement(
        "s", 1, "device", kinds, (level,) * len(kinds), lost if kinds else 0.0, (first,),
        right, right, None, error if kinds else None, alarm, None,
    )  # fmt: skip


def test_small_faults_are_left_out_of_the_headline_and_kept_by_magnitude() -> None:
    judgements = [
        _one("host-gc"), _one("host-gc", top1=False),
        _one("host-gc", top1=False, lost=0.001, level=0),
    ]  # fmt: skip
    assert (summarise(judgements).top1.num_right, summarise(judgements).top1.num_all) == (1, 2)
    levels = to_json(judgements)["magnitudes"]
    assert isinstance(levels, dict)
    assert levels["host-gc"]["0"]["top1"]["num_all"] == 1


def test_false_alarms_and_losses() -> None:
    judgements = [_one(alarm=False), _one(alarm=True), _one("host-gc", error=0.3), _one("host-gc")]
    board = summarise(judgements)
    assert (board.no_false_alarm.num_right, board.no_false_alarm.num_all) == (1, 2)
    assert board.median_loss_error == pytest.approx(0.2)


def test_confusion_names_the_first_code() -> None:
    judgements = [_one("host-gc"), _one("host-gc", first="launch-bound"), _one(alarm=False)]
    assert confusion(judgements) == {
        "host-gc": {"gc-pause": 1, "launch-bound": 1},
        "none": {"gc-pause": 1},
    }


def test_the_interval_is_wilsons() -> None:
    """Ten of ten: 1 / (1 + z^2 / 10)."""
    interval = Rate(10, 10).interval
    assert interval is not None
    assert interval[0] == pytest.approx(1 / (1 + 1.959964**2 / 10))
    assert interval[1] == pytest.approx(1.0)
    assert Rate(0, 0).share is None


def test_a_place_draws_the_same_whoever_asks_and_kinds_take_turns() -> None:
    specs = [draw(7, place) for place in range(960)]
    assert specs[100] == draw(7, 100)
    assert specs[100] != draw(8, 100)
    num_none = sum(not spec.kinds for spec in specs) / len(specs)
    num_two = sum(len(spec.kinds) == 2 for spec in specs) / len(specs)
    num_decoy = sum(spec.has_decoy for spec in specs) / len(specs)
    assert num_none == pytest.approx(NONE_SHARE, abs=0.03)
    assert num_two == pytest.approx(TWO_SHARE, abs=0.03)
    assert num_decoy == pytest.approx(DECOY_SHARE, abs=0.05)
    seen = Counter(kind for spec in specs for kind in spec.kinds)
    assert set(seen) == set(load_fault_kinds())
    kinds = load_fault_kinds()
    assert all(kinds[kind].world == spec.world for spec in specs for kind in spec.kinds)


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no fault is called 'gc'"):
        draw(1, 0, kind="gc")
