"""Every number of the JSON has its definition, and the definitions are those of the code."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from docs.pages import named_constants, quoted_constants, read, rows, spans
from ingest.traces import Trace
from tokenpath import api
from tokenpath.core.report import Unit
from tokenpath.explain.causes import CAUSES, Group
from tokenpath.export import json as json_export

PAGE = read("docs/glossary.md")
ELSEWHERE = {
    # Columns of the capture's own tables: docs/tables.md.
    "num_events", "num_skipped", "num_bytes", "base_time_ns", "clock_offset_ns", "world_size",
}  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The JSON of a trace that fills every table."""
    trace = Trace(rank=0, world_size=2)
    for number in range(5):
        at = 1_000 * number
        trace.range(f"step[DECODE bs={number + 1}]", at, 900)
        trace.launched("gemm", launch_us=at + 10, start_us=at + 30, dur_us=100, op="aten::mm")
        trace.launched("ncclDevKernel_AllReduce", launch_us=at + 20, start_us=at + 140, dur_us=50)
        trace.call("cudaStreamSynchronize", at + 150, 200)
        trace.frame("model.py(7): forward", at, 900)
        trace.launched("gemm", launch_us=at + 400, start_us=at + 420, dur_us=100)
        trace.memcpy(at + 600, 40, correlation=77_000 + number)
        trace.call("cudaMemcpyAsync", at + 560, 90, correlation=77_000 + number)
        trace.memset(at + 700, 5)
    path = trace.write(tmp_path_factory.mktemp("glossary") / "trace.json")
    text = json_export.render(api.explain([path]).report)
    loaded: dict[str, object] = json.loads(text)
    return loaded


def numbers(value: object) -> Iterator[str]:
    """Keys of an object, at any depth, that hold a number."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, int | float):
                yield key
            yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)


def is_defined(key: str) -> bool:
    return key in spans(PAGE) or key in ELSEWHERE


def test_the_facts_are_defined(report: dict[str, object]) -> None:
    facts = report["facts"]
    assert isinstance(facts, dict)
    families = {
        key for device in facts["devices"] for key in device["window"]["compute_ns_by_family"]
    }
    undefined = {key for key in numbers(facts) if not is_defined(key)}
    undefined -= families | {
        "index",
        "rank",
        "source_id",
        "reader_version",
        "idle_supported",
        "lost",
    }
    assert not undefined


def test_the_columns_of_the_tables_are_defined(report: dict[str, object]) -> None:
    tables = report["tables"]
    assert isinstance(tables, dict)
    assert {"idle_causes", "kernels", "host", "steps", "worst_gaps"} <= set(tables)
    undefined = [
        f"{name}.{column['key']}"
        for name, table in tables.items()
        for column in table["columns"]
        if column["unit"] != Unit.TEXT and not is_defined(column["key"])
    ]
    assert [key for key in undefined if key not in ("steps.step", "worst_gaps.kernel_row")] == []


def test_the_rows_of_the_funnel_are_defined(report: dict[str, object]) -> None:
    facts, funnel = report["facts"], report["funnel"]
    assert isinstance(facts, dict)
    assert isinstance(funnel, dict)
    families = {
        key for device in facts["devices"] for key in device["window"]["compute_ns_by_family"]
    }
    first_cells = " ".join(row[0] for row in rows(PAGE)) + " host not ready"
    waiting = [funnel["root"]]
    while waiting:
        node = waiting.pop()
        assert node["key"] in families or node["label"] in first_cells, node["key"]
        waiting += node["parts"]
    assert "`host not ready`" in PAGE


def test_the_causes_are_those_of_the_code() -> None:
    table = [row for row in rows(PAGE) if len(row) == 3]
    written = [row for row in table if row[1].strip("`") in set(Group) and row[0].startswith("`")]
    expected = [[f"`{c.key}`, {c.label}", f"`{c.group.value}`", c.meaning] for c in CAUSES]
    assert written == expected


def test_the_groups_are_those_of_the_code() -> None:
    written = [
        row[0].strip("`") for row in rows(PAGE) if len(row) == 2 and row[0].strip("`") in set(Group)
    ]
    assert written == [group.value for group in Group]


def test_the_definitions_of_request_numbers_stand() -> None:
    defined = {row[0]: row[1] for row in rows(PAGE) if len(row) == 2}
    assert defined["`tpot`"].startswith("`(last_token - first_token) / (output_tokens - 1)`")
    assert defined["`ttft`"].startswith("`first_token - arrival`")
    assert {"`itl`", "`goodput`"} <= set(defined)


@pytest.mark.parametrize("name", ["docs/glossary.md", "docs/quality.md", "docs/formats.md"])
def test_quoted_constants_are_those_of_the_code(name: str) -> None:
    text = read(name)
    quoted = quoted_constants(text)
    assert len(quoted) == len(named_constants(text)), "each constant is given with its value"
    for module, constant, on_page, in_code in quoted:
        assert on_page == pytest.approx(in_code), f"{module}.{constant}"


def test_numbers_close_as_the_page_says(report: dict[str, object]) -> None:
    facts = report["facts"]
    assert isinstance(facts, dict)
    for device in facts["devices"]:
        window = device["window"]
        parts = ("compute_ns", "memset_ns", "exposed_communication_ns", "exposed_memcpy_ns")
        assert window["busy_ns"] == sum(window[part] for part in parts)
        assert window["compute_ns"] == sum(window["compute_ns_by_family"].values())
    absent = facts["compute_absent"]
    idle = sum(d["window"]["span_ns"] - d["window"]["busy_ns"] for d in facts["devices"])
    assert sum(absent["idle_ns"].values()) == idle
    assert absent["total_ns"] == sum(absent["groups_ns"].values())
