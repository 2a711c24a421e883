"""Execution traces of PyTorch (two schemas) and Chakra graphs (JSON and protobuf)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.chakra_files import attribute, metadata, write
from ingest.chakra_files import node as proto
from ingest.samples import Sample

PROCESS = "[pytorch|profiler|execution_trace|process]"
THREAD = "[pytorch|profiler|execution_trace|thread]"
COMMS = {
    "collective_name": "allreduce",
    "dtype": "BFloat16",
    "in_msg_nelems": 100,
    "out_msg_nelems": 100,
    "pg_name": "0",
    "pg_desc": "default_pg",
    "pg_size": 8,
}


def old(node_id: int, name: str, parent: int, **more: Any) -> dict[str, Any]:
    base = {"id": node_id, "name": name, "parent": parent, "rf_id": node_id - 1, "scope": 0}
    shapes = {"inputs": [[1, 2, 0, 6, 4, "cuda:0"]], "input_shapes": [[2, 3]]}
    return {**base, **shapes, "input_types": ["Tensor(float)"], "outputs": [], **more}


def new(node_id: int, name: str, parent: int, **attributes: Any) -> dict[str, Any]:
    known = {"rf_id": node_id - 1, "seq_id": -1, "scope": 0, **attributes}
    return {
        "id": node_id,
        "name": name,
        "ctrl_deps": parent,
        "inputs": {
            "values": [[1, 2, 0, 6, 4, "cuda:0"], [7, False]],
            "shapes": [[2, 3], [[], []]],
            "types": ["Tensor(float)", "Tuple[Int,Bool]"],
        },
        "outputs": {"values": [], "shapes": [], "types": []},
        "attrs": [{"name": key, "type": "x", "value": value} for key, value in known.items()],
    }


def document(schema: str, nodes: list[Any]) -> dict[str, Any]:
    header = {"schema": schema, "pid": 1, "time": "2026-01-02 03:04:05", "start_ts": 5}
    return {**header, "nodes": nodes, "finish_ts": 6}


def write_json(folder: Path, value: Any) -> Path:
    path = folder / "rank2_et.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def schema_1_0(folder: Path) -> Path:
    nodes = [
        old(2, THREAD, 1, rf_id=0, scope=7, inputs=[], input_shapes=[], input_types=[]),
        old(4, "aten::mm", 3),
        old(3, "## forward ##", 2, scope=7),
        old(1, PROCESS, 1, rf_id=0, scope=7),
    ]
    return write_json(folder, document("1.0.1", nodes))


def schema_1_1(folder: Path) -> Path:
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "group_size": 8, "ranks": [0, 1]}]
    init = new(5, "## process_group:init ##", 2, scope=7)
    init["inputs"] = {"values": [json.dumps(groups)], "shapes": [[]], "types": ["String"]}
    wait = new(7, "record_param_comms", 2, **{**COMMS, "collective_name": "wait"})
    nodes = [init, new(6, "record_param_comms", 2, **COMMS), wait, new(8, "nccl:all_reduce", 6)]
    return write_json(folder, document("1.1.0-chakra.0.0.4", nodes))


def planted_trace(folder: Path, secret: str) -> Path:
    node = new(2, secret, 1, **{**COMMS, "collective_name": secret, "pg_name": secret})
    node["inputs"] |= {"shapes": [[secret]], "types": [secret], "values": [secret]}
    groups = [{"pg_name": secret, "pg_desc": secret}, {"pg_name": "0", "backend_config": secret}]
    init = new(5, "## process_group:init ##", 2, op_schema=secret)
    init["inputs"]["values"] = [json.dumps(groups)]
    value = document("1.1.0", [node, init])
    return write_json(folder, {**value, "time": secret, secret: secret})


def many_nodes(folder: Path, num_events: int) -> Path:
    nodes = [new(number, "aten::mm", 1) for number in range(1, num_events)]
    return write_json(folder, document("1.1.0", nodes))


def chakra(node_id: int, name: str, kind: int, **more: Any) -> dict[str, Any]:
    return {"Id": node_id, "Name": name, "NodeType": kind, "is_cpu_op": True, **more}


def chakra_nodes() -> list[dict[str, Any]]:
    reduce = {"comm_type": 0, "comm_size": 512, "pg_name": "0", "is_cpu_op": False}
    return [
        chakra(1, "aten::mm", 4, ctrlDeps=[], data_deps=[], runtime=12),
        chakra(2, "gemm", 4, ctrlDeps=[1], data_deps=[1], is_cpu_op=False, runtime=5),
        chakra(3, "ncclDevKernel_AllReduce", 7, data_deps=[2, 1], runtime=7, **reduce),
        chakra(4, "send", 5, data_deps=[3], comm_size=8, comm_dst=3),
        chakra(5, "load", 2, data_deps=[]),
    ]


def chakra_json(folder: Path, nodes: list[Any] | None = None, **more: Any) -> Path:
    path = folder / "chakra.2.json"
    found = chakra_nodes() if nodes is None else nodes
    path.write_text(json.dumps({"workload_graph": found, "ngpus": 8, **more}), encoding="utf-8")
    return path


def planted_chakra(folder: Path, secret: str) -> Path:
    node = chakra(1, secret, 7, comm_size=1, pg_name=secret)
    return chakra_json(folder, [node], workload_name=secret, soc=secret)


def many_chakra(folder: Path, num_events: int) -> Path:
    return chakra_json(
        folder, [chakra(n, "aten::mm", 4, data_deps=[n - 1]) for n in range(num_events)]
    )


def chakra_proto(folder: Path) -> Path:
    cpu, gpu = attribute("is_cpu_op", True), attribute("is_cpu_op", False)
    reduce = [
        gpu,
        attribute("comm_type", 0),
        attribute("comm_size", 512),
        attribute("pg_name", "0"),
    ]
    shapes = {"shapes": "[[2, 3], []]", "types": "['Tensor(float)', 'Int']"}
    linked = [cpu, attribute("rf_id", 9)]
    return write(
        folder / "chakra.2.et",
        metadata("1.0.0", [attribute("schema", "1.1.0"), attribute("pid", 5)]),
        proto(1, "aten::mm", 4, start=3, duration=12, attributes=linked, **shapes),
        proto(2, "gemm", 4, ctrl=[1], data=[1], duration=5, attributes=[gpu]),
        proto(3, "ncclDevKernel_AllReduce", 7, data=[2, 1], duration=7, attributes=reduce),
        proto(
            4,
            "send",
            5,
            data=[3],
            packed=False,
            attributes=[attribute("comm_size", 8), attribute("comm_dst", 3)],
        ),
        proto(5, "load", 2),
    )


def planted_proto(folder: Path, secret: str) -> Path:
    parts = [attribute("pg_name", secret), attribute("comm_size", 1), attribute(secret, secret)]
    return write(
        folder / "chakra.2.et",
        metadata("1.0.0", [attribute("schema", secret), attribute("input_file", secret)]),
        proto(1, secret, 7, shapes=f"['{secret}']", types=json.dumps([secret]), attributes=parts),
    )


def many_proto(folder: Path, num_events: int) -> Path:
    nodes = [proto(n, "aten::mm", 4, data=[n]) for n in range(num_events)]
    return write(folder / "chakra.2.et", metadata(), *nodes)


GRAPH: dict[tuple[str, ...], list[Any]] = {
    ("trace_node", "node", "kind", "duration_ns", "data_predecessors"): [
        (1, "op", 12_000, []),
        (2, "kernel", 5_000, [1]),
        (3, "communication", 7_000, [2, 1]),
        (4, "communication", None, [3]),
        (5, "memory", None, []),
    ],
    ("trace_node", "collective", "payload_bytes"): [
        (None, None),
        (None, None),
        ("allreduce", 512),
        ("send", 8),
        (None, None),
    ],
    ("collective", "op", "payload_bytes", "group", "is_p2p", "peer", "duration_ns"): [
        ("allreduce", 512, "0", False, None, 7_000),
        ("send", 8, None, True, 3, None),
    ],
    ("source", "rank", "clock"): [(2, "monotonic")],
}

SAMPLES = [
    Sample(
        "execution_trace_1_0",
        "pytorch_execution_trace",
        schema_1_0,
        {
            ("trace_node", "node", "name", "kind", "parent_node", "external_id"): [
                (2, THREAD, "thread", 1, None),
                (4, "aten::mm", "op", 3, 3),
                (3, "## forward ##", "other", 2, 2),
                (1, PROCESS, "process", None, None),
            ],
            ("trace_node", "input_shapes", "input_dtypes"): [
                (None, None),
                *[("[[2,3]]", '["Tensor(float)"]')] * 3,
            ],
            ("setting", "name"): ["schema", "time", "start_ts", "finish_ts"],
            ("source", "rank"): [2],
        },
        {},
        planted_trace,
        many_nodes,
    ),
    Sample(
        "execution_trace_1_1",
        "pytorch_execution_trace",
        schema_1_1,
        {
            ("trace_node", "node", "kind", "parent_node", "collective", "payload_bytes"): [
                (5, "other", 2, None, None),
                (6, "communication", 2, "allreduce", 200),
                (7, "communication", 2, "wait", None),
                (8, "communication", 6, None, None),
            ],
            ("collective", "op", "payload_bytes", "dtype", "group", "group_size", "sequence"): [
                ("allreduce", 200, "BFloat16", "0", 8, 7)
            ],
            ("source", "world_size"): [8],
        },
        {},
        planted_trace,
        many_nodes,
    ),
    Sample("chakra_json", "chakra", chakra_json, GRAPH, {}, planted_chakra, many_chakra),
    Sample(
        "chakra_protobuf",
        "chakra",
        chakra_proto,
        {
            **GRAPH,
            ("trace_node", "at_ns", "external_id"): [(3000, 9), *[(None, None)] * 4],
            ("trace_node", "input_shapes", "input_dtypes"): [
                ("[[2,3],[]]", '["Tensor(float)","Int"]'),
                *[(None, None)] * 4,
            ],
            ("setting", "name", "value"): [("version", "1.0.0"), ("schema", "1.1.0")],
        },
        {},
        planted_proto,
        many_proto,
    ),
]
