"""The readers of PyTorch and Chakra execution traces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.capture.combine import combine
from tokenpath.core.errors import TokenpathError
from tokenpath.ingest.reader import Options, options_by_file
from tokenpath.ingest.wire import BYTES, VARINT, fields, read_varint

_SCHEMA = re.compile(rb'"schema"\s*:\s*"\d+\.\d+\.\d+')
_NODES = re.compile(rb'"nodes"\s*:\s*\[')
_WORKLOAD = re.compile(rb'"workload_graph"\s*:\s*\[')


class ExecutionTraceReader:
    """What PyTorch's ExecutionTraceObserver writes: operators with shapes and parents, without times."""

    name = "pytorch_execution_trace"
    version = 1
    describes = "PyTorch execution trace, .json or .json.gz"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """An object with a schema version and nodes."""
        start = head.lstrip(b" \t\r\n")
        return start[:1] == b"{" and None not in (_SCHEMA.search(start), _NODES.search(start))

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """One source a file, each a rank's trace."""
        from tokenpath.ingest.execution_trace.pytorch import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


class ChakraReader:
    """Chakra graphs: the JSON with a `workload_graph`, and the protobuf `.et`."""

    name = "chakra"
    version = 1
    describes = "Chakra execution trace, .et or .json"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """JSON with a `workload_graph`, or metadata and a node, each after its length."""
        start = head.lstrip(b" \t\r\n")
        if start[:1] == b"{" and _WORKLOAD.search(start) is not None:
            return True
        return _is_proto(head)

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """One source a file, each a rank's graph."""
        from tokenpath.ingest.execution_trace.chakra_file import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


def _is_proto(head: bytes) -> bool:
    """Whether it begins with GlobalMetadata (a version such as 0.0.4) and a Node of known type."""
    try:
        length, at = read_varint(head, 0, len(head))
        metadata = list(fields(head, slice(at, at + length))) if at + length < len(head) else []
        version = [head[v] for number, _, v in metadata if number == 1 and isinstance(v, slice)]
        if not version or re.fullmatch(rb"\d+(\.\d+){1,3}[\w.-]{0,20}", version[0]) is None:
            return False
        if any(number not in (1, 2) for number, _, _ in metadata):
            return False
        length, at = read_varint(head, at + length, len(head))
        kinds = {number: wire for number, wire, _ in fields(head, slice(at, at + length))}
    except TokenpathError:
        return False
    return kinds.get(2) == BYTES and kinds.get(3) == VARINT


READERS = (ExecutionTraceReader(), ChakraReader())
