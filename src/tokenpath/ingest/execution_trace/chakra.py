"""What Chakra's node types and attributes mean.

Source: schema/protobuf/et_def.proto of mlcommons/chakra (1.0.0). Times are microseconds. The converter from
PyTorch writes durations without those of children (`exclusive_dur`), and no starts; 0 stands for unknown.
"""

from __future__ import annotations

from typing import Any

from tokenpath.core.units import INT64_MAX, NS_PER_US
from tokenpath.ingest.execution_trace.nodes import Node, Nodes
from tokenpath.ingest.fields import rank
from tokenpath.ingest.growing import NULL, whole

_TYPES = (
    *("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE"),
    *("COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE"),
)
"""By number; later numbers (storage, batch, checkpoint) are `other`."""
_COLLECTIVES = (
    *("allreduce", "reduce", "allgather", "gather", "scatter", "broadcast"),
    *("alltoall", "reduce_scatter", "reduce_scatter", "barrier"),
)
"""By CollectiveCommType."""
_IN_NAMES = {
    "allreduce": "allreduce",
    "alltoall": "alltoall",
    "allgather": "allgather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
}
_SEND, _RECV, _COLL = 5, 6, 7


def type_number(value: object) -> int | None:
    """The number of a node's type, given as number or as its name in the schema."""
    if isinstance(value, str):
        return _TYPES.index(value) if value in _TYPES else len(_TYPES)
    return value if type(value) is int and 0 <= value < 2**31 else None


def nanoseconds(micros: object) -> int:
    """Microseconds as nanoseconds; NULL for 0, which stands for unknown, and for what does not fit."""
    value = whole(micros)
    return value * NS_PER_US if 0 < value <= INT64_MAX // NS_PER_US else NULL


def add_node(nodes: Nodes, node: Node, number: int, attributes: dict[str, Any]) -> None:
    """Add a node of that type, and its collective where the size or group is known."""
    is_host = attributes.get("is_cpu_op")
    node.kind = _kind(number, is_host)
    record_function = whole(attributes.get("rf_id"))
    node.external_id = record_function if record_function > 0 else NULL
    if node.kind == "communication":
        node.collective = _collective(number, attributes.get("comm_type"), node.name)
        size = whole(attributes.get("comm_size"))
        node.payload_bytes = size if size >= 0 else NULL
        group = attributes.get("pg_name")
        group = str(group)[:200] if isinstance(group, str | int) and group != "" else None
        if size >= 0 or group is not None:
            peer = attributes.get("comm_dst" if number == _SEND else "comm_src")
            nodes.add_collective(
                {
                    "op": node.collective or "unknown",
                    "payload_bytes": size if size >= 0 else None,
                    "group": group,
                    "is_p2p": number != _COLL,
                    "peer": rank(peer) if number != _COLL else None,
                    "duration_ns": _device_time(node, is_host),
                }
            )
    nodes.add(node)


def _kind(number: int, is_host: object) -> str:
    if number in (2, 3):
        return "memory"
    if number == 4:
        return "kernel" if is_host is False else "op"
    return "communication" if number in (_SEND, _RECV, _COLL) else "other"


def _collective(number: int, comm_type: object, name: str) -> str | None:
    if number != _COLL:
        return "send" if number == _SEND else "recv"
    code = whole(comm_type)
    if code != NULL:
        return _COLLECTIVES[code] if 0 <= code < len(_COLLECTIVES) else None
    plain = name.replace("_", "").replace("-", "").lower()
    return next((known for word, known in _IN_NAMES.items() if word in plain), None)


def _device_time(node: Node, is_host: object) -> int | None:
    return node.duration_ns if is_host is False and node.duration_ns != NULL else None
