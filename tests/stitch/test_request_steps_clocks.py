"""Shares are not inferred from times that cannot be compared, nor from ones that leave int64."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explain.serving import SOURCE, capture_of
from stitch.test_request_steps import serve, shares, stripped
from tokenpath.capture.capture import Capture, build_table
from tokenpath.stitch.request_steps import with_request_steps

_TIMES = ("arrival_ns", "queued_ns", "scheduled_ns", "first_token_ns", "last_token_ns")


def on_other_clock(capture: Capture, ahead_ns: int) -> Capture:
    """The steps stay; requests come from a source of their own, whose times count from elsewhere."""
    request = capture["request"]
    for name in (*_TIMES, "source_id"):
        at = request.schema.get_field_index(name)
        values = (
            pa.array([1] * request.num_rows, pa.int32())
            if name == "source_id"
            else pc.add(request[name], ahead_ns)
        )
        request = request.set_column(at, request.schema.field(at), values)
    sources = [SOURCE | {"clock": "monotonic"}, SOURCE]
    source = build_table("source", {key: [one[key] for one in sources] for key in SOURCE})
    return capture.replace({"request": request, "source": source})


@pytest.mark.parametrize("ahead_ns", [0, 10**7, 1_700_000_000 * 10**9])
def test_requests_and_steps_on_clocks_of_unknown_origin(ahead_ns: int) -> None:
    capture = on_other_clock(stripped(capture_of(serve(3, 12))), ahead_ns)
    assert shares(with_request_steps(capture)) == {}


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_hostile_times_and_counts_do_not_crash(data: st.DataObject) -> None:
    capture = stripped(capture_of(serve(5, 6)))
    extremes = st.sampled_from([-(2**63) + 1, -(2**62), -1, 0, 1, 2**31, 2**62, 2**63 - 1])
    for table, names in (
        ("request", (*_TIMES, "output_tokens", "prompt_tokens")),
        ("step", ("num_prefill_tokens", "num_decode_tokens", "num_prefill_requests")),
    ):
        changed = capture[table]
        for name in names:
            values = changed[name].to_pylist()
            for row in data.draw(st.sets(st.integers(0, len(values) - 1), max_size=4)):
                values[row] = data.draw(extremes)
            at = changed.schema.get_field_index(name)
            changed = changed.set_column(at, changed.schema.field(at), pa.array(values, pa.int64()))
        capture = capture.replace({table: changed})
    inferred = with_request_steps(capture)
    steps = inferred.ids("request_step", "step_id")
    assert ((steps >= 0) & (steps < inferred.num_rows("step"))).all()
    assert (inferred.int64("request_step", "num_tokens") >= 0).all()


def test_a_million_shares_take_seconds() -> None:
    """Most are decode steps, which need no loop."""
    num, output, batch = 2_000, 500, 100
    num_steps = num // batch * output
    at = 10**9 + 10**7 * np.arange(num_steps + 1)
    first = np.arange(num) // batch * output
    step = {
        "source_id": np.zeros(num_steps, np.int32),
        "name": ["s"] * num_steps,
        "observer": ["scheduler"] * num_steps,
        "start_ns": at[:-1],
        "end_ns": at[1:],
        "num_prefill_requests": np.where(np.arange(num_steps) % output == 0, batch, 0),
        "num_prefill_tokens": np.where(np.arange(num_steps) % output == 0, batch * 8, 0),
        "num_decode_requests": np.where(np.arange(num_steps) % output == 0, 0, batch),
        "num_decode_tokens": np.where(np.arange(num_steps) % output == 0, 0, batch),
    }
    request = {
        "source_id": np.zeros(num, np.int32),
        "request_id": [f"r{number}" for number in range(num)],
        "observer": ["engine"] * num,
        "arrival_ns": at[first],
        "queued_ns": at[first],
        "scheduled_ns": at[first],
        "first_token_ns": at[first + 1],
        "last_token_ns": at[first + output],
        "prompt_tokens": np.full(num, 8),
        "output_tokens": np.full(num, output),
    }
    capture = Capture(
        {
            "source": build_table("source", {key: [value] for key, value in SOURCE.items()}),
            "step": build_table("step", step),
            "request": build_table("request", request),
        }
    )
    began = time.process_time()
    found = with_request_steps(capture)
    assert time.process_time() - began < 2.5
    assert found.num_rows("request_step") == num * output
    assert found.int64("request_step", "num_tokens").sum() == num * (output - 1 + 8)
