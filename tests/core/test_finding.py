"""Findings and their order."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.core.finding import Evidence, Finding, Kind, Status, rank


def finding(code: str = "launch-bound", **changes: object) -> Finding:
    plain = {
        "code": code,
        "sentence": "s",
        "kind": Kind.COST,
        "value": 1.0,
        "unit": "ns",
        "duration_ns": None,
        "share": None,
        "gain_ns": None,
        "gain_method": None,
        "status": Status.MEASURED,
    }
    return Finding(**plain | changes)


def names(findings: list[Finding]) -> list[str]:
    return [one.code for one in findings]


def test_gain_comes_before_time_and_time_before_code():
    findings = [
        finding("d"),
        finding("long", duration_ns=10**18),
        finding("c", gain_ns=5, duration_ns=9),
        finding("b", gain_ns=6, duration_ns=1),
        finding("a", gain_ns=5, duration_ns=8),
        finding("e", scope="GPU 1"),
        finding("e", scope="GPU 0"),
    ]
    ranked = rank(findings)
    assert names(ranked) == ["b", "c", "a", "long", "d", "e", "e"]
    assert [one.scope for one in ranked[-2:]] == ["GPU 0", "GPU 1"]


def test_unknown_gain_ranks_like_none_and_above_a_loss():
    ranked = rank([finding("loss", gain_ns=-5), finding("zero", gain_ns=0), finding("unknown")])
    assert names(ranked) == ["unknown", "zero", "loss"]


NS = st.none() | st.integers(-(2**63), 2**63 - 1)


@given(
    st.lists(st.tuples(st.text(max_size=2), NS, NS, st.none() | st.text(max_size=2)), max_size=8),
    st.randoms(use_true_random=False),
)
def test_rank_is_a_permutation_that_depends_on_no_order(rows, random):
    findings = [
        finding(code, gain_ns=gain, duration_ns=duration, scope=scope)
        for code, gain, duration, scope in rows
    ]
    ranked = rank(findings)
    assert sorted(map(id, ranked)) == sorted(map(id, findings))
    keys = [(one.gain_ns or 0, one.duration_ns or 0) for one in ranked]
    assert keys == sorted(keys, reverse=True)
    shuffled = random.sample(findings, len(findings))

    def spell(order: list[Finding]) -> list[tuple[object, ...]]:
        # None and 0, None and "" rank alike.
        return [
            (one.gain_ns or 0, one.duration_ns or 0, one.code, one.scope or "") for one in order
        ]

    assert spell(rank(shuffled)) == spell(ranked)


def test_a_finding_cannot_be_changed_and_shares_no_details():
    one, other = finding(), finding()
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.gain_ns = 5
    assert one.details is not other.details
    assert one == other
    assert (one.evidence, one.gain_interval_ns, one.scope) == ((), None, None)
    evidence = Evidence("kernel", (3, 1), 1_934)
    assert evidence.query is None


def test_words_are_stable():
    assert [str(status) for status in Status] == ["measured", "estimated", "simulated", "synthetic"]
    assert [str(kind) for kind in Kind] == ["cost", "quality", "abstention"]
