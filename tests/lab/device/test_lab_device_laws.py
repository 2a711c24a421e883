"""What holds in every run of the device world."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from tokenpath.core.errors import InputError
from tokenpath.ingest.reading import read
from tokenpath.lab import device_world
from tokenpath.lab.draw import Spec
from tokenpath.lab.machine import loop as at
from tokenpath.lab.truth import load_fault_kinds, read_truth

SPECS = {
    "serving, four ranks": Spec(13, "device", (), (), False),
    "straggler": Spec(13, "device", ("comm-straggler",), (3,), False),
    "training": Spec(8 * 7919, "device", (), (), False),
    "one rank, many incidents": Spec(3, "device", ("host-eager", "host-sync"), (2, 3), True),
}


@pytest.fixture(scope="module", params=list(SPECS))
def scenario(request: pytest.FixtureRequest) -> device_world.Scenario:
    return device_world.make(SPECS[request.param])


def _real(scenario: device_world.Scenario) -> np.ndarray:
    return np.flatnonzero(scenario.run.work_label >= 0)


def test_streams_never_overlap_themselves(scenario: device_world.Scenario) -> None:
    run, work = scenario.run, _real(scenario)
    for stream in np.unique(run.works[work, 0]):
        mine = work[run.works[work, 0] == stream]
        mine = mine[np.argsort(run.times[mine, 1], kind="stable")]
        assert (run.times[mine[1:], 1] >= run.times[mine[:-1], 2]).all()


def test_work_starts_after_its_launch_and_ends_after_its_start(
    scenario: device_world.Scenario,
) -> None:
    run, work = scenario.run, _real(scenario)
    assert (run.times[work, 1] > run.calls[run.launch[work], 0]).all()
    assert (run.times[work, 2] >= run.times[work, 1]).all()


def test_collectives_end_together_after_the_last_has_come(scenario: device_world.Scenario) -> None:
    run = scenario.run
    work = np.flatnonzero(run.works[:, 1] == at.COLLECTIVE)
    for number in np.unique(run.works[work, 5]):
        mine = work[run.works[work, 5] == number]
        assert len(mine) == run.num_ranks
        assert np.ptp(run.times[mine, 2]) <= 1_000
        assert run.times[mine, 2].min() > run.times[mine, 1].max()


def test_no_more_launches_wait_than_the_queue_holds(scenario: device_world.Scenario) -> None:
    run = scenario.run
    for rank in range(run.num_ranks):
        own = np.arange(*run.rank_works[rank])
        own = own[run.works[own, 6] == 1]
        moments = np.concatenate([run.calls[run.launch[own], 1], run.times[own, 1]])
        change = np.concatenate([np.ones(len(own)), -np.ones(len(own))])
        waiting = np.cumsum(change[np.lexsort((change, moments))])
        assert waiting.max() <= at.QUEUE_SLOTS


def test_threads_do_one_thing_at_a_time(scenario: device_world.Scenario) -> None:
    run = scenario.run
    for first, last in run.thread_rows:
        calls = run.calls[first:last]
        calls = calls[calls[:, 1] > 0]
        assert (calls[1:, 0] >= calls[:-1, 1]).all()


@pytest.mark.parametrize("seed", range(5))
def test_healthy_services_keep_the_device_busy(seed: int) -> None:
    scenario = device_world.make(Spec(seed * 7919, "device", (), (), False))
    run = scenario.run
    for rank in range(run.num_ranks):
        own = np.arange(*run.rank_works[rank])
        times = run.times[own[run.work_label[own] >= 0], 1:]
        times = times[np.argsort(times[:, 0])]
        busy_until = np.maximum.accumulate(times[:, 1])
        idle = np.maximum(0, times[1:, 0] - busy_until[:-1]).sum()
        # Launched kernel by kernel, and looked at after each step: gaps are longer than in graphs.
        bar = 0.05 if scenario.setup.program == "hf" else 0.03
        assert idle <= bar * (busy_until[-1] - times[0, 0])


def test_the_loss_is_the_difference_of_walls_of_one_seed() -> None:
    ill = device_world.make(Spec(21, "device", ("hw-throttle",), (3,), False))
    well = device_world.make(Spec(21, "device", ("hw-throttle",), (0,), False))
    assert ill.truth.faults[0].lost_ns == ill.truth.wall_ns - ill.truth.healthy_wall_ns
    assert ill.truth.healthy_wall_ns == well.truth.healthy_wall_ns
    assert ill.truth.faults[0].lost_ns > 10 * well.truth.faults[0].lost_ns >= 0


def test_a_decoy_costs_next_to_nothing() -> None:
    truths = [
        device_world.make(Spec(seed * 7919, "device", (), (), True)).truth for seed in (6, 20, 22)
    ]
    decoys = [(decoy, truth) for truth in truths for decoy in truth.decoys]
    assert decoys
    assert all(abs(decoy.lost_ns) <= 0.002 * truth.wall_ns for decoy, truth in decoys)


def test_a_seed_writes_the_same_bytes_and_reads_without_loss(tmp_path: Path) -> None:
    spec = Spec(5, "device", ("host-gc",), (2,), True)
    for name in ("one", "two"):
        device_world.write(device_world.make(spec), tmp_path / name, tmp_path / f"truth-{name}")
    first, second = (sorted((tmp_path / name).rglob("rank*")) for name in ("one", "two"))
    assert [gzip.decompress(path.read_bytes()) for path in first] == [
        gzip.decompress(path.read_bytes()) for path in second
    ]
    truths = [next((tmp_path / f"truth-{name}").iterdir()) for name in ("one", "two")]
    assert read_truth(truths[0]) == read_truth(truths[1])
    capture = read([first[0].parent])
    lost = [row for row in capture["skip"].to_pylist() if row["lost"]]
    assert lost == []
    document = json.loads(gzip.decompress(first[0].read_bytes()))
    names = {event["name"] for event in document["traceEvents"]}
    assert "cudaGraphLaunch" in names
    assert document["distributedInfo"]["rank"] == 0


@pytest.mark.parametrize("kind", ["kernel-slow", "comm-straggler", "host-gil", "bench-no-load"])
def test_files_do_not_name_the_fault(tmp_path: Path, kind: str) -> None:
    scenario = device_world.make(Spec(77, "device", (kind,), (2,), True))
    device_world.write(scenario, tmp_path / "files", tmp_path / "truth")
    text = b"".join(gzip.decompress(p.read_bytes()) for p in (tmp_path / "files").rglob("rank*"))
    text = text.lower().replace(b"default", b"")
    entry = load_fault_kinds()[kind]
    for word in (kind, *entry.codes, "fault", "decoy", "inject", "straggl", "contention"):
        assert word.encode() not in text


def test_unknown_faults_are_refused() -> None:
    with pytest.raises(InputError):
        device_world.make(Spec(1, "device", ("bench-client-bound",), (1,), False))


def test_every_kind_of_the_device_world_is_there() -> None:
    kinds = {key for key, entry in load_fault_kinds().items() if entry.world == "device"}
    assert set(device_world.FAULTS) == kinds
