"""JAX/XLA profiles: what becomes of planes and lines, clocks, damage, and the compiled loops."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.compare import reasons, rows
from ingest.protobuf import field as put
from ingest.samples.xla import space
from ingest.xplanes import XPlane, environment, write_space, write_trace
from tokenpath.api import load
from tokenpath.capture.validate import validate
from tokenpath.core.errors import DamagedInput, TokenpathError
from tokenpath.ingest import read
from tokenpath.ingest.xla import scan, source

START = 1_700_000_000_000_000_000


def tpu(name: str = "/device:TPU:0", **stats: int | float | str) -> XPlane:
    return XPlane(name, stats={"device_type_string": "TPU v5", **stats})


def test_an_instruction_around_others_is_a_range(tmp_path: Path) -> None:
    """A `while` contains what its body runs: counted twice it would double the busy time."""
    plane = tpu()
    loop = plane.event("%while.1 = (s32[]) while(...)", 0, 10_000, hlo_category="while")
    one = plane.event("%fusion.2 = f32[8] fusion(...)", 0, 4_000)
    two = plane.event("%all-reduce.3", 5_000, 5_000, hlo_category="all-reduce")
    instant = plane.event("%copy-start.4", 1_000, 0, hlo_category="copy-start")
    plane.line("XLA Ops", loop, one, instant, two)
    capture = read([write_space(tmp_path / "a.xplane.pb", plane)])
    assert rows(capture, "kernel", "name", "kind", "family") == [
        ("fusion.2", "compute", "other"),
        ("copy-start.4", "memcpy", "memcpy"),
        ("all-reduce.3", "communication", "communication"),
    ]
    assert rows(capture, "range", "name", "domain") == [("while.1", "HLO control flow")]
    assert rows(capture, "collective", "op", "kernel_id") == [("allreduce", 2)]


def test_lines_that_repeat_others_are_counted_and_left_out(tmp_path: Path) -> None:
    plane = tpu()
    op = plane.event("add", 0, 4_000)
    for name in ("XLA Ops", "XLA Modules", "Async XLA Ops", "Framework Ops", "Source code"):
        plane.line(name, op)
    capture = read([write_space(tmp_path / "a.xplane.pb", plane)])
    assert capture.num_rows("kernel") == 1
    assert rows(capture, "range", "domain") == ["XLA Modules", "Async XLA Ops"]
    assert reasons(capture) == {"repeats other timelines": 2}


def test_sparse_cores_are_devices_of_their_own(tmp_path: Path) -> None:
    planes = [tpu(), tpu("/device:TPU:0 SparseCore 1")]
    for plane in planes:
        plane.line(
            "XLA Ops" if plane is planes[0] else "Sparse Core Ops", plane.event("a", 0, 1_000)
        )
    capture = read([write_space(tmp_path / "a.xplane.pb", *planes)])
    assert rows(capture, "device", "index", "name") == [(0, "TPU v5"), (0, "TPU v5 SparseCore 1")]
    assert rows(capture, "kernel", "device_id") == [0, 1]


def test_marked_steps_count_where_devices_have_none(tmp_path: Path) -> None:
    host = XPlane("/host:CPU")
    host.line("python", host.event("train", 1_000, 5_000, step_num=7))
    (tmp_path / "a").mkdir()
    capture = read([write_space(tmp_path / "a" / "a.xplane.pb", host)])
    assert rows(capture, "step", "name", "number", "start_ns", "end_ns") == [("train 7", 7, 1, 6)]
    assert rows(capture, "range", "name", "side") == [("train", "host")]
    device = tpu()
    device.line("Steps", device.event("7", 2_000, 3_000, group_id=1))
    capture = read([write_space(tmp_path / "b.xplane.pb", host, device)])
    assert rows(capture, "step", "name", "start_ns") == [("7", 2)]


def test_steps_of_an_engine_are_found_in_host_marks(tmp_path: Path) -> None:
    host = XPlane("/host:CPU")
    host.line("worker", host.event("execute_context_0(0)_generation_32(32)", 0, 9_000))
    capture = load([write_space(tmp_path / "a.xplane.pb", host)])
    assert rows(capture, "step", "engine", "phase", "num_decode_tokens") == [("vllm", "decode", 32)]


def test_clocks(tmp_path: Path) -> None:
    """Relative stamps count from the start of the profile where the file says it; absolute ones stay."""
    for name, stamp, planes, expected in (
        ("a", 5, [environment(START)], (START + 5, "epoch")),
        ("b", 5, [], (5, "monotonic")),
        ("c", START, [], (START, "epoch")),
        ("d", START, [environment(START - 7)], (START, "epoch")),
    ):
        host = XPlane("/host:CPU")
        host.line("t", host.event("x", 0, 1_000), timestamp_ns=stamp)
        capture = read([write_space(tmp_path / f"{name}.xplane.pb", host, *planes)])
        assert (*rows(capture, "op", "start_ns"), *rows(capture, "source", "clock")) == expected


def test_times_are_cut_to_nanoseconds_and_neighbours_stay_neighbours(tmp_path: Path) -> None:
    plane = tpu()
    events = [
        plane.event("a", 999, 1_002),
        plane.event("a", 2_001, 998),
        plane.event("a", 2_999, 1),
    ]
    capture = read([write_space(tmp_path / "a.xplane.pb", plane.line("XLA Ops", *events))])
    assert rows(capture, "kernel", "start_ns", "end_ns") == [(0, 2), (2, 2), (2, 3)]
    assert reasons(capture) == {"cut below a nanosecond": 3}
    assert rows(capture, "source", "num_skipped") == [0]


def test_impossible_times_are_counted(tmp_path: Path) -> None:
    plane = tpu()
    good = plane.event("a", 0, 1_000)
    negative = plane.event("a", 0, -5_000)
    plane.line("XLA Ops", good, negative).line("XLA Ops", good, timestamp_ns=2**63 - 1)
    capture = read([write_space(tmp_path / "a.xplane.pb", plane)])
    assert capture.num_rows("kernel") == 1
    assert reasons(capture) == {"impossible time": 2}
    # As far away as picoseconds reach: three months.
    far = tpu()
    far.line("XLA Ops", far.event("a", 2**63 - 1, 2**63 - 1))
    assert read([write_space(tmp_path / "b.xplane.pb", far)]).num_rows("kernel") == 1


def test_what_has_no_name_is_counted(tmp_path: Path) -> None:
    plane = tpu()
    plane.line("XLA Ops", plane.event("a", 0, 1_000), put(1, 99) + put(3, 5))
    capture = read([write_space(tmp_path / "a.xplane.pb", plane)])
    assert (capture.num_rows("kernel"), reasons(capture)) == (1, {"event without a name": 1})


def test_the_profilers_complaints_are_settings(tmp_path: Path) -> None:
    path = write_space(tmp_path / "a.xplane.pb", tpu(), errors=("buffer full", "again"))
    settings_ = dict(rows(read([path]), "setting", "name", "value"))
    assert (settings_["profiler.error.0"], settings_["profiler.error.1"]) == (
        "buffer full",
        "again",
    )


def test_a_jump_of_the_clock_is_noted(tmp_path: Path) -> None:
    plane = tpu()
    events = [plane.event("a", 0, 5_000_000, device_duration_ps=3_000_000)]
    events.append(plane.event("a", 9_000_000, 5_000_000, device_duration_ps=5_000_078))
    capture = read([write_space(tmp_path / "a.xplane.pb", plane.line("XLA Ops", *events))])
    ((code, sentence),) = rows(capture, "source_note", "code", "sentence")
    assert code == "xla-clock-jumps"
    assert sentence.startswith("1 of 2 device events")
    assert "2.00 us in all" in sentence


def test_a_json_trace_of_the_size_of_the_limit_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_MAX_JSON_EVENTS", 3)
    path = write_trace(tmp_path / "t.json", {"/host:CPU": {"t": [{"name": "x", "ts": 1}]}})
    assert rows(read([path]), "source_note", "code") == ["xla-json-event-limit"]


def test_names_with_bytes_that_are_no_text(tmp_path: Path) -> None:
    """Of processes, threads, events and phases."""
    bad = "\ud800x"
    event = {"name": bad, "ts": 1, "args": {"tf_op": bad, "long_name": bad}}
    processes = {bad: {bad: [event, {**event, "ph": bad}]}, "/device:GPU:0": {"Stream #1": [event]}}
    capture = read([write_trace(tmp_path / "t.json", processes)])
    assert rows(capture, "thread", "name") == rows(capture, "op", "name") == ["?x"]
    assert rows(capture, "kernel", "name") == ["?x"]
    assert reasons(capture)["other phase"] == 1


def test_a_cut_file_gives_what_is_whole(tmp_path: Path) -> None:
    path = write_space(tmp_path / "a.xplane.pb", tpu().line("XLA Ops"), XPlane("/host:CPU"))
    whole = path.read_bytes()
    first = tpu()
    first.line("XLA Ops", first.event("a", 0, 1_000))
    path.write_bytes(put(1, first.encode()) + whole[:20])
    capture = read([path])
    assert (capture.num_rows("kernel"), reasons(capture)) == (1, {"truncated": 1})


def test_a_converted_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = space(tmp_path)
    path.write_bytes(path.read_bytes().decode("utf-8", "replace").encode() + b"\xef\xbf\xbd" * 9)
    with pytest.raises(DamagedInput, match="U\\+FFFD"):
        read([path])


def test_no_plane_is_no_profile(tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(b"\x0a\x05\x0b\x0b\x0b\x0b\x0b")
    with pytest.raises(DamagedInput, match="no plane"):
        read([path])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_damage_gives_a_capture_or_a_reason(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = space(tmp_path_factory.mktemp("x"))
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(bytes(raw))
    with contextlib.suppress(TokenpathError):
        validate(read([path]))


def test_compiled_loops_see_what_plain_ones_see() -> None:
    """On sound and on damaged timelines."""
    plane = tpu()
    events = [
        plane.event(
            "a", -5 * number, 2**62 + number, big=2**63 - 1, low=-7, real=1.5, text="x" * number
        )
        for number in range(40)
    ]
    plane.line("XLA Ops", *events)
    wanted = np.array([1, 3, 4], np.int64)
    random = np.random.default_rng(5)
    for number in range(30):
        line = np.frombuffer(plane.lines[0], np.uint8).copy()
        if number:
            line[random.integers(0, len(line), number // 4)] = random.integers(0, 256)
        plain = scan.scan_line(line, 0, len(line), wanted, 0)
        compiled = scan.scan_line(line, 0, len(line), wanted, 2**40)
        assert plain.damaged_at == compiled.damaged_at
        for name in ("metadata_id", "offset_ps", "duration_ps", "kinds", "values", "places"):
            np.testing.assert_array_equal(getattr(plain, name), getattr(compiled, name), name)
        assert (plain.line_id, plain.base_ns, plain.name) == (
            compiled.line_id,
            compiled.base_ns,
            compiled.name,
        )
