"""Cold start: parts that add up, and a replica that joins a run when it is ready."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_engines import FirstCome, curve, workload

from tokenpath.core.errors import UsageError
from tokenpath.simulate.cold_start import ColdStartSettings, cold_start
from tokenpath.simulate.loop_run import simulate_workload
from tokenpath.simulate.replica import Replica, ReplicaSettings
from tokenpath.simulate.router import LeastLoad

S = 1_000_000_000


def _lengths(**settings: object) -> dict[str, int]:
    found = cold_start(ColdStartSettings(**settings))
    return {part.name: part.end_ns - part.start_ns for part in found.parts}


def test_a_whole_start() -> None:
    found = cold_start(
        ColdStartSettings(
            provision_ns=60 * S,
            image_bytes=10e9,
            image_bytes_per_s=0.5e9,
            process_ns=8 * S,
            weight_bytes=140e9,
            storage_bytes_per_s=2e9,
            device_bytes_per_s=50e9,
            compile_ns=40 * S,
            num_graphs=35,
            graph_ns=S // 2,
            warm_up_ns=5 * S,
        )
    )
    lengths = {part.name: (part.end_ns - part.start_ns) / S for part in found.parts}
    assert lengths == {
        "provision": 60,
        "image": 20,
        "process": 8,
        "weights": 70 + 2.8,
        "compile": 40,
        "graphs": 17.5,
        "warm_up": 5,
    }
    assert found.unknown == ()
    assert found.total_ns == round(sum(lengths.values()) * S)
    assert all(one.end_ns == other.start_ns for one, other in itertools.pairwise(found.parts))


def test_what_nobody_states_is_named() -> None:
    found = cold_start(ColdStartSettings(weight_bytes=10e9, storage_bytes_per_s=1e9))
    assert [part.name for part in found.parts] == ["weights"]
    assert found.unknown == ("provision", "image", "process", "compile", "graphs", "warm_up")


@given(st.floats(1e6, 1e12), st.floats(1e7, 1e11), st.floats(1e7, 1e11), st.floats(0, 1e11))
def test_streamed_weights_take_at_least_the_slower_way_and_never_longer(
    weights: float, storage: float, device: float, chunk: float
) -> None:
    how = {
        "weight_bytes": weights,
        "storage_bytes_per_s": storage,
        "device_bytes_per_s": device,
        "stream_chunk_bytes": chunk,
    }
    streamed = _lengths(**how, is_streamed=True)["weights"]
    whole = _lengths(**how)["weights"]
    assert max(weights / storage, weights / device) * S - 1 <= streamed <= whole + 1


def test_nothing_to_load_takes_no_time() -> None:
    assert _lengths(image_bytes=0, num_graphs=0) == {"image": 0, "graphs": 0}


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="storage_bytes_per_s is 0"):
        ColdStartSettings(storage_bytes_per_s=0)
    with pytest.raises(UsageError, match="compile_ns is -1"):
        ColdStartSettings(compile_ns=-1)


def test_a_replica_that_starts_during_a_run_helps_from_then_on() -> None:
    # Each replica serves one request a us; 1.5 of them arrive.
    load = workload(np.arange(3000) * 667, 1, 1)
    start = cold_start(ColdStartSettings(warm_up_ns=500_000))
    late = ReplicaSettings(ready_ns=200_000 + start.total_ns)
    replicas = [
        Replica([FirstCome(1)], curve(1000)),
        Replica([FirstCome(1)], curve(1000), late),
    ]
    request = simulate_workload(load, replicas, LeastLoad(), stops_on_overload=False).rows.requests[
        0
    ]
    wait = request.scheduled_ns - request.queued_ns
    before = request.queued_ns < 700_000
    assert set(request.endpoint[before].tolist()) == {0}
    assert set(request.endpoint[~before].tolist()) == {0, 1}
    assert wait[before][-1] > 200_000
    assert wait[-1] < 2000
