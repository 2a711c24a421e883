"""Forward-pass metrics: workers apart, restarts, receipt, what cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.compare import difference, reasons, rows
from ingest.packing import pack
from ingest.samples.fpm import DECODE, IDLE, in_parts, metrics, positional, write
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.fpm.reader import FpmReader
from tokenpath.ingest.reader import Options


def read(folder: Path, values: list[Any]) -> Capture:
    return FpmReader().read([write(folder / "t.fpm.msgpack", values)], Options())


def test_workers_and_ranks_are_numbered_apart(tmp_path: Path) -> None:
    messages = [
        metrics(number, 0.01, DECODE, worker_id=worker, dp_rank=rank)
        for number in (7, 8)
        for worker in ("a", "b")
        for rank in (0, 1)
    ]
    capture = read(tmp_path, messages)
    assert reasons(capture) == {}
    assert set(rows(capture, "step", "start_ns")) == {0, 10_000_000}


def test_a_smaller_number_is_a_restart(tmp_path: Path) -> None:
    numbers = (5, 6, 0, 1)
    assert reasons(read(tmp_path, [metrics(n, 0.01, DECODE) for n in numbers])) == {}


def test_sglangs_first_form_is_numbered_by_the_publisher(tmp_path: Path) -> None:
    short = {
        k: v for k, v in metrics(0, 0.01, DECODE).items() if k not in ("version", "counter_id")
    }
    values = []
    for number in (3, 5):
        parts = in_parts({**short, "counter_id": number}, 10**18)
        values.append([*parts[1:3], pack(short if number == 3 else positional(short))])
    capture = read(tmp_path, values)
    assert rows(capture, "step", "number") == [3, 5]
    assert reasons(capture) == {"dropped by the publisher": 1}


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    messages = [
        metrics(1, 0.01, DECODE),
        metrics(2, 0.01, DECODE, version=2),
        metrics(2, -1.0, DECODE),
        metrics(2, float("nan"), DECODE),
        metrics(2, 0.01, [1, -5, 0.0, 0, 0, 0, 0.0]),
        metrics(2, 0.01, DECODE, scheduled_requests=4),
        3,
    ]
    capture = read(tmp_path, messages)
    assert capture.num_rows("step") == 1
    assert reasons(capture) == {"unknown version": 1, "damaged message": 5}


def test_only_heartbeats_are_a_capture_without_steps(tmp_path: Path) -> None:
    capture = read(tmp_path, [metrics(1, 0.0, IDLE)])
    assert capture.num_rows("step") == 0
    assert reasons(capture) == {"idle heartbeat": 1}


def test_nothing_readable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedInput):
        read(tmp_path, [3, 4])


FORMS = st.sampled_from(["map", "array", "parts", "late parts", "odd"])
ODD: list[Any] = [
    3,
    [1, 2],
    {"x": 1},
    metrics(3, float("nan"), DECODE),
    metrics(3, 2.0, DECODE, version=2),
]
COUNTS = st.lists(st.integers(0, 2**40), min_size=7, max_size=7)


@st.composite
def streams(draw: st.DrawFn) -> list[Any]:
    values: list[Any] = []
    for number in range(draw(st.integers(1, 12))):
        wall = draw(st.sampled_from([0.0, 0.0125, 1 / 3, 7, 1e7]))
        message = metrics(
            number + draw(st.integers(0, 3)), wall, draw(st.sampled_from([DECODE, IDLE]) | COUNTS),
            worker_id=draw(st.sampled_from(["a", "b" * 40, ""])), dp_rank=draw(st.integers(0, 2)),
        )  # fmt: skip
        form = draw(FORMS)
        if form == "odd":
            values.append(draw(st.sampled_from(ODD)))
        elif form == "array":
            values.append(positional(message))
        elif form == "map":
            values.append(message)
        else:
            parts = in_parts(message, 10**18 + number * 10**9)
            values.append(parts if form == "parts" else parts[1:])
    return values


@settings(max_examples=40)
@given(streams(), st.integers(0, 40))
def test_both_scanners_give_the_same_tables(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], cut: int
) -> None:
    path = write(tmp_path_factory.mktemp("fpm") / "t.fpm.msgpack", values)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - cut] if cut < len(data) and cut % 3 == 0 else data)
    found = []
    for scanner in ("slow", "fast"):
        try:
            found.append(FpmReader().read([path], Options(scanner=scanner)))
        except DamagedInput:
            found.append(None)
    slow, fast = found
    assert (slow is None) == (fast is None)
    if slow is not None and fast is not None:
        validate(slow)
        assert difference(slow, fast) is None


def test_the_compiled_loop_does_what_the_loop_does(tmp_path: Path) -> None:
    values: list[Any] = [metrics(n, 0.01, DECODE) for n in range(30_000)]
    path = write(tmp_path / "t.fpm.msgpack", [*values, 3, *map(positional, values)])
    slow = FpmReader().read([path], Options(scanner="slow"))
    assert difference(slow, FpmReader().read([path], Options(scanner="fast"))) is None
    assert slow.num_rows("step") == 60_000
