"""One export, from its tables to a capture."""

from __future__ import annotations

from tokenpath.capture.capture import Capture
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.nsys.device_work import read_device_work
from tokenpath.ingest.nsys.export import Export
from tokenpath.ingest.nsys.facts import name_sources, read_origin, read_warnings
from tokenpath.ingest.nsys.graphs import read_graph_nodes
from tokenpath.ingest.nsys.host_calls import read_host_calls
from tokenpath.ingest.nsys.names import Strings
from tokenpath.ingest.nsys.nvtx import read_nvtx
from tokenpath.ingest.nsys.other_tables import count_others, read_metrics
from tokenpath.ingest.nsys.places import Devices
from tokenpath.ingest.nsys.state import State
from tokenpath.ingest.nsys.waits import read_waits


def read_export(export: Export, builder: CaptureBuilder, file_name: str) -> Capture:
    """Read all tables; calls first, as they name the process of every row."""
    strings = Strings(export)
    state = State(export, builder, strings, Devices(export))
    builder.losses.add("value of another type", strings.num_wrong, dropped=False)
    if strings.problem is not None:
        builder.losses.add("table cut short", what="StringIds", dropped=False)
    read_origin(state)
    read_warnings(state)
    read_host_calls(state)
    read_device_work(state)
    read_nvtx(state)
    read_waits(state)
    read_graph_nodes(state)
    read_metrics(state)
    count_others(state)
    name_sources(state, file_name)
    if state.threads.serials:
        builder.add("thread", state.threads.table(export, strings, state.thread_names))
    devices = state.devices.table()
    builder.add("device", devices)
    return builder.finish()
