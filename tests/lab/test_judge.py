"""The judge: right code, right place, two faults, none, decoys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tokenpath.lab.judge import Claim, claims_of, judge
from tokenpath.lab.truth import Decoy, InjectedFault, Truth


def _truth(
    *faults: tuple[str, Mapping[str, str], int], decoys: Sequence[str] = (), wall_ns: int = 1000
) -> Truth:
    injected = tuple(InjectedFault(kind, 2, 1.0, place, lost) for kind, place, lost in faults)
    lost = sum(fault.lost_ns for fault in injected)
    loud = tuple(Decoy("loud", (code,), 0) for code in decoys)
    return Truth("s1", 1, "device", injected, loud, wall_ns, wall_ns - lost)


def _claim(code: str, share: float = 0.1, loss_ns: float = 100, **place: str) -> Claim:
    return Claim(code, share, loss_ns, place)


GC = ("host-gc", {"thread": "7/7"}, 100)
SLOW = ("kernel-slow", {"family": "gemm"}, 200)


def test_right_code_right_place_right_loss() -> None:
    found = judge(_truth(GC), [_claim("gc-pause", loss_ns=90, thread="7/7")])
    assert (found.top1, found.top3, found.place) == (True, True, True)
    assert found.loss_error == pytest.approx(0.1)
    assert found.is_counted
    assert found.false_alarm is None
    assert found.decoy_first is None


def test_right_code_wrong_place() -> None:
    found = judge(_truth(GC), [_claim("gc-pause", thread="8/8")])
    assert (found.top1, found.place) == (True, False)


def test_second_of_three_is_not_first() -> None:
    found = judge(_truth(GC), [_claim("launch-bound"), _claim("gc-pause", thread="7/7")])
    assert (found.top1, found.top3) == (False, True)


def test_fourth_is_not_found() -> None:
    others = [_claim("launch-bound"), _claim("no-work"), _claim("host-wait")]
    found = judge(_truth(GC), [*others, _claim("gc-pause", thread="7/7")])
    assert (found.top1, found.top3, found.loss_error, found.place) == (False, False, None, None)


def test_an_empty_report_finds_nothing() -> None:
    found = judge(_truth(GC), [])
    assert (found.top1, found.top3) == (False, False)


def test_two_faults_must_both_be_among_the_first_three() -> None:
    both = [_claim("gc-pause", thread="7/7"), _claim("slow-kernel", family="gemm")]
    assert judge(_truth(SLOW, GC), both).top3
    one = judge(_truth(SLOW, GC), both[:1])
    assert (one.top1, one.top3, one.loss_error) == (True, False, None)


def test_the_claim_with_the_right_place_counts_among_equal_codes() -> None:
    claims = [_claim("slow-kernel", family="norm"), _claim("slow-kernel", family="gemm")]
    found = judge(_truth(SLOW), claims)
    assert (found.top1, found.place) == (True, True)


def test_without_a_fault_only_large_costs_are_alarms() -> None:
    small = judge(_truth(), [_claim("launch-bound", share=0.019)])
    large = judge(_truth(), [_claim("no-work", share=0.001), _claim("launch-bound", share=0.021)])
    assert (small.false_alarm, large.false_alarm) == (False, True)
    assert small.top1 is None
    assert small.is_counted


def test_a_decoy_that_is_ranked_first() -> None:
    truth = _truth(GC, decoys=["exposed-copy"])
    assert judge(truth, [_claim("exposed-copy")]).decoy_first is True
    assert judge(truth, [_claim("gc-pause")]).decoy_first is False


def test_a_fault_below_two_per_cent_is_not_in_the_headline() -> None:
    assert not judge(_truth(("host-gc", {"thread": "7/7"}, 19)), []).is_counted


def test_claims_of_a_report_are_per_device_and_by_gain() -> None:
    finding = {
        "code": "gc-pause", "kind": "cost", "duration_ns": 400, "gain_ns": 200, "share": 0.4,
        "scope": None, "place": {"thread": "7/7"},
    }  # fmt: skip
    note = finding | {"code": "dispatcher-communication", "kind": "quality"}
    warm = finding | {"code": "warm-up-included", "kind": "quality", "gain_ns": None}
    report = {"facts": {"devices": [{}, {}]}, "findings": [finding, note, warm]}
    first, second = claims_of(report)
    assert (first.share, first.loss_ns) == (pytest.approx(0.2), 100)
    assert (second.code, second.loss_ns) == ("warm-up-included", 200)
