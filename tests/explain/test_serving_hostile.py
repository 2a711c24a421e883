"""The serving side of a report survives what a damaged or hostile capture may hold."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explain.serving import SOURCE, capture_of, run
from explain.test_latency_sources import capture, seen, share, step
from tokenpath.api.annotate_requests import annotate_requests
from tokenpath.capture.capture import Capture, build_table
from tokenpath.core.finding import Status
from tokenpath.explain.engine_steps import engine_steps
from tokenpath.explain.latency import latencies
from tokenpath.explain.serving import join_notes, serving
from tokenpath.explain.thread import request_ids, thread

_EXTREMES = [-(2**63) + 1, -(2**62), -1, 0, 1, 2**31, 2**62, 2**63 - 1]


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_any_values(data: st.DataObject) -> None:
    found = capture_of(run(5, 4))
    for table, names in (
        ("request", ("arrival_ns", "queued_ns", "first_token_ns", "last_token_ns")),
        ("request", ("output_tokens", "prompt_tokens")),
        ("request_step", ("num_tokens", "num_emitted")),
        ("step", ("num_prefill_tokens", "num_decode_tokens", "schedule_end_ns")),
        ("step", ("execute_start_ns", "execute_end_ns")),
    ):
        changed = found[table]
        for name in names:
            values = changed[name].to_pylist()
            for row in data.draw(st.sets(st.integers(0, len(values) - 1), max_size=3)):
                values[row] = data.draw(st.sampled_from(_EXTREMES))
            at = changed.schema.get_field_index(name)
            changed = changed.set_column(at, changed.schema.field(at), pa.array(values, pa.int64()))
        found = found.replace({table: changed})
    serving(found, Status.MEASURED)
    thread(found, request_ids(found)[0])
    annotate_requests(found)


@pytest.mark.parametrize("observer", ["", "proxy"])
def test_an_observer_that_nobody_knows(observer: str) -> None:
    rows = [seen(observer, arrival=0, first_token=10), seen("client", arrival=0, first_token=12)]
    found = serving(capture(rows, [], []), Status.MEASURED)
    assert found is not None
    assert "client" in found.answer[0]


def test_steps_at_both_ends_of_time_have_gaps_that_add_up() -> None:
    found = capture(
        [seen("engine", queued=-(2**62), first_token=2**62 - 1)],
        [step(-(2**62), -(2**62) + 5), step(2**62 - 10, 2**62 - 1)],
        [share(0, emitted=0), share(1)],
    )
    for latency in latencies(found):
        assert (latency.parts_ns.sum(axis=1) == latency.total_ns).all()
        assert (latency.parts_ns >= 0).all()


def test_notes_and_steps_of_a_long_log_take_seconds() -> None:
    num, ranks = 300_000, 64
    start = 10**6 * np.arange(num)
    texts = {"name": "s", "observer": "scheduler", "engine": "vllm"}
    columns = {
        key: pa.DictionaryArray.from_arrays(pa.array(np.zeros(num, np.int32)), pa.array([value]))
        for key, value in texts.items()
    }
    steps = build_table(
        "step",
        {
            **columns,
            "source_id": np.zeros(num, np.int32),
            "engine_id": (np.arange(num) % ranks).astype(np.int32),
            "start_ns": start,
            "end_ns": start + 10**5,
        },
    )
    kernels = build_table(
        "kernel",
        {
            "source_id": np.zeros(num, np.int32),
            "device_id": np.zeros(num, np.int32),
            "stream_id": np.zeros(num, np.int64),
            "start_ns": start,
            "end_ns": start + 10,
            "name": ["k"] * num,
            "family": ["k"] * num,
            "kind": np.where(np.arange(num) % 100 == 0, "communication", "compute").tolist(),
            "step_id": np.arange(num, dtype=np.int32),
        },
    )
    source = build_table("source", {key: [value] for key, value in SOURCE.items()})
    found = Capture({"source": source, "step": steps, "kernel": kernels})
    began = time.process_time()
    assert join_notes(found) == []
    assert len(engine_steps(found)) == ranks
    assert time.process_time() - began < 6
