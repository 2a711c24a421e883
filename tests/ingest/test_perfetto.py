"""Perfetto's protobuf: state of sequences, clocks, tracks, counters, damage, bombs."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from ingest.compare import lost, reasons, rows
from ingest.protobuf import field
from ingest.samples.perfetto import (
    BEGIN,
    COUNTER,
    END,
    INSTANT,
    event,
    interned,
    packet,
    process,
    snapshot,
    thread,
    track,
    write,
)
from tokenpath.capture.capture import Capture
from tokenpath.core.errors import LimitExceeded
from tokenpath.ingest import read


def read_packets(folder: Path, *packets: bytes) -> Capture:
    return read([write(folder, b"".join(packets))])


def test_interned_names_are_those_of_their_sequence(tmp_path: Path) -> None:
    capture = read_packets(
        tmp_path,
        packet(interned(1, "a"), event(INSTANT, 2, field(10, 1)), at=1, flags=1, sequence=1),
        packet(interned(1, "b"), event(INSTANT, 2, field(10, 1)), at=2, flags=1, sequence=2),
        packet(event(INSTANT, 2, field(10, 1)), at=3, sequence=1),
    )
    assert rows(capture, "range", "name") == ["a", "b", "a"]


def test_cleared_state_forgets_names_and_defaults(tmp_path: Path) -> None:
    defaults = field(59, field(11, field(11, 5)))
    capture = read_packets(
        tmp_path,
        packet(defaults, interned(1, "a"), event(INSTANT, None, field(10, 1)), at=1, flags=1),
        packet(event(INSTANT, None, field(10, 1)), at=2, flags=1),
    )
    assert rows(capture, "range", "name") == ["a", "(no name)"]
    assert rows(capture, "thread", "tid") == ["track 5", "track 0"]
    assert reasons(capture) == {"name that is not in the file": 1}


def test_a_dropped_packet_spoils_the_sequence_until_it_is_cleared(tmp_path: Path) -> None:
    dropped = field(42, 1)
    capture = read_packets(
        tmp_path,
        packet(dropped, event(INSTANT, 1, field(23, "first")), at=1, flags=1),
        packet(dropped, event(INSTANT, 1, field(23, "lost")), at=2, flags=2),
        packet(event(INSTANT, 1, field(23, "again")), at=3, flags=3),
    )
    assert rows(capture, "range", "name") == ["first", "again"]
    assert lost(capture) == {
        "packets dropped by the writer": 1,
        "packet without the state it builds on": 1,
    }


def test_clocks_follow_the_last_snapshot(tmp_path: Path) -> None:
    on_monotonic = field(58, 3)
    capture = read_packets(
        tmp_path,
        packet(snapshot(boottime=1000, monotonic=100)),
        packet(on_monotonic, event(INSTANT, 1, field(23, "a")), at=150),
        packet(snapshot(boottime=2000, monotonic=1050)),
        packet(on_monotonic, event(INSTANT, 1, field(23, "b")), at=1060),
        packet(field(58, 99), event(INSTANT, 1, field(23, "c")), at=5),
    )
    assert rows(capture, "range", "name", "start_ns") == [("a", 1050), ("b", 2010)]
    assert rows(capture, "source", "clock") == ["monotonic"]
    assert reasons(capture)["clock that no snapshot ties to the others"] == 1


def test_a_sequence_clock_counts_differences_in_its_unit(tmp_path: Path) -> None:
    clock = field(1, 64) + field(2, 10) + field(3, 1) + field(4, 1000)
    tie = field(6, field(1, clock) + field(1, field(1, 6) + field(2, 50_000)))
    on_it = field(58, 64)
    capture = read_packets(
        tmp_path,
        packet(tie),
        packet(on_it, event(INSTANT, 1, field(23, "a")), at=2),
        packet(on_it, event(INSTANT, 1, field(23, "b")), at=3),
    )
    assert rows(capture, "range", "name", "start_ns") == [("a", 52_000), ("b", 55_000)]


def test_tracks_may_be_described_after_their_events(tmp_path: Path) -> None:
    capture = read_packets(
        tmp_path,
        packet(event(INSTANT, 3, field(23, "x")), at=1),
        packet(track(1, process(42, "server"))),
        packet(track(2, thread(42, 43, "worker"), field(5, 1))),
        packet(track(3, field(5, 2), name="lane")),
        packet(event(INSTANT, 2, field(23, "y")), at=2),
    )
    assert rows(capture, "thread", "pid", "tid", "name") == [
        ("42", "track 3", "lane"),
        ("42", "43", "worker"),
    ]


def test_parents_in_a_circle_end(tmp_path: Path) -> None:
    circle = [packet(track(1, field(5, 2))), packet(track(2, field(5, 1)))]
    capture = read_packets(tmp_path, *circle, packet(event(INSTANT, 1), at=1))
    assert rows(capture, "thread", "pid", "tid") == [("", "track 1")]


def test_counters_incremental_and_beside_a_slice(tmp_path: Path) -> None:
    incremental = field(8, field(3, 2) + field(5, 1))
    capture = read_packets(
        tmp_path,
        packet(track(7, incremental, name="n")),
        packet(track(8, field(8, field(6, "W")), name="power")),
        packet(event(COUNTER, 7, field(30, 5)), at=1, flags=1),
        packet(event(COUNTER, 7, field(30, 2)), at=2),
        packet(event(BEGIN, 1, field(23, "s"), field(45, 8), field(46, 2.5)), at=3),
        packet(event(END, 1, field(31, 7), field(12, 3)), at=4),
        packet(event(COUNTER, 7), at=5),
    )
    assert rows(capture, "counter_sample", "name", "value", "unit") == [
        ("n", 5.0, "count"),
        ("n", 7.0, "count"),
        ("power", 2.5, "W"),
        ("n", 10.0, "count"),
    ]
    assert reasons(capture)["counter without a number"] == 1


def test_events_of_the_older_kind(tmp_path: Path) -> None:
    legacy = field(6, field(2, ord("X")) + field(3, 4))
    capture = read_packets(
        tmp_path,
        packet(field(44, field(1, 42) + field(2, 43) + field(5, "main"))),
        packet(event(0, None, field(23, "x"), legacy), at=1000),
        packet(event(0, None, field(6, field(2, ord("Q")))), at=1000),
    )
    assert rows(capture, "range", "name", "start_ns", "end_ns") == [("x", 1000, 5000)]
    assert rows(capture, "thread", "pid", "tid", "name") == [("42", "43", "main")]
    assert reasons(capture)["event of an unknown type"] == 1


def test_no_table_for_other_packets_but_a_count_by_kind(tmp_path: Path) -> None:
    capture = read_packets(
        tmp_path,
        packet(field(53, b""), at=1),
        packet(field(53, b""), at=2),
        packet(field(140, b""), at=3),
        packet(field(33, b"")),
    )
    assert reasons(capture) == {
        "GPU render stage event": 2,
        "packet of another kind": 1,
        "description": 1,
    }
    assert rows(capture, "source", "num_events", "num_skipped") == [(4, 4)]


def test_a_damaged_packet_costs_that_packet(tmp_path: Path) -> None:
    good = packet(event(INSTANT, 1, field(23, "x")), at=1)
    capture = read_packets(tmp_path, good, field(1, field(8, 1) + b"\x5a\xff\x01"), good)
    assert rows(capture, "range", "name") == ["x", "x"]
    assert reasons(capture) == {"malformed packet": 1}


def test_bombs_are_refused(tmp_path: Path) -> None:
    bomb = zlib.compress(field(1, b"\0" * 10_000_000))
    path = write(tmp_path, field(1, field(50, bomb)) * 3)
    with pytest.raises(LimitExceeded):
        read([path], max_bytes=20_000_000)


def test_damage_in_packed_packets_is_counted(tmp_path: Path) -> None:
    good = packet(event(INSTANT, 1, field(23, "x")), at=1)
    capture = read_packets(tmp_path, good, field(1, field(50, b"nonsense")))
    assert reasons(capture) == {"damaged packed packets": 1}
