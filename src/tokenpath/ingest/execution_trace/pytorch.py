"""Execution traces of PyTorch, schemas 1.0.x and 1.1.x.

The form is that of torch/csrc/profiler/standalone/execution_trace_observer.cpp: nodes in the order in which
they ended, each with the id of its parent (`parent`, since 1.0.2 `ctrl_deps`), shapes and types of its
inputs, and `rf_id`, the record-function id that a newer Kineto trace of the same run shows as `Record
function id`. There are no times. Values of inputs are not kept, but for the attributes of collectives.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.collective_names import BYTES_OF_DTYPE, plain_name
from tokenpath.ingest.execution_trace.nodes import Node, Nodes, json_text
from tokenpath.ingest.fields import mapping, rank
from tokenpath.ingest.file_rank import rank_in_name
from tokenpath.ingest.growing import NULL, whole
from tokenpath.ingest.json_stream import JsonStream, Take
from tokenpath.ingest.nested_settings import add_settings
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options, Reader

_FRAME = re.compile(r"\[pytorch\|profiler\|execution_(?:trace|graph)\|(process|thread)\]")
_HEADER = ("schema", "time", "start_ts", "finish_ts")
_USER_SCOPE = 7
_GROUPS = "## process_group:init ##"
_NO_COLLECTIVE = ("wait", "init", "")
"""What is recorded like a collective but moves nothing."""
_GROUP_KEYS = ("pg_desc", "backend_config", "group_size", "group_count")


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """The trace of one rank."""
    builder = CaptureBuilder(reader, path, options)
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    document = _Document(Nodes(builder.losses))
    JsonStream(unpacked.chunks, builder.losses).walk(document)
    unpacked.report_done()
    for problem in unpacked.problems:
        builder.losses.add(problem, dropped=False)
    if not len(document.nodes):
        raise DamagedInput("no node could be read", where=str(path), next_step="record it again")
    document.nodes.build(builder)
    for name in _HEADER:
        builder.setting(name, document.header.get(name))
    if document.groups:
        add_settings(builder, "process_group", document.groups)
    origin = builder.origin
    origin.clock = "monotonic"
    origin.profiler = "PyTorch ExecutionTraceObserver"
    origin.rank = rank_in_name(path)
    origin.rank_source = None if origin.rank is None else "file name"
    for group in document.groups.values():
        if group.get("pg_desc") == "default_pg":
            origin.world_size = rank(group.get("group_size"))
    return builder.finish()


class _Document:
    """Takes the members of the object."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.header: dict[str, str] = {}
        self.groups: dict[str, dict[str, Any]] = {}

    def choose(self, path: tuple[str, ...], opens: str) -> Take:
        if not path:
            return Take.ENTER
        if path == ("nodes",):
            return Take.EACH
        is_plain = len(path) == 1 and path[0] in _HEADER and opens not in "[{"
        return Take.WHOLE if is_plain else Take.SKIP

    def take(self, path: tuple[str, ...], value: object, stream: JsonStream) -> None:
        if path != ("nodes",):
            if path and value is not None:
                self.header[path[0]] = str(value)[:200]
            return
        self.nodes.num_seen += 1
        if not isinstance(value, dict) or not self._add(value):
            self.nodes.losses.add("malformed node", offset=stream.offset)

    def leave(self, _path: tuple[str, ...]) -> None:
        """Nothing is held open."""

    def damaged(self, _path: tuple[str, ...]) -> None:
        self.nodes.num_seen += 1

    def _add(self, value: dict[str, Any]) -> bool:
        node_id, name = whole(value.get("id")), value.get("name")
        if node_id == NULL or not isinstance(name, str):
            return False
        attributes = _attributes(value)
        losses = self.nodes.losses
        values, shapes, types = _inputs(value)
        parent = whole(value.get("parent", value.get("ctrl_deps")))
        record_function = whole(attributes.get("rf_id"))
        node = Node(
            node_id,
            name,
            _kind(name, attributes),
            # The process is its own parent.
            parent=NULL if parent == node_id else parent,
            shapes=json_text(shapes, losses),
            dtypes=json_text(types, losses),
            external_id=record_function if record_function > 0 else NULL,
        )
        collective = attributes.get("collective_name")
        if isinstance(collective, str):
            self._add_collective(node, collective, attributes, (values, types))
        elif name == _GROUPS:
            self._add_groups(values)
        self.nodes.add(node)
        return True

    def _add_collective(
        self,
        node: Node,
        name: str,
        attributes: dict[str, Any],
        inputs: tuple[list[Any], list[Any]],
    ) -> None:
        node.collective = plain_name(name[:200])
        if name in _NO_COLLECTIVE:
            return
        payload = _bytes(attributes, "in_msg_nelems")
        node.payload_bytes = NULL if payload is None else payload
        dtype, group = attributes.get("dtype"), attributes.get("pg_name")
        sequence, is_p2p = _sequence(*inputs)
        self.nodes.add_collective(
            {
                "op": node.collective,
                "payload_bytes": payload,
                "output_bytes": _bytes(attributes, "out_msg_nelems"),
                "dtype": dtype if isinstance(dtype, str) else None,
                "group": group if isinstance(group, str) and group else None,
                "group_size": rank(attributes.get("pg_size")),
                "sequence": sequence,
                "is_p2p": is_p2p,
            }
        )

    def _add_groups(self, values: list[Any]) -> None:
        """Process groups, which one node of the trace holds as a JSON text."""
        try:
            groups = json.loads(values[0]) if values and isinstance(values[0], str) else []
        except (ValueError, RecursionError):
            groups = []
            self.nodes.losses.add("malformed process groups", dropped=False)
        for group in groups if isinstance(groups, list) else ():
            name = mapping(group).get("pg_name")
            if isinstance(name, str):
                known = {key: group[key] for key in _GROUP_KEYS if key in group}
                ranks = group.get("ranks")
                self.groups[name] = {**known, "num_ranks": len(ranks)} if ranks else known


def _attributes(value: dict[str, Any]) -> dict[str, Any]:
    """Attributes by name: of 1.1 from the list `attrs`, of 1.0 the node's own members."""
    attributes = value.get("attrs")
    if not isinstance(attributes, list):
        return value
    return {
        item["name"]: item.get("value")
        for item in attributes
        if isinstance(item, dict) and isinstance(item.get("name"), str)
    }


def _inputs(value: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Values, shapes and types of the inputs."""
    inputs = value.get("inputs")
    if isinstance(inputs, dict):
        parts = (inputs.get("values"), inputs.get("shapes"), inputs.get("types"))
    else:
        parts = (inputs, value.get("input_shapes"), value.get("input_types"))
    values, shapes, types = (part if isinstance(part, list) else [] for part in parts)
    return values, shapes, types


def _kind(name: str, attributes: dict[str, Any]) -> str:
    frame = _FRAME.fullmatch(name)
    if frame is not None:
        return frame[1]
    if name == "record_param_comms" or name.startswith(("nccl:", "gloo:")):
        return "communication"
    return "other" if attributes.get("scope") == _USER_SCOPE else "op"


def _bytes(attributes: dict[str, Any], key: str) -> int | None:
    elements, width = whole(attributes.get(key)), BYTES_OF_DTYPE.get(str(attributes.get("dtype")))
    return elements * width if width is not None and 0 <= elements < 2**58 else None


def _sequence(values: list[Any], types: list[Any]) -> tuple[int | None, bool | None]:
    """Number within the group, and whether it is between two ranks: `7`, in newer versions `(7, false)`."""
    for value, kind in zip(values, types, strict=False):
        if kind == "Int" and type(value) is int:
            return (value if 0 <= value < 2**63 else None), None
        if isinstance(kind, str) and kind.startswith("Tuple[Int,Bool") and isinstance(value, list):
            number = whole(value[0]) if value else NULL
            flag = value[1] if len(value) > 1 and isinstance(value[1], bool) else None
            return (number if number >= 0 else None), flag
    return None, None
