"""The table of ranks: thousands of them in seconds, times at the ends of int64, clocks that are not one."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from explain.serving import SOURCE
from tokenpath.capture.capture import Capture, build_table
from tokenpath.explain.ranks import ranks_table
from tokenpath.stitch.clocks import host_clocks


def collectives(start: np.ndarray, clock: str = "epoch", hosts: int | None = None) -> Capture:
    """Each row of `start` is a collective, each column a rank; parts end together."""
    num, ranks = start.shape
    source = build_table(
        "source",
        {
            **{key: [value] * ranks for key, value in SOURCE.items()},
            "clock": [clock] * ranks,
            "rank": list(range(ranks)),
            "host": [None if hosts is None else f"h{rank % hosts}" for rank in range(ranks)],
        },
    )
    parts = build_table(
        "collective",
        {
            "source_id": np.tile(np.arange(ranks, dtype=np.int32), num),
            "op": pa.array(["allreduce"] * num * ranks).dictionary_encode(),
            "start_ns": start.reshape(-1),
            "end_ns": np.repeat(start.max(axis=1), ranks),
            "match": np.repeat(np.arange(num), ranks),
        },
    )
    return Capture({"source": source, "collective": parts})


def test_thousands_of_ranks() -> None:
    rng = np.random.default_rng(0)
    start = 10**6 * np.arange(400)[:, None] + rng.integers(0, 1000, (400, 2048))
    capture = collectives(start, hosts=2048)
    began = time.process_time()
    found = ranks_table(capture)
    assert time.process_time() - began < 5
    assert found is not None
    assert len(found.rows) == 2048
    waits = {row[0]: row[5] for row in found.rows}
    expected = (start.max(axis=1, keepdims=True) - start).sum(axis=0)
    assert [waits[rank] for rank in range(2048)] == expected.tolist()


def test_times_at_the_end_of_int64() -> None:
    start = np.array([[2**63 - 3, 2**63 - 2], [2**62, 2**62 + 1]])
    found = ranks_table(collectives(start, hosts=1))
    assert found is not None
    assert sorted((row[4], row[5]) for row in found.rows) == [(0, 2), (1, 0)]


def test_one_host_may_have_clocks_of_unknown_origin() -> None:
    """Files of one host whose times count from their own beginnings do not share a clock."""
    start = 10**6 * np.arange(50)[:, None] + np.array([[0, 5000]])
    capture = collectives(start, "monotonic", hosts=1)
    ends = capture["collective"]
    at = ends.schema.get_field_index("end_ns")
    capture = capture.replace(
        {
            "collective": ends.set_column(
                at, ends.schema.field(at), pa.array((start + 9000).reshape(-1))
            )
        }
    )
    assert [clock.offset_ns for clock in host_clocks(capture)] == [0, 5000]


def test_collectives_without_times() -> None:
    capture = collectives(np.array([[5, 6]]))
    table = capture["collective"]
    for name in ("start_ns", "end_ns"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.nulls(2, pa.int64()))
    found = ranks_table(capture.replace({"collective": table}))
    assert found is not None
    assert found.rows == []
