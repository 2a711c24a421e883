"""The mapping of engines' metrics: its form, and that every family of a real server is in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tokenpath.explain import pages
from tokenpath.ingest.metrics.mapping import (
    KINDS,
    NOTHING,
    UNITS,
    Metric,
    build,
    mapping,
    normalised,
    parse_version,
    satisfies,
)
from tokenpath.ingest.metrics.notes import NOTES

each = pytest.mark.parametrize("metric", mapping().metrics, ids=lambda m: m.name)
FAMILIES = """cache_config_info num_requests_running num_requests_waiting kv_cache_usage_perc
prefix_cache_queries prefix_cache_hits num_preemptions prompt_tokens generation_tokens
iteration_tokens_total time_to_first_token_seconds inter_token_latency_seconds
request_time_per_output_token_seconds e2e_request_latency_seconds request_queue_time_seconds
request_prefill_time_seconds request_decode_time_seconds request_inference_time_seconds
request_success request_prompt_tokens request_generation_tokens
request_max_num_generation_tokens request_params_n request_params_max_tokens
lora_requests_info"""
VERSIONS = ("0.11.0", "0.15.1", "0.20.2", "0.26.0", "0.32.0")


def entry(**changed: Any) -> dict[str, Any]:
    return {"name": "x", "to": "a.b", "unit": "s", "kind": "gauge", **changed}


def of(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "engines": {"e": {"prefix": "e:", "metrics": list(entries)}}}


@each
def test_an_entry_is_well_formed(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z0-9]+(?:[._][a-z0-9_]+)*", metric.canonical)
    assert metric.unit in UNITS
    assert metric.kind in KINDS
    assert metric.replaced is None or metric.replaced
    assert set(metric.notes) <= set(NOTES)
    assert not metric.name.endswith("_total") or metric.kind in ("histogram", "gauge")


@each
def test_an_entry_is_found_in_all_forms(metric: Metric) -> None:
    plain = metric.name.replace(":", "_")
    for form in (metric.name, plain, f"ray_{plain}", f"{metric.name}_total"):
        found = mapping().find(form, metric.when)
        assert found is not None
        assert normalised(found.name) in (normalised(metric.name), normalised(form))
    assert mapping().engine_of(metric.name) == metric.engine


def test_one_canonical_name_has_one_unit() -> None:
    units: dict[str, set[str]] = {}
    for metric in mapping().metrics:
        units.setdefault(metric.canonical, set()).add(metric.unit)
    assert {name: found for name, found in units.items() if len(found) > 1} == {}


def test_every_note_has_a_page() -> None:
    assert set(NOTES) <= set(pages.codes())
    assert {note for metric in mapping().metrics for note in metric.notes} <= set(NOTES)


def test_successors_are_in_the_mapping() -> None:
    for metric in mapping().metrics:
        if metric.replaced not in (None, NOTHING):
            prefix = re.match(r"[A-Za-z]+_FI_|[a-z_]+scheduler_|[a-z]+[:_]", metric.name)
            assert prefix is not None
            for name in (metric.replaced or "").split(" and "):
                assert mapping().find(prefix[0] + name, {}), (metric.name, name)


@pytest.mark.parametrize(
    ("version", "conditions", "expected"),
    [
        ("0.32.0", ">=0.11", True),
        ("0.11", ">=0.11.0", True),
        ("0.11.2", "<0.13", True),
        ("0.13.0", "<0.13", False),
        ("0.9", ">=0.11", False),
        ("0.20.2rc1", ">=0.20,<0.32", True),
        ("v1.0", "", True),
        ("0.32", "==0.32.0", True),
    ],
)
def test_version_ranges(version: str, conditions: str, expected: bool) -> None:
    assert satisfies(version, conditions) is expected


@pytest.mark.parametrize("text", ["", "main", "latest"])
def test_no_version(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version"):
        parse_version(text)


def test_no_condition() -> None:
    with pytest.raises(ValueError, match="is not a condition"):
        satisfies("1.0", "~1.0")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_25_families_of_all_vllm_versions(version: str) -> None:
    """engine-capture: what a reader may build on exists in each of them."""
    names = FAMILIES.split()
    assert len(names) == 25
    for name in names:
        metric = mapping().find(f"vllm:{name}", {})
        assert metric is not None
        assert metric.exists_in(version), name


@pytest.mark.parametrize(
    "bad",
    [
        entry(unit="parsec"),
        entry(kind="meter"),
        entry(scale=0),
        entry(across={"tp_rank": "maybe"}),
        entry(versions="soon"),
        entry(colour="red"),
    ],
)
def test_a_broken_entry_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"e:x|soon"):
        build(of(bad))


def test_the_same_name_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="stands twice"):
        build(of(entry(), entry(to="c.d")))


def test_one_family_split_by_labels_is_fine() -> None:
    found = build(of(entry(when={"type": "a"}), entry(when={"type": "b"}, to="c.d")))
    first, second, third = (found.find("e:x", {"type": kind}) for kind in "abc")
    assert first is not None
    assert second is not None
    assert (first.canonical, second.canonical, third) == ("a.b", "c.d", None)


def test_the_file_names_its_sources() -> None:
    path = Path(__file__).parents[2] / "src/tokenpath/ingest/metrics/mapping.yaml"
    text = path.read_text(encoding="utf-8")
    for name in ("vLLM 0.11", "SGLang 0.5.23", "TensorRT-LLM", "llama.cpp", "dcgm-exporter"):
        assert name in text.split("version: 1")[0]
