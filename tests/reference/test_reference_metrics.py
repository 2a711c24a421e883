"""Recorded /metrics of each engine version at hand: every family is known, counters agree with the runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tokenpath.capture.capture import Capture
from tokenpath.ingest import read
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.metrics import exposition
from tokenpath.ingest.metrics.mapping import mapping

FILES = (
    *(f"vllm-cpu/metrics/m40.{at}.prom.txt" for at in ("before", "during", "after")),
    *(f"vllm-cpu/metrics/o40_all_options.{at}.prom.txt" for at in ("before", "during", "after")),
    *(f"llama-cpp/metrics.{at}.prom.txt" for at in ("during", "after")),
)


def snapshots(reference_data: Path, *names: str) -> Sequence[Path]:
    return [reference_data / "engine" / name for name in names]


@pytest.mark.parametrize("name", FILES)
def test_every_family_is_mapped_or_known(reference_data: Path, name: str) -> None:
    losses = Losses()
    text = (reference_data / "engine" / name).read_text(encoding="utf-8")
    samples = exposition.parse(text, losses)
    assert losses.rows() == []
    assert len(samples.values) == sum(line[:1] not in ("#", "") for line in text.split("\n"))
    engine = "llamacpp" if name.startswith("llama") else "vllm"
    unknown = set()
    for series in samples.series:
        metric = mapping().find(series.family, series.labels)
        if metric is None and not mapping().is_known_unmapped(series.family):
            unknown.add(series.family)
        if metric is not None:
            assert metric.engine == engine
            assert metric.kind == "info" or metric.exists_in("0.32.0")
            assert metric.replaced is None
    assert unknown == set()


@pytest.mark.parametrize("name", FILES)
def test_declared_types_agree_with_the_mapping(reference_data: Path, name: str) -> None:
    text = (reference_data / "engine" / name).read_text(encoding="utf-8")
    for line in text.split("\n"):
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split()
            metric = mapping().find(family, {})
            # llama.cpp declares its high-water mark n_tokens_max as a counter.
            if metric is not None and metric.kind != "info" and "n_tokens_max" not in family:
                assert metric.kind == kind, family


@pytest.fixture(scope="module")
def m40(reference_data: Path) -> Capture:
    return read(snapshots(reference_data, *FILES[:3]))


def counted(capture: Capture, name: str, kind: str = "counter") -> list[float]:
    """Sum over labels of each snapshot, in the order of time."""
    found: dict[int, float] = {}
    for row in capture["counter_sample"].to_pylist():
        if row["name"] == name and row["kind"] == kind:
            found[row["at_ns"]] = found.get(row["at_ns"], 0.0) + row["value"]
    return [found[at] for at in sorted(found)]


def test_the_run_between_the_snapshots(m40: Capture) -> None:
    """Run m40 had 200 requests without a preemption."""
    before, during, after = counted(m40, "requests.finished")
    assert before < during < after == before + 200
    before, _, after = counted(m40, "latency.ttft", "count")
    assert after - before == 200
    before, _, after = counted(m40, "preemptions")
    assert after == before
    assert m40["source"]["clock"].to_pylist() == ["monotonic"] * 3


def test_prompt_tokens_of_the_run(m40: Capture, reference_data: Path) -> None:
    import csv

    path = reference_data / "engine/vllm-cpu/load/m40.requests.csv"
    with path.open(encoding="utf-8") as file:
        requests = list(csv.DictReader(file))
    before, _, after = counted(m40, "tokens.prompt")
    assert after - before == sum(int(row["prompt_tokens"]) for row in requests)
    before, _, after = counted(m40, "tokens.generated")
    assert after - before == sum(int(row["output_tokens"]) for row in requests)


def test_estimates_count_only_where_they_were_switched_on(
    m40: Capture, reference_data: Path
) -> None:
    def flops(capture: Capture) -> set[bool]:
        rows = capture["counter_sample"].to_pylist()
        return {
            row["value"] is None
            for row in rows
            if row["name"] == "work.flops" and row["kind"] == "counter"
        }

    everything = read(snapshots(reference_data, *FILES[3:6]))
    assert flops(m40) == {True}
    assert flops(everything) == {False}
    assert "estimated-work" in everything["source_note"]["code"].to_pylist()


def test_notes_of_a_real_server(m40: Capture) -> None:
    assert set(m40["source_note"]["code"].to_pylist()) == {
        *("no-sample-time", "estimated-not-measured", "ttft-includes-queue"),
        *("prefill-is-wall-time", "ratio-named-percent", "histogram-named-total"),
        "histogram-resolution",
    }


def test_llama_cpp(reference_data: Path) -> None:
    capture = read(snapshots(reference_data, *FILES[6:]))
    assert capture.num_rows("counter_sample") == 30
    assert set(capture["source_note"]["code"].to_pylist()) == {"no-sample-time", "lifetime-average"}
    (prompt,) = {row for row in counted(capture, "tokens.generated") if row == 304}
    assert prompt == 304
