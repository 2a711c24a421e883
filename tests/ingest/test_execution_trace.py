"""Execution traces: laws over all nodes, versions of the schemas, damage, archives."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ingest import chakra_files as pb
from ingest.compare import lost, reasons, rows
from ingest.samples.execution_trace import (
    COMMS,
    chakra,
    chakra_json,
    chakra_nodes,
    chakra_proto,
    document,
    new,
    old,
    schema_1_1,
    write_json,
)
from tokenpath.core.errors import DamagedInput, UnknownFormat
from tokenpath.ingest import read


def test_both_schemas_say_the_same(tmp_path: Path) -> None:
    """A node of 1.0 and of 1.1 with the same content give the same row."""
    inputs = {"values": [1], "shapes": [[2, 3]], "types": ["Tensor(float)"]}
    one = read([write_json(tmp_path, document("1.0.1", [old(4, "aten::mm", 3)]))])
    two = read(
        [write_json(tmp_path, document("1.1.1-x", [{**new(4, "aten::mm", 3), "inputs": inputs}]))]
    )
    assert one["trace_node"].to_pylist() == two["trace_node"].to_pylist()


def test_no_value_of_an_input_is_kept(tmp_path: Path) -> None:
    node = new(4, "aten::embedding", 3)
    node["inputs"]["values"] = ["the user's words", [31337, 31338]]
    capture = read([write_json(tmp_path, document("1.1.0", [node]))])
    texts = str([capture[name].to_pylist() for name in capture])
    assert "words" not in texts
    assert "31337" not in texts


@pytest.mark.parametrize(
    ("values", "types", "expected"),
    [
        ([[], 47, ["0", ""]], ["GenericList[]", "Int", "Tuple[String,String]"], (47, None)),
        ([[], [5, True]], ["GenericList[]", "Tuple[Int,Bool]"], (5, True)),
        ([[], []], ["GenericList[]", "Tuple[Int,Bool]"], (None, None)),
        ([-1], ["Int"], (None, None)),
        ([2**64], ["Int"], (None, None)),
        (["x", None], [None, 5], (None, None)),
        ([], [], (None, None)),
    ],
)
def test_sequence_numbers(
    tmp_path: Path, values: list[Any], types: list[Any], expected: tuple[Any, Any]
) -> None:
    node = new(4, "record_param_comms", 3, **COMMS)
    node["inputs"] |= {"values": values, "types": types}
    capture = read([write_json(tmp_path, document("1.1.0", [node]))])
    assert rows(capture, "collective", "sequence", "is_p2p") == [expected]


@pytest.mark.parametrize(
    ("more", "payload"),
    [
        ({}, 200),
        ({"dtype": "Float8_e4m3fn"}, 100),
        ({"dtype": "Strange"}, None),
        ({"in_msg_nelems": -1}, None),
        ({"in_msg_nelems": "50"}, 100),
        ({"in_msg_nelems": 2**62}, None),
    ],
)
def test_payload(tmp_path: Path, more: dict[str, Any], payload: int | None) -> None:
    node = new(4, "record_param_comms", 3, **{**COMMS, **more})
    capture = read([write_json(tmp_path, document("1.1.0", [node]))])
    assert rows(capture, "collective", "payload_bytes") == [payload]
    assert rows(capture, "trace_node", "payload_bytes") == [payload]


def test_process_groups_are_settings(tmp_path: Path) -> None:
    settings = dict(rows(read([schema_1_1(tmp_path)]), "setting", "name", "value"))
    assert settings["process_group.0.group_size"] == "8"
    assert settings["process_group.0.num_ranks"] == "2"
    broken = new(5, "## process_group:init ##", 2)
    broken["inputs"]["values"] = ["[" * 5000]
    capture = read([write_json(tmp_path, document("1.1.0", [broken]))])
    assert reasons(capture) == {"malformed process groups": 1}


def test_malformed_nodes_are_counted(tmp_path: Path) -> None:
    nodes = [new(1, "a", 1), {"id": 2}, {"name": "b"}, 5, {"id": 2**64, "name": "c"}, None]
    capture = read([write_json(tmp_path, document("1.1.0", nodes))])
    assert rows(capture, "trace_node", "node") == [1]
    assert lost(capture) == {"malformed node": 5}
    assert rows(capture, "source", "num_events", "num_skipped") == [(6, 5)]
    with pytest.raises(DamagedInput, match="no node"):
        read([write_json(tmp_path, document("1.1.0", [5]))])


def test_cut_traces_keep_their_first_nodes(tmp_path: Path) -> None:
    path = write_json(tmp_path, document("1.1.0", [new(n, "a", 1) for n in range(50)]))
    text = path.read_text()
    path.write_text(text[: text.index('"id": 30')])
    capture = read([path])
    assert rows(capture, "trace_node", "node") == list(range(30))
    assert reasons(capture)["truncated"] == 1


def test_deep_and_long_shapes(tmp_path: Path) -> None:
    deep, long = new(1, "a", 1), new(2, "b", 1)
    deep["inputs"]["shapes"] = [[0] * 40_000]
    path = write_json(tmp_path, document("1.1.0", [deep, long]))
    capture = read([path])
    assert [text is None for text in rows(capture, "trace_node", "input_shapes")] == [True, False]
    assert reasons(capture) == {"shapes too long": 1}
    nested = path.read_text().replace("[[2, 3], [[], []]]", "[" * 100_000 + "]" * 100_000)
    path.write_text(nested)
    capture = read([path])
    assert "nested too deeply" in str(reasons(capture))


def test_both_forms_of_chakra_agree(tmp_path: Path) -> None:
    columns = ["node", "name", "kind", "duration_ns", "data_predecessors", "collective"]
    one, two = read([chakra_json(tmp_path)]), read([chakra_proto(tmp_path)])
    assert rows(one, "trace_node", *columns) == rows(two, "trace_node", *columns)
    assert one["collective"].to_pylist() == two["collective"].to_pylist()


@pytest.mark.parametrize(
    ("number", "op"),
    list(
        enumerate(
            [
                *("allreduce", "reduce", "allgather", "gather", "scatter", "broadcast"),
                *("alltoall", "reduce_scatter", "reduce_scatter", "barrier"),
            ]
        )
    ),
)
def test_collective_types(tmp_path: Path, number: int, op: str) -> None:
    path = chakra_json(tmp_path, [chakra(1, "x", 7, comm_type=number, comm_size=1)])
    assert rows(read([path]), "collective", "op") == [op]


def test_collectives_without_size_and_group_are_nodes_only(tmp_path: Path) -> None:
    nodes = [chakra(1, "ncclKernel_ReduceScatter_RING", 7), chakra(2, "x", 7, comm_type=99)]
    capture = read([chakra_json(tmp_path, nodes)])
    assert rows(capture, "trace_node", "kind", "collective") == [
        ("communication", "reduce_scatter"),
        ("communication", None),
    ]
    assert capture.num_rows("collective") == 0


def test_types_by_name_and_unknown_ones(tmp_path: Path) -> None:
    nodes = [chakra(n, "x", kind) for n, kind in enumerate(["COMP_NODE", "STORAGE_NODE", 9, 0, 1])]
    capture = read([chakra_json(tmp_path, nodes)])
    assert rows(capture, "trace_node", "kind") == ["op", "other", "other", "other", "other"]


def test_dependencies_on_no_node_are_counted(tmp_path: Path) -> None:
    path = chakra_json(tmp_path, [chakra(1, "x", 4, data_deps=[2, 2**70, "y", True], ctrlDeps=5)])
    capture = read([path])
    assert rows(capture, "trace_node", "data_predecessors", "control_predecessors") == [([2], None)]
    assert reasons(capture) == {"dependency on no node": 3}


def test_every_integer_form_of_an_attribute(tmp_path: Path) -> None:
    forms = [(7, 512), (9, 512), (11, 512), (13, 512), (15, 1024), (17, 1024)]
    nodes = [
        pb.node(n, "x", 7, attributes=[pb.attribute("comm_size", value, number)])
        for n, (number, value) in enumerate(forms)
    ]
    nodes.append(pb.node(9, "x", 7, attributes=[pb.double("comm_size", 5.0)]))
    capture = read([pb.write(tmp_path / "x.et", pb.metadata(), *nodes)])
    assert rows(capture, "trace_node", "payload_bytes") == [*[512] * 6, None]


def test_damaged_messages_are_stepped_over(tmp_path: Path) -> None:
    good = [pb.node(n, "x", 4) for n in range(3)]
    path = pb.write(tmp_path / "x.et", pb.metadata(), good[0], b"\x07\x07\x07", *good[1:])
    capture = read([path])
    assert rows(capture, "trace_node", "node") == [0, 1, 2]
    assert reasons(capture) == {"malformed message": 1}
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert reasons(read([path])) == {"malformed message": 1, "truncated": 1}
    path.write_bytes(whole + b"\xff\xff\xff\xff\x0f")
    assert reasons(read([path]))["truncated"] == 1


def test_times_that_do_not_fit_are_unknown(tmp_path: Path) -> None:
    node = pb.node(1, "x", 4, start=2**63, duration=2**62)
    capture = read([pb.write(tmp_path / "x.et", pb.metadata(), node, pb.node(2**64 - 1, "y", 4))])
    assert rows(capture, "trace_node", "at_ns", "duration_ns") == [(None, None)]
    assert reasons(capture) == {"malformed node": 1}


def test_shapes_that_are_no_list(tmp_path: Path) -> None:
    nodes = [pb.node(1, "x", 4, shapes="__import__('os')", types="['a', 'b']")]
    capture = read([pb.write(tmp_path / "x.et", pb.metadata(), *nodes)])
    assert rows(capture, "trace_node", "input_shapes", "input_dtypes") == [(None, '["a","b"]')]
    assert reasons(capture) == {"shapes that are no list": 1}


@pytest.mark.parametrize(
    ("name", "rank"), [("chakra.3.et", 3), ("trace.12.et", 12), ("x_rank7.et", 7), ("x.et", None)]
)
def test_the_rank_is_in_the_name(tmp_path: Path, name: str, rank: int | None) -> None:
    chakra_proto(tmp_path).rename(tmp_path / name)
    assert rows(read([tmp_path / name]), "source", "rank") == [rank]


@pytest.mark.parametrize("is_packed", [False, True])
def test_archives_are_not_read_and_say_how_to_unpack(tmp_path: Path, is_packed: bool) -> None:
    path = tmp_path / "traces.tar.gz"
    with tarfile.open(path, "w:gz") if is_packed else tarfile.open(path, "w") as archive:
        for name in ("../../escape.json", "a.json"):
            info = tarfile.TarInfo(name)
            info.size = 2
            archive.addfile(info, io.BytesIO(b"{}"))
    with pytest.raises(UnknownFormat, match="a tar archive of files needs unpacking first") as told:
        read([path])
    assert "tar -xf traces.tar.gz -C unpacked" in str(told.value)


def test_predecessors_exist_in_the_sample() -> None:
    known = {node["Id"] for node in chakra_nodes()}
    assert all(set(node["data_deps"]) <= known for node in chakra_nodes())
