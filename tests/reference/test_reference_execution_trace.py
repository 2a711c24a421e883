"""The real execution traces and the real Chakra graph."""

from __future__ import annotations

import tarfile
from collections import Counter
from pathlib import Path

import pytest

from ingest.compare import lost, rows
from tokenpath.capture.validate import validate
from tokenpath.core.errors import UnknownFormat
from tokenpath.ingest import read


@pytest.mark.parametrize(
    ("file", "schema", "num_nodes"),
    [
        ("hta/execution_trace/benchmark_simple_add_et.json.gz", "1.0.1", 38),
        ("param/linear_et.json.gz", "1.0.1", 931),
        ("param/resnet_et.json.gz", "1.1.0-chakra.0.0.4", 14392),
    ],
)
def test_nodes_form_one_tree(traces: Path, file: str, schema: str, num_nodes: int) -> None:
    """Numbers of nodes as the manifest counts them; each node but the process has its parent."""
    capture = read([traces / file])
    validate(capture)
    nodes = rows(capture, "trace_node", "node", "parent_node", "kind")
    assert len(nodes) == len({node for node, *_ in nodes}) == num_nodes
    parents = {node: parent for node, parent, _ in nodes}
    assert [node for node, parent in parents.items() if parent is None] == [1]
    assert {kind for node, _, kind in nodes if node == 1} == {"process"}
    assert all(parent is None or parent in parents for parent in parents.values())
    assert dict(rows(capture, "setting", "name", "value"))["schema"] == schema
    assert not lost(capture)


def test_collectives_of_the_resnet_run(traces: Path) -> None:
    capture = read([traces / "param" / "resnet_et.json.gz"])
    found = rows(capture, "collective", "op", "payload_bytes", "group", "sequence")
    assert Counter(op for op, *_ in found) == {"allreduce": 15, "broadcast": 6}
    assert [sequence for *_, sequence in found] == list(range(47, 68))
    gradients = [size for op, size, *_ in found if op == "allreduce"]
    # 25,557,032 parameters of ResNet-50 as float32, three iterations.
    assert sum(gradients) == 3 * 25_557_032 * 4


def test_record_functions_are_those_of_the_profile(traces: Path) -> None:
    """Where both recorders began together, `external_id` is that of the profile's operators."""
    folder = traces / "hta" / "execution_trace"
    nodes = read([folder / "benchmark_simple_add_et.json.gz"])
    profile = read([folder / "benchmark_simple_add_trace.json.gz"])
    named = dict(rows(profile, "op", "external_id", "name"))
    named |= dict(rows(profile, "range", "external_id", "name"))
    joined = [
        named.get(external) == name
        for external, name in rows(nodes, "trace_node", "external_id", "name")
        if external is not None
    ]
    assert joined == [True] * 36


def test_the_chakra_archive(traces: Path, tmp_path: Path) -> None:
    """It says how to unpack it; unpacked, each file is read."""
    archive = traces / "chakra" / "json_trace.tar.gz"
    with pytest.raises(UnknownFormat, match="needs unpacking"):
        read([archive])
    with tarfile.open(archive) as packed:
        for name in ("chakra.0.json", "small_chakra.0.json"):
            member = packed.extractfile(f"jsonData/{name}")
            assert member is not None
            (tmp_path / name).write_bytes(member.read())
    capture = read([tmp_path / "chakra.0.json"])
    validate(capture)
    assert Counter(rows(capture, "trace_node", "kind")) == {
        "op": 2434,
        "kernel": 1209,
        "communication": 21,
    }
    assert Counter(rows(capture, "trace_node", "collective"))[None] == 3643
    assert not lost(capture)
    small = read([tmp_path / "small_chakra.0.json"])
    assert rows(small, "trace_node", "control_predecessors")[0] == [3]
