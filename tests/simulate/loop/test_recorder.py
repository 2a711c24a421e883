"""What a run leaves: tables by detail, streamed or not, what clients saw, counters."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from small_engines import FirstCome, curve, workload

from tokenpath.api.explain import explain
from tokenpath.capture.parquet import read_capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import UsageError
from tokenpath.simulate.loop_run import simulate_workload
from tokenpath.simulate.recorder import DETAILS
from tokenpath.simulate.recorder_stream import StreamWriter
from tokenpath.simulate.recorder_tables import RunFacts, capture_of_run
from tokenpath.simulate.replica import Replica
from tokenpath.simulate.workload.workload import Workload


def _load(size: int = 60) -> Workload:
    generator = np.random.default_rng(2)
    return workload(
        np.cumsum(generator.integers(0, 300, size)),
        generator.integers(1, 40, size),
        generator.integers(1, 20, size),
    )


def _replicas() -> list[Replica]:
    return [Replica([FirstCome(4, 1000)], curve(50, 2, 1)) for _ in range(2)]


def _facts(**more: object) -> RunFacts:
    return RunFacts("test", "vllm", [1000, 1000], **more)


def test_detail_decides_which_tables_there_are() -> None:
    load = _load()
    found = {}
    for detail in DETAILS:
        rows = simulate_workload(load, _replicas(), detail=detail).rows
        capture = capture_of_run(rows, load, _facts(), tokens=detail == "token")
        validate(capture)
        found[detail] = {name for name in capture if capture.num_rows(name)}
    assert found["request"] == {"source", "step", "request", "counter_sample"}
    assert found["step"] == {*found["request"], "request_step"}
    assert found["token"] == {*found["step"], "token"}
    with pytest.raises(UsageError, match="request, step, token"):
        simulate_workload(load, _replicas(), detail="all")


@pytest.mark.parametrize("batch_rows", [1, 37, 10**6])
def test_streamed_it_is_the_same_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    monkeypatch.setattr("tokenpath.simulate.recorder.BATCH_ROWS", batch_rows)
    load = _load()
    kept = simulate_workload(load, _replicas(), detail="token").rows
    expected = capture_of_run(kept, load, _facts(), tokens=True)
    with StreamWriter(tmp_path / "run", load.num_requests) as writer:
        rows = simulate_workload(load, _replicas(), detail="token", sink=writer).rows
        assert rows.shares is None
        writer.finish(rows, load, _facts())
    found = read_capture(tmp_path / "run")
    validate(found)
    for name in expected:
        assert found[name].to_pylist() == expected[name].to_pylist(), name


def test_a_stream_that_is_broken_off_leaves_nothing(tmp_path: Path) -> None:
    load = _load()
    with StreamWriter(tmp_path / "run", load.num_requests) as writer:
        simulate_workload(load, _replicas(), detail="token", sink=writer)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(UsageError, match="not empty"):
        StreamWriter(tmp_path / "full", 1)


def test_tokens_are_numbered_in_order_of_time() -> None:
    load = _load()
    rows = simulate_workload(load, _replicas()).rows
    tokens = capture_of_run(rows, load, _facts(), tokens=True)["token"].to_pylist()
    by_request: dict[str, list[tuple[int, int]]] = {}
    for token in tokens:
        by_request.setdefault(token["request_id"], []).append((token["index"], token["at_ns"]))
    for request, seen in by_request.items():
        seen.sort()
        assert [index for index, _ in seen] == list(range(load.output_tokens[int(request)]))
        assert all(one[1] < other[1] for one, other in itertools.pairwise(seen))


def test_clients_see_what_engines_did_moved_by_the_way() -> None:
    load = _load()
    rows = simulate_workload(load, _replicas(), round_trip_ns=30).rows
    facts = _facts(send_ns=10, deliver_ns=20)
    capture = capture_of_run(rows, load, facts, tokens=False)
    validate(capture)
    table = capture["request"].to_pylist()
    engine = {row["request_id"]: row for row in table if row["observer"] == "engine"}
    client = {row["request_id"]: row for row in table if row["observer"] == "client"}
    assert set(engine) == set(client)
    for request, row in client.items():
        assert row["arrival_ns"] == engine[request]["queued_ns"] - 10
        for name in ("first_token_ns", "last_token_ns", "finished_ns"):
            assert row[name] == engine[request][name] + 20
    for funnel in explain(capture).report.request_funnels:
        parts = {row.key: row.duration_ns for row in funnel.rows}
        assert parts.get("send", 10 * 60) == 10 * 60
        assert "unresolved" not in parts


def test_counters_are_those_of_the_step_in_flight() -> None:
    load = workload([0, 0, 0, 1000], 10, 3)
    rows = simulate_workload(load, [Replica([FirstCome(2, 100)], curve(100))]).rows
    facts = RunFacts("test", "vllm", [100], sample_interval_ns=150)
    samples = capture_of_run(rows, load, facts, tokens=False)["counter_sample"].to_pylist()
    values = {(row["name"], row["at_ns"]): row["value"] for row in samples}
    assert values[("requests.running", 0)] == 2
    assert values[("requests.waiting", 150)] == 1
    assert values[("kv.usage", 150)] == pytest.approx(0.26)
    assert values[("requests.running", 450)] == 1
    assert values[("requests.running", 750)] == 0
    assert values[("kv.usage", 1050)] == pytest.approx(0.13)
    assert {row["unit"] for row in samples if row["name"] == "kv.usage"} == {"ratio"}
