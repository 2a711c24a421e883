"""One picture of a real vLLM run: client, spans, step log and profiler joined, and how sure that is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tokenpath.capture.capture import Capture, build_table
from tokenpath.capture.validate import validate
from tokenpath.explain.latency import PARTS, latencies
from tokenpath.explain.thread import thread
from tokenpath.ingest import read
from tokenpath.stitch import link
from tokenpath.stitch.alignment import Series, align

RUNS = ("m20", "m40", "m55", "p25", "p40", "o40")
KEYS = [key for key, _ in PARTS]


@pytest.fixture(scope="session")
def engine(reference_data: Path) -> Path:
    return reference_data / "engine" / "vllm-cpu"


def load_files(engine: Path, run: str) -> list[Path]:
    return [engine / "load" / f"{run}.{part}" for part in ("steps.jsonl.gz", "requests.csv")]


@pytest.fixture(scope="session")
def unlinked(engine: Path) -> Capture:
    """Everything that is known of run o40."""
    return read(
        [
            *load_files(engine, "o40"),
            engine / "otel" / "o40.otlp_traces.jsonl.gz",
            engine / "profiler" / "o40_eager_24steps.pt.trace.json.gz",
        ]
    )


@pytest.fixture(scope="session")
def joined(unlinked: Capture) -> Capture:
    linked = link(unlinked)
    validate(linked)
    return linked


def profiled(capture: Capture) -> list[dict[str, object]]:
    return [row for row in capture["step"].to_pylist() if row["observer"] == "profiler"]


def test_every_request_of_the_load_is_seen_by_all(joined: Capture) -> None:
    """Client, step log and span of each of the 80 requests carry one id."""
    formats = joined["source"]["format"].to_pylist()
    seen: dict[str, set[str]] = {}
    for row in joined["request"].to_pylist():
        seen.setdefault(row["request_id"], set()).add(formats[row["source_id"]])
    of_load = {name: found for name, found in seen.items() if "vllm_load" in found}
    assert len(of_load) == 80
    assert all(found == {"vllm_load", "vllm_steps", "otlp"} for found in of_load.values())
    traces: dict[str, set[str]] = {}
    for row in joined["request"].to_pylist():
        if row["trace_id"] and row["request_id"] in of_load:
            traces.setdefault(row["request_id"], set()).add(row["trace_id"])
    assert len(traces) == 80
    assert all(len(found) == 1 for found in traces.values())


def test_every_annotated_step_is_linked_by_its_number(joined: Capture) -> None:
    rows = joined["step"].to_pylist()
    found = profiled(joined)
    assert len(found) == 24
    for row in found:
        assert row["linked_by"] == "step number"
        theirs = rows[row["scheduler_step_id"]]
        assert theirs["number"] == row["number"]
        for what in ("requests", "tokens"):
            mine = row[f"num_prefill_{what}"] + row[f"num_decode_{what}"]
            assert mine == theirs[f"num_prefill_{what}"] + theirs[f"num_decode_{what}"]


@pytest.mark.parametrize("clock", ["epoch", "monotonic"])
def test_with_the_numbers_hidden_the_same_links_are_found(unlinked: Capture, clock: str) -> None:
    table = unlinked["range"]
    kept = [not name.startswith("vllm.step:") for name in table["name"].to_pylist()]
    source = unlinked["source"].to_pylist()
    for row in source:
        if row["format"] == "kineto":
            row["clock"] = clock
    columns = {name: [row[name] for row in source] for name in source[0]}
    hidden = unlinked.replace(
        {"range": table.filter(kept), "source": build_table("source", columns)}
    )
    linked = link(hidden)
    found, truth = profiled(linked), profiled(link(unlinked))
    assert [row["scheduler_step_id"] for row in found] == [
        row["scheduler_step_id"] for row in truth
    ]
    assert {row["linked_by"] for row in found} == {"order, shape and time"}


def test_stated_confidence_is_calibrated_on_real_steps(engine: Path) -> None:
    """Windows of real runs seen through another clock: of links stated as p, a share of p is right."""
    rng = np.random.default_rng(7)
    stated, right, asked = [], [], 0
    for run in RUNS:
        capture = read([engine / "load" / f"{run}.steps.jsonl.gz"])
        start, end = (
            capture.int64("step", "start_ns"),
            capture.int64("step", "execute_start_ns", -1),
        )
        requests, tokens = (
            capture.int64("step", f"num_prefill_{what}")
            + capture.int64("step", f"num_decode_{what}")
            for what in ("requests", "tokens")
        )
        some = tokens > 0
        called = np.where(end[some] >= 0, end[some], start[some])
        reference = Series(called, requests[some], tokens[some], is_epoch=False)

        for _ in range(40):
            size = int(rng.integers(2, 30))
            first = int(rng.integers(0, len(reference) - size))
            rows = np.arange(first, first + size)
            rows = rows[rng.random(size) > 0.02]
            seen = Series(
                called[rows] - called[rows[0]] + rng.integers(0, 200_000, len(rows)),
                reference.num_requests[rows],
                reference.num_tokens[rows],
                is_epoch=False,
            )
            found = align(seen, reference)
            linked = found.row >= 0
            asked += len(rows)
            stated += found.probability[linked].tolist()
            right += (found.row[linked] == rows[linked]).tolist()
    p, hit = np.array(stated), np.array(right)
    assert len(p) > 0.9 * asked
    sure = p >= 0.9
    assert sure.mean() > 0.9
    assert hit[sure].mean() >= 0.99
    for low, high in ((0.5, 0.75), (0.75, 0.9), (0.9, 0.99)):
        some = (p >= low) & (p < high)
        if some.sum() >= 20:
            assert hit[some].mean() >= p[some].mean() - 3 * np.sqrt(0.25 / some.sum())


@pytest.mark.parametrize("run", RUNS)
def test_engine_latency_and_its_client_differ_by_the_way_between(engine: Path, run: str) -> None:
    """What the client saw more than the engine is `send` and `delivery`, exactly, and is never negative."""
    capture = link(read(load_files(engine, run)))
    found = {(latency.observer, latency.kind): latency for latency in latencies(capture)}
    for kind in ("ttft", "decode"):
        client, inside = found["client", kind], found["engine", kind]
        assert list(client.request_id) == list(inside.request_id)
        for latency in (client, inside):
            assert (latency.parts_ns.sum(axis=1) == latency.total_ns).all()
            assert (latency.parts_ns[:, KEYS.index("unresolved")] == 0).all()
        way = [KEYS.index(part) for part in ("send", "delivery")]
        more = client.parts_ns[:, way].sum(axis=1)
        assert (client.total_ns - inside.total_ns == more).all()
    ttft = found["client", "ttft"]
    delivery = ttft.parts_ns[:, KEYS.index("delivery")]
    assert (delivery > 0).all()
    # 9 ms at the median says the manifest of all runs; this machine's stalls make the tails.
    assert 1_000_000 < np.median(delivery) < 40_000_000


def test_one_request_down_to_the_operator(joined: Capture) -> None:
    """A request that was running while the profiler was on."""
    steps = {row["scheduler_step_id"] for row in profiled(joined)}
    shares = joined["request_step"].to_pylist()
    name = next(row["request_id"] for row in shares if row["step_id"] in steps)
    report = thread(joined, name)
    (table,) = (table for table in report.tables if table.key == "steps_of_request")
    at = [column.key for column in table.columns].index("longest")
    inside = [row[at] for row in table.rows if row[at] is not None]
    assert inside
    assert "_C::onednn_mm" in inside
    for funnel in report.request_funnels:
        assert funnel.residuals() == {}


@pytest.mark.parametrize("run", ["m40", "p25", "o40"])
def test_shares_of_requests_are_found_without_being_stated(engine: Path, run: str) -> None:
    """The step log without its lists of requests; of o40, requests as OpenTelemetry saw them."""
    paths = [engine / "load" / f"{run}.steps.jsonl.gz"]
    if run == "o40":
        paths.append(engine / "otel" / "o40.otlp_traces.jsonl.gz")
    stated = read(paths)
    kept = {name: stated[name] for name in stated if name != "request_step"}
    if run == "o40":
        formats = stated["source"]["format"].to_pylist()
        spans = [formats[source] == "otlp" for source in stated["request"]["source_id"].to_pylist()]
        kept["request"] = stated["request"].filter(spans)
    inferred = link(Capture(kept))
    truth, found = (
        set(
            zip(
                *(capture["request_step"][name].to_pylist() for name in ("request_id", "step_id")),
                strict=True,
            )
        )
        for capture in (stated, inferred)
    )
    right = len(found & truth)
    assert right >= 0.997 * len(found)
    assert right >= 0.97 * len(truth)
    sure = inferred.float64("request_step", "confidence")
    assert sure.mean() <= right / len(found)
