"""The workload of a recorded run."""

from __future__ import annotations

import numpy as np
import pytest

from explain.serving import SOURCE
from tokenpath.capture.capture import Capture, build_table
from tokenpath.core.errors import InputError
from tokenpath.simulate.workload.from_capture import workload_from_capture

MS = 1_000_000
COLUMNS = (
    "arrival_ns", "queued_ns", "finished_ns", "prompt_tokens", "output_tokens", "cached_tokens", "choice",
)  # fmt: skip


def _row(request_id: str, observer: str = "client", **values: int | None) -> dict[str, object]:
    return {"request_id": request_id, "observer": observer, **values}


def _capture(rows: list[dict[str, object]], settings: dict[str, str] | None = None) -> Capture:
    columns = {name: [row.get(name) for row in rows] for name in COLUMNS}
    request = {
        "source_id": np.zeros(len(rows), np.int32),
        "request_id": [row["request_id"] for row in rows],
        "observer": [row["observer"] for row in rows],
        **columns,
    }
    source = {name: [value] for name, value in (SOURCE | {"path": "bench.json"}).items()}
    settings = settings or {}
    return Capture(
        {
            "source": build_table("source", source),
            "request": build_table("request", request),
            "setting": build_table(
                "setting",
                {
                    "source_id": np.zeros(len(settings), np.int32),
                    "name": list(settings),
                    "value": list(settings.values()),
                },
            ),
        }
    )


def test_arrivals_of_the_client_and_lengths_of_whoever_knows_them() -> None:
    capture = _capture(
        [
            _row("b", "engine", arrival_ns=900 * MS, prompt_tokens=7, output_tokens=3),
            _row("a", "engine", arrival_ns=100 * MS, prompt_tokens=99, output_tokens=9),
            _row("a", arrival_ns=5_000 * MS, prompt_tokens=40),
            _row("b", arrival_ns=5_300 * MS, output_tokens=4),
            _row("c", "engine", arrival_ns=950 * MS, prompt_tokens=5, output_tokens=5),
        ]
    )
    read = workload_from_capture(capture)
    assert read.workload.arrival_ns.tolist() == [0, 300 * MS]
    assert read.workload.prompt_tokens.tolist() == [40, 7]
    assert read.workload.output_tokens.tolist() == [9, 4]
    assert [(skip.reason, skip.num_rows) for skip in read.skips] == [("arrival not seen", 1)]
    assert "nothing is known of shared content" in read.notes[0]
    assert read.workload.name == "bench.json"


def test_what_cannot_be_replayed_is_counted() -> None:
    capture = _capture(
        [
            _row("a", arrival_ns=3, prompt_tokens=4, output_tokens=5, choice=0),
            _row("a", arrival_ns=3, prompt_tokens=4, output_tokens=6, choice=1),
            _row("b", arrival_ns=3, output_tokens=5),
            _row("c", arrival_ns=3, prompt_tokens=4, output_tokens=0),
            _row("d", "engine", queued_ns=3, prompt_tokens=4, output_tokens=2**40),
            _row("e", prompt_tokens=4, output_tokens=5),
        ]
    )
    read = workload_from_capture(capture)
    assert read.workload.num_requests == 1
    assert read.workload.output_tokens.tolist() == [5]
    assert {skip.reason: skip.num_rows for skip in read.skips} == {
        "another answer to the same prompt": 1,
        "arrival not seen": 2,
        "prompt length unknown": 1,
        "no token emitted, or output length unknown": 1,
    }
    for rows in ([], [_row("a", arrival_ns=3)]):
        with pytest.raises(InputError, match="no request with arrival"):
            workload_from_capture(_capture(rows))


def test_cached_tokens_are_shared_with_an_earlier_request() -> None:
    capture = _capture(
        [
            _row(
                str(number),
                arrival_ns=number,
                prompt_tokens=100,
                output_tokens=1,
                cached_tokens=cached,
            )
            for number, cached in enumerate((0, 64, 0, 80))
        ]
    )
    read = workload_from_capture(capture)
    workload = read.workload
    ids = [
        workload.hashes[workload.hash_start[row] : workload.hash_start[row + 1]] for row in range(4)
    ]
    assert (ids[1][:4] == ids[0][:4]).all()
    assert ids[1][4] != ids[0][4]
    assert (ids[3][:5] == ids[2][:5]).all()
    assert not set(ids[2].tolist()) & set(ids[0].tolist())
    assert "not whose" in read.notes[0]


def _closed(concurrency: int, count: int) -> list[dict[str, object]]:
    """A closed loop: each ending sends the next."""
    rng = np.random.default_rng(0)
    free = [0] * concurrency
    rows = []
    for number in range(count):
        slot = int(np.argmin(free))
        end = free[slot] + int(rng.integers(50, 150)) * MS
        rows.append(
            _row(
                str(number),
                arrival_ns=free[slot],
                finished_ns=end,
                prompt_tokens=5,
                output_tokens=5,
            )
        )
        free[slot] = end
    return rows


def test_a_closed_loop_is_seen_or_stated() -> None:
    rows = _closed(4, 60)
    seen = workload_from_capture(_capture(rows))
    assert seen.workload.concurrency == 4
    assert (seen.workload.arrival_ns == 0).all()
    assert "looks like a closed loop" in seen.notes[0]
    stated = workload_from_capture(_capture(rows, {"max_concurrency": "4"}))
    assert stated.workload.concurrency == 4
    assert "as the source states" in stated.notes[0]
    bound = workload_from_capture(_capture(rows, {"max_concurrency": "64"}))
    assert bound.workload.concurrency is None
    forced = workload_from_capture(_capture(rows), closed_loop=False)
    assert forced.workload.concurrency is None
    assert forced.workload.arrival_ns[-1] > 0


def test_an_open_loop_is_not_taken_for_a_closed_one() -> None:
    rng = np.random.default_rng(1)
    arrival = np.cumsum(rng.exponential(100, 200)).astype(int)
    rows = [
        _row(str(n), arrival_ns=int(at) * MS, finished_ns=int(at + 300) * MS, prompt_tokens=5, output_tokens=5)
        for n, at in enumerate(arrival)
    ]  # fmt: skip
    assert workload_from_capture(_capture(rows)).workload.concurrency is None
    forced = workload_from_capture(_capture(rows), closed_loop=True)
    assert forced.workload.concurrency is not None
    assert forced.workload.concurrency > 3
