"""Settings by dotted name: typed, and errors that help."""

from __future__ import annotations

import pytest

from tokenpath.core.errors import UsageError
from tokenpath.core.hardware import load_catalogue
from tokenpath.simulate.settings import Settings


def test_values_are_typed_by_name() -> None:
    found = Settings().with_values(
        [
            "router.policy=kv-aware",
            "router.keeps_sessions=true",
            "router.capacity_tokens=1e6",
            "transfer.latency_ns=20us",
            "speculation.num_drafts=3",
            "speculation.acceptance=0.8,0.6",
            "speculation.draft_pass_ns=1.5ms",
            "cold_start.weight_bytes=1.4e11",
            "transfer.decode_queue_limit=none",
        ]
    )
    assert found.router.policy == "kv-aware"
    assert found.router.keeps_sessions is True
    assert found.router.capacity_tokens == 1_000_000
    assert found.transfer.latency_ns == 20_000
    assert found.speculation.acceptance == (0.8, 0.6)
    assert found.speculation.draft_pass_ns == 1.5e6
    assert found.cold_start.weight_bytes == 1.4e11
    assert found.transfer.decode_queue_limit is None


def test_what_differs_from_the_default_can_be_written_and_read_again() -> None:
    pairs = ["router.policy=least-load", "run.seed=7", "speculation.lengths=1.8,2.4"]
    changed = Settings().with_values(pairs)
    assert [f"{name}={text}" for name, text in changed.values().items()] == [
        "router.policy=least-load",
        "speculation.lengths=1.8,2.4",
        "run.seed=7",
    ]
    assert Settings().values() == {}


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("router.polcy=x", "nearest is router.policy"),
        ("routr.policy=x", "nearest is router.policy"),
        ("seed=1", "nearest is run.seed"),
        ("nonsense=1", "sections client, cold_start, router"),
        ("router.policy", "section.name=value"),
        ("run.seed=1.5", "a whole number"),
        ("run.seed=many", "a whole number"),
        ("client.send_ns=5 miles", "a duration such as"),
        ("router.keeps_sessions=maybe", "true or false"),
        ("tiers.host_bytes=inf", "a number"),
        ("transfer.bytes_per_s=fast", "a number, or none"),
    ],
)
def test_a_wrong_name_or_value_says_what_is_allowed(pair: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        Settings().with_values([pair])
    assert words in str(caught.value)


def test_parts_are_made_of_settings() -> None:
    plain = Settings()
    assert plain.make_speculation() is None
    assert plain.make_tiers(100.0) is None
    hardware = load_catalogue()["h100-sxm5-80gb"]
    given = plain.with_values(
        [
            "tiers.disk_bytes=1e12",
            "speculation.num_drafts=2",
            "speculation.lengths=1.8,2.4,2.8",
            "speculation.is_sampled=false",
            "transfer.link=scale-up",
            "client.send_ns=1ms",
            "client.deliver_ns=2ms",
        ]
    )
    tiers, speculation = given.make_tiers(100.0), given.make_speculation()
    assert tiers is not None
    assert [tier.name for tier in tiers.tiers] == ["disk"]
    assert speculation is not None
    assert speculation.acceptance.mean_length == pytest.approx(2.4)
    assert speculation.seed is None
    transfer = given.make_transfer(float, hardware)
    assert transfer.link.bytes_per_s == hardware.scale_up_bytes_per_s
    measured = given.with_values(["transfer.bytes_per_s=1e9"]).make_transfer(float, hardware)
    assert measured.link.bytes_per_s == 1e9
    assert given.round_trip_ns == 3_000_000


def test_drafts_need_one_kind_of_acceptance() -> None:
    for pairs in (
        ["speculation.num_drafts=2"],
        [
            "speculation.num_drafts=2",
            "speculation.acceptance=0.5",
            "speculation.lengths=1.5",
        ],
    ):
        with pytest.raises(UsageError, match="one of them"):
            Settings().with_values(pairs).make_speculation()
