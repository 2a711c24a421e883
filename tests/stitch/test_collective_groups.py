"""Collectives of unknown group are not matched where one host's own clock shows that they were apart."""

from __future__ import annotations

import pytest

from stitch.test_collectives import capture_of
from tokenpath.stitch.collectives import match_collectives

PERIOD, LENGTH = 10**9, 10**6


def parts(group: str | None, apart: int) -> list[dict[str, object]]:
    """Two ranks in each of two groups, the second group later by `apart`."""
    return [
        {
            "source_id": rank,
            "op": "allreduce",
            "group": group and f"{group}{rank // 2}",
            "start_ns": 10**15 + number * PERIOD + rank * 10 + rank // 2 * apart,
            "end_ns": 10**15 + number * PERIOD + LENGTH + rank // 2 * apart,
        }
        for number in range(20)
        for rank in range(4)
    ]


@pytest.mark.parametrize(
    ("group", "apart", "hosts", "num"),
    [
        (None, PERIOD // 2, ["a"] * 4, 0),
        (None, 0, ["a"] * 4, 20),
        ("tp", PERIOD // 2, ["a"] * 4, 40),
        (None, PERIOD // 2, ["a", "a", "b", "b"], 20),
    ],
)
def test_groups_of_one_host(
    group: str | None, apart: int, hosts: list[str | None], num: int
) -> None:
    found = match_collectives(capture_of(parts(group, apart), hosts))
    matches = {match for match in found["collective"]["match"].to_pylist() if match is not None}
    assert matches == set(range(num))
