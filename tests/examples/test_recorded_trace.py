"""The shipped recording: small, readable, and silent about the machine that made it."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from tokenpath.api import load

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "examples" / "data" / "cpu_transformer.json.gz"
DECODE_STEPS = 10


@pytest.fixture(scope="module")
def text() -> str:
    return gzip.decompress(RECORDED.read_bytes()).decode("utf-8")


@pytest.fixture(scope="module")
def scrub_trace() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "scrub_trace", ROOT / "examples" / "scrub_trace.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_small() -> None:
    assert RECORDED.stat().st_size < 300_000


def test_it_says_nothing_about_the_machine(text: str) -> None:
    assert not re.findall(r"(?<![\w.])/(?:work|root|tmp|home|usr|opt|mnt|var|data)\b[^\"]*", text)
    assert not re.findall(r"site-packages|host_?name|environ|USER|[A-Z_]{3,}=", text)
    trace = json.loads(text)
    assert set(trace) == {
        "schemaVersion",
        "displayTimeUnit",
        "baseTimeNanoseconds",
        "record_shapes",
        "with_stack",
        "traceEvents",
        "traceName",
    }
    numbers = {e[key] for e in trace["traceEvents"] for key in ("pid", "tid")}
    assert {number for number in numbers if isinstance(number, int)} <= {0, *range(1000, 1010)}


def test_nothing_in_the_packing_names_its_maker() -> None:
    """A gzip header may hold the name of the packed file and the time of packing."""
    flags, time = RECORDED.read_bytes()[3], RECORDED.read_bytes()[4:8]
    assert (flags, time) == (0, b"\0\0\0\0")


def test_the_scrubber_takes_out_what_it_should(scrub_trace: ModuleType) -> None:
    secret = {
        "schemaVersion": 1,
        "host_name": "box17",
        "env": {"TOKEN": "s3cret"},
        "traceName": "/home/alice/run/trace.json",
        "traceEvents": [
            {
                "name": "/home/alice/venv/lib/python3.12/site-packages/torch/nn/x.py(3): f",
                "pid": 48213,
                "tid": 48213,
                "args": {"Python id": 1, "command": "--key=s3cret", "Input type": ["float"]},
            },
            {"name": "/home/alice/my (1) work/model.py(7): <module>", "pid": 48213, "tid": 48290},
            {"name": "<built-in method f of object at 0x7ffd12345678>", "pid": 48213, "tid": 7},
            {"name": "thread_name", "pid": 48213, "args": {"name": "thread 48213 (python)"}},
            {"name": "process_sort_index", "pid": 48213, "args": {"sort_index": 48213}},
        ],
    }
    clean = scrub_trace.Scrubber().scrub(secret)
    assert not re.search("alice|s3cret|box17|482|7ffd|home", json.dumps(clean))
    assert [event["name"] for event in clean["traceEvents"]] == [
        "torch/nn/x.py(3): f",
        "model.py(7): <module>",
        "<built-in method f of object at 0x10>",
        "thread_name",
    ]
    assert clean["traceEvents"][0]["args"] == {"Python id": 1, "Input type": ["float"]}
    assert [(event["pid"], event.get("tid")) for event in clean["traceEvents"]] == [
        (1000, 1000),
        (1000, 1001),
        (1000, 7),
        (1000, None),
    ]


def test_it_holds_prefill_and_decode() -> None:
    capture = load([RECORDED])
    steps = capture["step"].to_pylist()
    assert Counter(step["phase"] for step in steps) == {"prefill": 1, "decode": DECODE_STEPS}
    assert [step["num_prefill_tokens"] for step in steps] == [192] + [0] * DECODE_STEPS
    assert capture["source"]["state"].to_pylist() == ["measured"]
    assert not [row for row in capture["skip"].to_pylist() if row["lost"] and row["num_events"]]
    names = Counter(capture["op"]["name"].to_pylist())
    attention = names["aten::scaled_dot_product_attention"]
    assert attention == 2 * (1 + DECODE_STEPS)
    assert capture.num_rows("frame") > 1000
    assert capture.num_rows("kernel") == 0
