"""What is drawn of requests never reaches from one clock to another."""

from __future__ import annotations

import numpy as np
import pytest

from explain.test_latency_sources import EPOCH, MS, capture, seen, share, step
from tokenpath.api.annotate_requests import annotate_requests
from tokenpath.capture.capture import build_table


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_queue_is_drawn_on_the_clock_of_the_steps(order: tuple[int, ...]) -> None:
    """Two sources know when the request was queued, one of them on a clock of its own."""
    rows = [seen("engine", 0, queued=5), seen("engine", 1, queued=EPOCH - 7 * MS)]
    found = capture(
        [rows[at] for at in order], [step(EPOCH, EPOCH + MS, 1)], [share(0)], ("monotonic", "epoch")
    )
    (queue,) = [one for one in annotate_requests(found).annotations if one.name == "queue"]
    assert (queue.start_ns, queue.end_ns) == (EPOCH - 7 * MS, EPOCH)


def test_several_choices_are_one_slice_of_a_step() -> None:
    found = capture([seen("engine", queued=0)], [step(10, 20)], [share(0), share(0, 3)])
    (drawn,) = [one for one in annotate_requests(found).annotations if one.name == "decode"]
    assert drawn.args == {"num_tokens": 4}


def test_a_device_on_another_clock_has_no_arrow() -> None:
    found = capture(
        [seen("engine", queued=0)],
        [
            step(10, 20),
            step(EPOCH, EPOCH + 20, 1)
            | {"observer": "profiler", "scheduler_step_id": 0, "confidence": 1.0},
        ],
        [share(0)],
        ("monotonic", "epoch"),
    )
    kernel = {
        "source_id": [1],
        "device_id": [0],
        "stream_id": [1],
        "start_ns": [EPOCH + 5],
        "end_ns": [EPOCH + 9],
        "name": ["k"],
        "kind": ["compute"],
        "family": ["k"],
        "step_id": np.array([1], np.int32),
    }
    device = build_table("device", {"source_id": [1], "index": [0]})
    found = found.replace({"kernel": build_table("kernel", kernel), "device": device})
    drawn = annotate_requests(found)
    assert [arrow for arrow in drawn.arrows if arrow.name == "ran on"] == []
