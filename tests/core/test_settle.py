"""A millisecond that a closer claim explains is taken off the general one, and nothing else changes."""

from __future__ import annotations

from collections.abc import Mapping

from tokenpath.core.finding import Finding, Kind, Status, settle


def _claim(
    code: str,
    duration_ns: int,
    *,
    part_of_ns: Mapping[str, int] | None = None,
    gain_interval_ns: tuple[int, int] | None = None,
    scope: str | None = None,
) -> Finding:
    return Finding(
        code, "", Kind.COST, None, None, duration_ns, duration_ns / 1000, duration_ns, "ceiling",
        Status.MEASURED, gain_interval_ns=gain_interval_ns, scope=scope, part_of_ns=part_of_ns or {},
    )  # fmt: skip


def test_the_general_claim_keeps_what_is_left() -> None:
    general = _claim("launch-bound", 100, gain_interval_ns=(80, 120))
    closer = _claim("gc-pause", 30, part_of_ns={"launch-bound": 30})
    kept, same = settle([general, closer])
    assert same == closer
    assert (kept.duration_ns, kept.gain_ns, kept.gain_interval_ns) == (70, 70, (50, 90))
    assert kept.share is not None
    assert abs(kept.share - 0.07) < 1e-12
    assert kept.details["explained_by_others_ns"] == 30


def test_a_claim_that_is_explained_whole_goes_away() -> None:
    closer = _claim("gc-pause", 100, part_of_ns={"launch-bound": 100})
    assert settle([_claim("launch-bound", 100), closer]) == [closer]


def test_two_closer_claims_add_and_never_take_more_than_there_is() -> None:
    first = _claim("gc-pause", 60, part_of_ns={"launch-bound": 60})
    second = _claim("gil-contention", 70, part_of_ns={"launch-bound": 70})
    assert settle([_claim("launch-bound", 100), first, second]) == [first, second]


def test_scopes_of_one_code_share_in_proportion() -> None:
    closer = _claim("gc-pause", 40, part_of_ns={"launch-bound": 40})
    a, b, _ = settle(
        [_claim("launch-bound", 300, scope="a"), _claim("launch-bound", 100, scope="b"), closer]
    )
    assert (a.duration_ns, b.duration_ns) == (270, 90)


def test_without_closer_claims_nothing_changes() -> None:
    findings = [_claim("launch-bound", 100), _claim("no-work", 50)]
    assert settle(findings) == findings
