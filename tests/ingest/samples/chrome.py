"""Chrome trace events of no profiler that another reader knows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ingest.samples import Sample


def event(phase: str, ts: object, name: str | None = "f", **more: object) -> dict[str, Any]:
    found: dict[str, Any] = {"ph": phase, "pid": 1, "tid": 2, "ts": ts, **more}
    return found if name is None else {**found, "name": name}


EVENTS = [
    {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "server"}},
    {"ph": "M", "pid": 1, "tid": 3, "name": "thread_name", "args": {"name": "worker"}},
    event("X", 10, "outer", dur=5.5, args={"x": 1}),
    event("B", 11),
    event("B", 12, "g"),
    event("E", 13, None),
    event("E", 14),
    event("E", 14.5),
    event("B", 16, "open"),
    event("i", "17.25", "mark", s="t"),
    event("b", 20, "request", cat="http", id="0x1", tid=3),
    event("b", 21, "request", cat="http", id="0x2"),
    event("n", 22, "first token", cat="http", id="0x1"),
    event("e", 23, "request", cat="http", id="0x1"),
    event("e", 25, "request", cat="http", id="0x2"),
    event("S", 30, "old", id=7),
    event("F", 31, "old", id=7),
    event("C", 5, "queue", args={"waiting": 3, "running": 1.5, "name": "x"}),
    event("s", 10, "flow", id=1),
    event("f", 11, "flow", id=1),
    event("X", 10, "no end"),
    event("N", 10, "object"),
]


def write(folder: Path, events: Sequence[object], **more: object) -> Path:
    path = folder / "t.json"
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns", **more}))
    return path


def planted(folder: Path, secret: str) -> Path:
    names = [
        {"ph": "M", "pid": secret, "name": "process_name", "args": {"name": secret}},
        {"ph": "M", "pid": 1, "tid": secret, "name": "thread_name", "args": {"name": secret}},
    ]
    where = {"pid": secret, "tid": secret, "cat": secret}
    slices = [event("X", 1, secret, dur=1, args={secret: secret}, **where)]
    spans = [event(phase, 1, secret, id=secret, **where) for phase in "benC"]
    counter = event("C", 1, secret, id=secret, args={secret: 1})
    return write(folder, [*names, *slices, *spans, counter], otherData={"command": secret})


SAMPLES = [
    Sample(
        "chrome",
        "chrome",
        lambda folder: write(folder, EVENTS),
        {
            ("range", "name", "start_ns", "end_ns", "side"): [
                ("outer", 10_000, 15_500, "host"),
                ("f", 11_000, 14_000, "host"),
                ("g", 12_000, 13_000, "host"),
                ("mark", 17_250, 17_250, "host"),
                ("request", 20_000, 23_000, "host"),
                ("first token", 22_000, 22_000, "host"),
                ("request", 21_000, 25_000, "host"),
                ("old", 30_000, 31_000, "host"),
            ],
            ("thread", "pid", "tid", "name"): [
                ("1", "3", "worker"),
                ("1", "2", "server"),
                ("1", "async http 0x1", "http"),
                ("1", "async http 0x2", "http"),
                ("1", "async 7 old", "old"),
            ],
            ("counter_sample", "at_ns", "name", "labels", "value"): [
                (5_000, "queue", '{"series": "waiting"}', 3.0),
                (5_000, "queue", '{"series": "running"}', 1.5),
            ],
            ("source", "clock"): ["monotonic"],
        },
        {
            "metadata": 2,
            "arguments of a slice": 1,
            "end without begin": 1,
            "begin without end": 1,
            "flow arrow": 2,
            "missing duration": 1,
            "object of the program": 1,
        },
        planted,
        lambda folder, number: write(folder, [event("X", n, dur=1) for n in range(number)]),
    ),
    Sample(
        "chrome-list",
        "chrome",
        lambda folder: write_list(
            folder, [event("B", 1_700_000_000_000_000), event("E", 1.7e15 + 1)]
        ),
        {
            ("range", "name", "start_ns", "end_ns"): [
                ("f", 1_700_000_000_000_000_000, 1_700_000_000_000_001_000)
            ],
            ("source", "clock"): ["epoch"],
        },
        {"no end of the file": 1},
        planted,
    ),
]


def write_list(folder: Path, events: Sequence[object]) -> Path:
    """A list without its closing bracket, which the format allows: its writer may have died."""
    path = folder / "t.json"
    path.write_text("[\n" + ",\n".join(json.dumps(one) for one in events) + ",\n")
    return path
