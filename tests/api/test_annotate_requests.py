"""Requests drawn on a trace: slices lie apart, arrows lead from a request to the step that served it."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explain.serving import capture_of, run
from explain.test_thread import with_kernels
from tokenpath.api.annotate_requests import annotate_requests
from tokenpath.capture.capture import Capture
from tokenpath.export.perfetto import write


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_slices_lie_apart_and_arrows_meet_them(seed: int, num: int) -> None:
    engine = run(seed, num)
    drawn = annotate_requests(capture_of(engine))
    by_track = defaultdict(list)
    for annotation in drawn.annotations:
        by_track[annotation.track].append(annotation)
    for slices in by_track.values():
        slices.sort(key=lambda annotation: annotation.start_ns)
        for one, other in itertools.pairwise(slices):
            assert one.end_ns <= other.start_ns
    num_shares = sum(len(step["members"]) for step in engine.steps)
    assert len(drawn.arrows) == num_shares
    for arrow in drawn.arrows:
        assert arrow.from_ns <= arrow.to_ns
        for track, at in ((arrow.from_track, arrow.from_ns), (arrow.to_track, arrow.to_ns)):
            assert any(a.start_ns <= at <= a.end_ns for a in by_track[track])


def test_the_queue_ends_where_the_first_step_begins() -> None:
    engine = run(4)
    drawn = annotate_requests(capture_of(engine))
    for request in engine.requests:
        slices = [a for a in drawn.annotations if a.track == f"request {request.name}"]
        first = min(a.start_ns for a in slices if a.name != "queue")
        for queue in (a for a in slices if a.name == "queue"):
            assert (queue.start_ns, queue.end_ns) == (request.queued_ns, first)


def test_what_ran_on_the_device_hangs_on_its_step(tmp_path: Path) -> None:
    capture = with_kernels(capture_of(run(4)), 3)
    drawn = annotate_requests(capture)
    (arrow,) = (arrow for arrow in drawn.arrows if arrow.name == "ran on")
    (part,) = (a for a in drawn.annotations if a.track == arrow.to_track)
    assert arrow.to_ns == part.start_ns
    path = tmp_path / "t.json.gz"
    write(capture, drawn.annotations, path, drawn.arrows)
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    starts, ends = ([e for e in events if e["ph"] == phase] for phase in "sf")
    assert len(starts) == len(ends) == len(drawn.arrows)
    assert {e["id"] for e in starts} == {e["id"] for e in ends}
    assert all(e["bp"] == "e" for e in ends)


def test_only_the_slowest_are_drawn_of_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenpath.api import annotate_requests as module

    monkeypatch.setattr(module, "MAX_SHARES", 1)
    drawn = annotate_requests(capture_of(run(4)))
    tracks = {a.track for a in drawn.annotations if a.track.startswith("request ")}
    assert len(tracks) == 1


def test_nothing_to_draw() -> None:
    assert annotate_requests(Capture({})).annotations == []
