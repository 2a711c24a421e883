"""The declared tables: every column with its type, unit, meaning and what NULL means.

Times are int64 nanoseconds on the capture's clock. Intervals
are half open, `start_ns` .. `end_ns`. The id of a row is its position in its table, so `kernel.op_id`
is a row number of `op`. Hosts and users are stable pseudonyms.
"""

from __future__ import annotations

from tokenpath.capture.schema import END as _END
from tokenpath.capture.schema import SOURCE as _SOURCE
from tokenpath.capture.schema import START as _START
from tokenpath.capture.schema import Table
from tokenpath.capture.schema import table as _table
from tokenpath.capture.serving_tables import SERVING_TABLES

SCHEMA_VERSION = 1
"""1: first release."""

_THREAD = ("thread_id", "int32", "row of `thread`")
_STEP = ("step_id", "int32", "row of `step`", "not known to belong to a step")

_DECLARED = (
    _table(
        "source",
        "an input file",
        ("path", "string", "file name without folders"),
        ("format", "text", "name of the reader: `kineto`, ..."),
        ("reader_version", "int32", "version of that reader"),
        ("sha256", "string", "hash of the stored bytes", "not computed"),
        ("num_bytes", "int64", "size of the stored file"),
        ("trace_id", "string", "the profiler's own id of the run", "the file has none"),
        (
            "base_time_ns",
            "int64",
            "epoch time that the file's stamps count from",
            "stamps are absolute or of unknown origin",
        ),
        ("clock_offset_ns", "int64", "added to the file's own times to give the capture's clock"),
        ("clock", "text", "`epoch` (ns since 1970) or `monotonic` (unknown origin)"),
        ("rank", "int32", "rank in the job", "unknown"),
        ("world_size", "int32", "ranks in the job", "unknown"),
        (
            "rank_source",
            "text",
            "`distributedInfo`, `file name`, `device name`, `MPI` or `caller`",
            "rank unknown",
        ),
        ("host", "text", "pseudonym of the host", "unknown"),
        ("profiler", "text", "what wrote it, as far as the file says", "unknown"),
        ("state", "text", "`measured`, `synthetic` or `simulated`"),
        ("num_events", "int64", "events seen in the file, skipped ones included"),
        ("num_skipped", "int64", "events not in any table; reasons in `skip`"),
    ),
    _table(
        "skip",
        "a reason for dropped or repaired input",
        _SOURCE,
        ("reason", "text", "stable reason: `flow`, `metadata`, `truncated`, ..."),
        (
            "lost",
            "bool",
            "True when information was lost; False for input that carries none of its own (flow arrows, metadata)",
        ),
        ("num_events", "int64", "how many events"),
        ("example", "string", "byte offset and kind of the first one", "no example kept"),
    ),
    _table(
        "source_note",
        "something about a source without which its numbers are misread",
        _SOURCE,
        ("code", "text", "stable code; `tokenpath explain --about CODE` has the page"),
        ("sentence", "string", "what it is, with its figures"),
    ),
    _table(
        "setting",
        "a setting of the engine, the load or the profiler, as the source states it",
        _SOURCE,
        ("name", "text", "name in the source; nested ones joined by dots"),
        ("value", "string", "value as text"),
    ),
    _table(
        "device",
        "an accelerator",
        _SOURCE,
        ("index", "int64", "device number in the file"),
        ("name", "text", "as the driver reports it", "not in the file"),
        ("num_sms", "int32", "streaming multiprocessors or compute units", "not in the file"),
        ("memory_bytes", "int64", "total device memory", "not in the file"),
        ("vendor", "text", "`nvidia`, `amd`, `intel`, `meta`, `huawei`, `ibm`", "unknown"),
        ("hardware", "text", "key in the hardware catalogue", "not resolved"),
        ("resolved_by", "text", "how the catalogue entry was found", "not resolved"),
    ),
    _table(
        "thread",
        "a host thread",
        _SOURCE,
        ("pid", "string", "process id as the file writes it"),
        ("tid", "string", "thread id as the file writes it"),
        ("name", "text", "thread or process name", "not in the file"),
    ),
    _table(
        "op",
        "a framework operator call",
        _SOURCE,
        _THREAD,
        _START,
        _END,
        ("name", "text", "operator: `aten::mm`"),
        ("parent_op_id", "int32", "row of the enclosing `op` on its thread", "outermost"),
        ("external_id", "int64", "id that joins it to device work", "not in the file"),
        ("sequence", "int64", "autograd sequence number", "not in the file"),
        ("input_shapes", "text", "JSON text of `Input Dims`", "not recorded"),
        ("input_dtypes", "text", "JSON text of `Input type`", "not recorded"),
        (
            "call_stack",
            "text",
            "Python frames as the profiler joined them, innermost first, separated by `;`",
            "not recorded (newer profilers write `frame` rows instead)",
        ),
        ("collective", "text", "JSON object of the collective's attributes", "no collective"),
    ),
    _table(
        "frame",
        "a Python frame on a thread",
        _SOURCE,
        _THREAD,
        _START,
        _END,
        ("name", "text", "as written: `file.py(12): function` or `nn.Module: Linear_0`"),
        ("python_id", "int64", "id within the trace", "not in the file"),
        ("python_parent_id", "int64", "`python_id` of the caller", "outermost or not in the file"),
    ),
    _table(
        "api_call",
        "a CUDA, HIP or other runtime or driver call",
        _SOURCE,
        _THREAD,
        _START,
        _END,
        ("name", "text", "function: `cudaLaunchKernel`"),
        ("correlation_id", "int64", "joins it to device work", "not in the file"),
        ("op_id", "int32", "row of the innermost `op` around it", "none recorded"),
    ),
    _table(
        "range",
        "a user, NVTX or engine annotation",
        _SOURCE,
        ("side", "text", "`host` or `device`"),
        ("thread_id", "int32", "row of `thread` for a host range", "device range, or not recorded"),
        ("device_id", "int32", "row of `device` for a device range", "host range"),
        ("stream_id", "int64", "stream of a device range", "host range"),
        _START,
        _END,
        ("name", "text", "label"),
        ("external_id", "int64", "id that joins host and device side", "not in the file"),
        ("domain", "text", "NVTX domain or library that made it", "the default one, or none"),
    ),
    _table(
        "kernel",
        "one piece of device work",
        _SOURCE,
        ("device_id", "int32", "row of `device`"),
        ("stream_id", "int64", "stream or queue"),
        _START,
        _END,
        ("name", "text", "kernel name, demangled where the file has it so"),
        ("kind", "text", "`compute`, `communication`, `memcpy`, `memset`"),
        ("family", "text", "what it computes: docs/kernel-families.md"),
        ("grid", "dim3", "blocks in x, y, z", "not in the file"),
        ("block", "dim3", "threads in x, y, z", "not in the file"),
        ("registers_per_thread", "int32", "registers", "not in the file"),
        ("shared_memory_bytes", "int64", "shared memory of a block", "not in the file"),
        (
            "blocks_per_sm",
            "float64",
            "blocks over SMs, as the profiler computed it",
            "not in the file",
        ),
        (
            "warps_per_sm",
            "float64",
            "warps over SMs, as the profiler computed it",
            "not in the file",
        ),
        (
            "occupancy_percent",
            "float64",
            "estimated achieved occupancy, 0 to 100",
            "not in the file",
        ),
        ("bytes", "int64", "bytes moved by a memcpy or memset", "not a copy, or not in the file"),
        ("correlation_id", "int64", "joins it to the launching call", "not in the file"),
        ("external_id", "int64", "joins it to the operator", "not in the file"),
        ("graph_id", "int64", "device graph", "not launched by a graph, or not in the file"),
        (
            "graph_node_id",
            "int64",
            "node of the device graph",
            "not launched by a graph, or not in the file",
        ),
        ("api_call_id", "int32", "row of the launching `api_call`", "launch not in the file"),
        ("op_id", "int32", "row of the `op` that launched it", "no operator recorded"),
        _STEP,
    ),
    _table(
        "kernel_counter",
        "a hardware counter of a kernel",
        ("kernel_id", "int32", "row of `kernel`", "not joined, or a range without a kernel"),
        _SOURCE,
        ("start_ns", "int64", "start on the capture's clock", "the source has no times"),
        ("end_ns", "int64", "end on the capture's clock (exclusive)", "the source has no times"),
        ("launch", "int64", "number of the launch in its source, from 0", "not in the file"),
        ("name", "text", "counter"),
        ("value", "float64", "value"),
        ("unit", "text", "unit", "not stated"),
        ("range_name", "text", "kernel or range that the counter covers", "not in the file"),
    ),
    _table(
        "graph_node",
        "a node of a device graph",
        _SOURCE,
        ("graph_id", "int64", "graph", "not in the file"),
        ("node", "int64", "node within it"),
        ("op_name", "text", "operator at capture time", "unknown"),
        ("predecessors", "int64s", "nodes it waits for", "unknown"),
    ),
    _table(
        "dependency",
        "a recorded wait",
        _SOURCE,
        ("kind", "text", "`event_wait`, `event_sync`, `stream_sync`, `context_sync`"),
        _START,
        _END,
        ("device_id", "int32", "row of `device`", "host side only"),
        ("stream_id", "int64", "stream that waits", "the host waits for all streams"),
        ("from_stream_id", "int64", "stream that is waited for", "not recorded"),
        ("from_correlation_id", "int64", "correlation of the event record", "not recorded"),
        ("correlation_id", "int64", "correlation of the waiting call", "not in the file"),
    ),
    _table(
        "collective",
        "one rank's part of a collective",
        _SOURCE,
        ("op", "text", "`allreduce`, `allgather`, ..."),
        (
            "payload_bytes",
            "int64",
            "input bytes of this rank",
            "element count or dtype not recorded",
        ),
        ("dtype", "text", "element type", "not recorded"),
        ("group", "text", "process group", "not recorded"),
        ("group_size", "int32", "ranks in the group", "not recorded"),
        ("sequence", "int64", "number within the group", "not recorded"),
        ("kernel_id", "int32", "row of `kernel`", "no kernel in the file"),
        ("state", "text", "`completed`, `started`, `scheduled`", "not a flight-recorder dump"),
        ("output_bytes", "int64", "output bytes of this rank", "not recorded"),
        ("is_p2p", "bool", "send or receive between two ranks", "not recorded"),
        (
            "peer",
            "int32",
            "the other rank of a send or receive, as the source counts",
            "not recorded",
        ),
        ("created_ns", "int64", "the host asked for it", "not recorded"),
        ("start_ns", "int64", "the device began it", "not begun, or see `kernel_id`"),
        ("end_ns", "int64", "the device finished it", "not finished, or see `kernel_id`"),
        ("duration_ns", "int64", "device time as the source measured it", "not measured"),
        ("call_stack", "text", "Python frames of the call, innermost first, `;`", "not recorded"),
        ("match", "int64", "the same number on every rank's part of one collective", "unmatched"),
        ("linked_by", "text", "how the parts were matched: `sequence` or `order`", "unmatched"),
    ),
    _table(
        "memory_event",
        "one allocator event",
        _SOURCE,
        ("at_ns", "int64", "time on the capture's clock", "not recorded, or before the recording"),
        (
            "action",
            "text",
            "`alloc`, `free_requested`, `free`, `segment_alloc`, ..., `oom`: docs/formats/memory.md",
        ),
        ("address", "int64", "address", "not recorded"),
        (
            "bytes",
            "int64",
            "size (negative for what is freed, is to be, or leaves a category)",
        ),
        ("stream_id", "int64", "stream", "not recorded"),
        ("category", "text", "what the memory is for", "unknown"),
        ("frame_id", "int32", "row of `frame`", "not recorded"),
        ("device_index", "int64", "device number in the file", "not recorded"),
        ("call_stack", "text", "frames of the event, innermost first, `;`", "not recorded"),
    ),
    _table(
        "memory_block",
        "a block of the allocator at the moment of a snapshot",
        _SOURCE,
        ("device_index", "int64", "device number in the file"),
        ("segment_address", "int64", "address of the segment it lies in"),
        ("segment_bytes", "int64", "size of that segment"),
        ("address", "int64", "address"),
        ("bytes", "int64", "size"),
        ("requested_bytes", "int64", "what the program asked for", "not recorded"),
        ("state", "text", "`allocated`, `pending_free`, `free`"),
        ("pool", "text", "`large`, `small` or a private pool", "not recorded"),
        ("stream_id", "int64", "stream", "not recorded"),
        ("call_stack", "text", "frames of the allocation, innermost first, `;`", "not recorded"),
    ),
    _table(
        "trace_node",
        "a node of an execution trace (PyTorch execution trace, Chakra)",
        _SOURCE,
        ("node", "int64", "id within its source"),
        ("name", "text", "operator, kernel or label"),
        ("kind", "text", "`process`, `thread`, `op`, `kernel`, `memory`, `communication`, `other`"),
        ("parent_node", "int64", "id of the enclosing node", "outermost or not recorded"),
        ("control_predecessors", "int64s", "ids of nodes it waits for", "none or not recorded"),
        ("data_predecessors", "int64s", "ids of nodes whose output it takes", "not recorded"),
        ("at_ns", "int64", "start on the capture's clock", "not recorded"),
        ("duration_ns", "int64", "duration", "not recorded"),
        ("input_shapes", "text", "JSON text", "not recorded"),
        ("input_dtypes", "text", "JSON text", "not recorded"),
        ("collective", "text", "`allreduce`, ...", "no communication"),
        ("payload_bytes", "int64", "bytes communicated", "no communication or not recorded"),
        ("external_id", "int64", "joins it to an `op` of a profile", "not recorded"),
    ),
    _table(
        "finding",
        "one claim (see core.finding)",
        ("code", "text", "stable code"),
        ("kind", "text", "`cost`, `quality`, `abstention`"),
        ("sentence", "string", "the claim"),
        ("duration_ns", "int64", "time it explains", "not a time"),
        ("gain_ns", "int64", "what a fix would bring", "unknown"),
        ("json", "string", "the whole finding"),
    ),
)

TABLES: dict[str, Table] = {table.name: table for table in (*_DECLARED, *SERVING_TABLES)}
"""Every declared table by name."""


def describe_markdown() -> str:
    """The page docs/tables.md."""
    lines = [
        "# Tables of a capture",
        "",
        "Generated by `python -m tokenpath.capture.tables > docs/tables.md`; a test keeps it true.",
        "",
        f"Schema version {SCHEMA_VERSION}. " + " ".join((__doc__ or "").split("\n\n")[1].split()),
        "",
    ]
    for table in TABLES.values():
        lines += [
            f"## {table.name}",
            "",
            f"One row is {table.doc}.",
            "",
            "| column | type | meaning | NULL means |",
            "| --- | --- | --- | --- |",
        ]
        for column in table.columns:
            null = column.null or "(never NULL)"
            lines.append(f"| `{column.name}` | {column.type} | {column.doc} | {null} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(describe_markdown(), end="")
