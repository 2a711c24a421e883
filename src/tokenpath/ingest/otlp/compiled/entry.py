"""The one compiled function that Python calls."""

from __future__ import annotations

# mypy: ignore-errors
# numba finds the types; all of them are int64.
from tokenpath.ingest.kineto.compiled.machine import compiled
from tokenpath.ingest.otlp.compiled.json_lines import scan_lines
from tokenpath.ingest.otlp.compiled.sink import gather
from tokenpath.ingest.otlp.compiled.wire import scan_messages
from tokenpath.ingest.otlp.state import Op

_JSON, _PROTOBUF = int(Op.JSON), int(Op.PROTOBUF)


@compiled
def run(state, op, a, b):
    """Do what `Op` says; everything is an int64."""
    if op == _JSON:
        return scan_lines(state, a, b)
    if op == _PROTOBUF:
        return scan_messages(state, a, b)
    return gather(state, a, b)
