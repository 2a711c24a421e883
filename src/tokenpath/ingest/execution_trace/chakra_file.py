"""A Chakra graph in either form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.execution_trace.chakra import add_node, nanoseconds, type_number
from tokenpath.ingest.execution_trace.chakra_proto import read_messages
from tokenpath.ingest.execution_trace.nodes import Node, Nodes, id_list
from tokenpath.ingest.file_rank import last_number, rank_in_name
from tokenpath.ingest.growing import NULL, whole
from tokenpath.ingest.json_stream import JsonStream, Take
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options, Reader

_HEADER = ("workload_name", "ngpus", "soc", "version", "schema")
_DROPPED = ("pid", "input_file")


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """The graph of one rank."""
    builder = CaptureBuilder(reader, path, options)
    nodes = Nodes(builder.losses)
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    first = next(unpacked.chunks, None)
    is_json = first is not None and first[:64].tobytes().lstrip()[:1] == b"{"
    if is_json:
        unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
        document = _Document(nodes)
        JsonStream(unpacked.chunks, builder.losses).walk(document)
        settings: dict[str, Any] = document.header
    else:
        rest = [] if first is None else [first, *unpacked.chunks]
        settings = read_messages(b"".join(piece.tobytes() for piece in rest), nodes)
    unpacked.report_done()
    for problem in unpacked.problems:
        builder.losses.add(problem, dropped=False)
    if not len(nodes):
        raise DamagedInput("no node could be read", where=str(path), next_step="convert it again")
    nodes.build(builder)
    for name, value in settings.items():
        if name not in _DROPPED:
            builder.setting(name, value)
    origin = builder.origin
    origin.clock = "monotonic"
    origin.profiler = "Chakra"
    # `trace.0.et`, `chakra.0.json`: the rank is the last part of the name before the suffix.
    named = rank_in_name(path)
    origin.rank = (
        last_number(Path(path.name.rsplit(".", 1)[0].replace(".", "_")))
        if (named is None)
        else named
    )
    origin.rank_source = None if origin.rank is None else "file name"
    return builder.finish()


class _Document:
    """Takes the members of the JSON object."""

    def __init__(self, nodes: Nodes) -> None:
        self.header: dict[str, Any] = {}
        self._nodes = nodes

    def choose(self, path: tuple[str, ...], opens: str) -> Take:
        if not path:
            return Take.ENTER
        if path == ("workload_graph",):
            return Take.EACH
        is_plain = len(path) == 1 and path[0] in _HEADER and opens not in "[{"
        return Take.WHOLE if is_plain else Take.SKIP

    def take(self, path: tuple[str, ...], value: object, stream: JsonStream) -> None:
        if path != ("workload_graph",):
            if path and value is not None:
                self.header[path[0]] = str(value)[:200]
            return
        self._nodes.num_seen += 1
        if not isinstance(value, dict) or not _add(self._nodes, value):
            self._nodes.losses.add("malformed node", offset=stream.offset)

    def leave(self, _path: tuple[str, ...]) -> None:
        """Nothing is held open."""

    def damaged(self, _path: tuple[str, ...]) -> None:
        self._nodes.num_seen += 1


def _add(nodes: Nodes, value: dict[str, Any]) -> bool:
    """One node; keys are those of Chakra's JSON feeder, and `ctrlDeps` as its examples have it."""
    node_id, name = whole(value.get("Id")), value.get("Name")
    number = type_number(value.get("NodeType"))
    if node_id == NULL or not isinstance(name, str) or number is None:
        return False
    node = Node(
        node_id,
        name,
        "other",
        control=id_list(value.get("ctrlDeps", value.get("ctrl_deps")), nodes.losses),
        data=id_list(value.get("data_deps"), nodes.losses),
        duration_ns=nanoseconds(value.get("runtime")),
    )
    add_node(nodes, node, number, value)
    return True
