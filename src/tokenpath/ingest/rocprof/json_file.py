"""rocprofv3 JSON: `{"rocprofiler-sdk-tool": [{metadata, agents, strings, kernel_symbols, buffer_records}]}`.

Each element of the list is one process. Kernel symbols and texts may stand behind the records that
need them, so records are held by number until the process ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.capture.combine import combine
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.growing import NULL, GrowingRows, small, whole
from tokenpath.ingest.json_stream import JsonStream, Take
from tokenpath.ingest.json_stream import Path as JsonPath
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options, Reader, options_by_file
from tokenpath.ingest.rocprof.names import SETTINGS, kernel_name
from tokenpath.ingest.rocprof.run import Gpu, Run, Symbol

_TOP = "rocprofiler-sdk-tool"
_GPU = 2
"""`rocprofiler_agent_type_t`: 1 is a CPU, 2 a GPU."""
_MARKS = ("roctxMark", "roctxRangePush", "roctxRangeStart")
_NO_TABLE = {
    "scratch_memory": "scratch memory",
    "pc_sample_host_trap": "program counter sample",
    "pc_sample_stochastic": "program counter sample",
}


def read_files(reader: Reader, paths: Sequence[Path], options: Options) -> Capture:
    """A capture of all files, each a source of its own."""
    each = zip(paths, options_by_file(paths, options), strict=True)
    return combine([_read_one(reader, path, own) for path, own in each])


def _read_one(reader: Reader, path: Path, options: Options) -> Capture:
    builder = CaptureBuilder(reader, path, options)
    builder.origin.clock = "monotonic"
    builder.origin.profiler = "rocprofv3"
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    document = _Document(builder)
    JsonStream(unpacked.chunks, builder.losses).walk(document)
    unpacked.report_done()
    for problem in unpacked.problems:
        builder.losses.add(problem.split(":")[0], dropped=False)
    if not document.has_process:
        raise DamagedInput(
            "no process could be read", where=str(path), next_step="record it again with rocprofv3"
        )
    document.run.finish()
    return builder.finish()


class _Document:
    """The visitor of one file."""

    def __init__(self, builder: CaptureBuilder) -> None:
        self.run = Run(builder)
        self.has_process = False
        self._builder = builder
        self._process = -1
        self._start_process()

    def _start_process(self) -> None:
        self._process += 1
        self._pid = str(self._process)
        self._operations: list[list[object]] = []
        self._messages: dict[int, str] = {}
        self._counter_names: dict[int, str] = {}
        self._copies = GrowingRows(
            "source", "target", "stream", "start", "end", "kind", "op", "bytes", "correlation"
        )
        self._calls = GrowingRows("tid", "start", "end", "kind", "op", "correlation", "is_marker")
        self._memory = GrowingRows("at", "kind", "op", "address", "bytes")
        self._counted = GrowingRows("dispatch", "start", "end", "counter", "value", "kernel")

    # -- the visitor ------------------------------------------------------------------------------

    def choose(self, path: JsonPath, _opens: str) -> Take:
        if len(path) <= 2:
            if not path or path[0] == _TOP:
                self.has_process |= len(path) == 2
                return Take.ENTER
            return Take.SKIP
        section = path[2]
        if len(path) == 3:
            if section in ("strings", "buffer_records", "callback_records"):
                return Take.ENTER
            if section in ("agents", "counters", "kernel_symbols"):
                return Take.EACH
            return Take.WHOLE if section == "metadata" else Take.SKIP
        if section == "strings":
            return Take.EACH if path[3] in ("buffer_records", "marker_api") else Take.SKIP
        return Take.EACH

    def take(self, path: JsonPath, value: object, stream: JsonStream) -> None:
        if len(path) < 3:
            return
        section, name = path[2], path[3] if len(path) > 3 else ""
        if section in ("buffer_records", "callback_records"):
            self._builder.num_events += 1
            if not isinstance(value, dict):
                self._builder.losses.add("not an object", offset=stream.offset)
            else:
                self._record(name, value, stream)
        elif isinstance(value, dict):
            self._describe(section, name, value)

    def leave(self, path: JsonPath) -> None:
        if len(path) == 2:
            self._finish_process()
            self._start_process()

    def damaged(self, _path: JsonPath) -> None:
        self._builder.num_events += 1

    # -- what describes the records ---------------------------------------------------------------

    def _describe(self, section: str, name: str, value: dict[str, object]) -> None:
        if section == "metadata":
            self._metadata(value)
        elif section == "agents":
            self._agent(value)
        elif section == "counters":
            self._counter_names[_handle(value.get("id"))] = str(value.get("name"))
        elif section == "kernel_symbols":
            registers = [small(value.get(key)) for key in ("arch_vgpr_count", "accum_vgpr_count")]
            known = [number for number in registers if number != NULL]
            self.run.symbol(
                self._process,
                whole(value.get("kernel_id")),
                Symbol(kernel_name(value), sum(known) if known else NULL),
            )
        elif name == "marker_api":
            self._messages[whole(value.get("key"))] = str(value.get("value"))
        elif name == "buffer_records":
            operations = value.get("operations")
            self._operations.append(operations if isinstance(operations, list) else [])

    def _metadata(self, value: dict[str, object]) -> None:
        self._pid = str(value.get("pid"))
        node = value.get("node")
        if isinstance(node, dict) and node.get("hostname"):
            self._builder.origin.host = str(node["hostname"])
        self._builder.losses.add(
            "command line", 1 if value.get("command") else 0, lost=False, dropped=False
        )
        config = value.get("config")
        if isinstance(config, dict):
            for key in SETTINGS:
                self._builder.setting(key, config.get(key))

    def _agent(self, value: dict[str, object]) -> None:
        if value.get("type") != _GPU:
            return
        banks = value.get("mem_banks")
        sizes = [
            whole(bank.get("size_in_bytes"))
            for bank in (banks if isinstance(banks, list) else ())
            if isinstance(bank, dict)
        ]
        index = next(
            (
                number
                for key in ("logical_node_type_id", "gpu_index", "logical_node_id", "node_id")
                if (number := whole(value.get(key))) >= 0
            ),
            len(self.run.gpus),
        )
        name = value.get("product_name") or value.get("name")
        units = whole(value.get("cu_count"))
        self.run.gpus[_handle(value.get("id"))] = Gpu(
            index,
            str(name) if name else None,
            units if 0 < units < 2**31 else None,
            max(sizes) if sizes and max(sizes) > 0 else None,
        )

    # -- the records ------------------------------------------------------------------------------

    def _record(self, name: str, value: dict[str, object], stream: JsonStream) -> None:
        times = (whole(value.get("start_timestamp")), whole(value.get("end_timestamp")))
        kind, op = whole(value.get("kind")), whole(value.get("operation"))
        correlation = _member(value.get("correlation_id"), "internal")
        if name == "kernel_dispatch":
            info = value.get("dispatch_info")
            self._dispatch(info if isinstance(info, dict) else {}, value, times, correlation)
        elif name == "memory_copy":
            self._copies.append(
                _handle(value.get("src_agent_id")), _handle(value.get("dst_agent_id")),
                _handle(value.get("stream_id")), *times, kind, op, whole(value.get("bytes")),
                correlation,
            )  # fmt: skip
        elif name == "memory_allocation":
            size = whole(value.get("allocation_size"))
            self._memory.append(times[0], kind, op, _handle(value.get("address")), size)
        elif name == "counter_collection":
            self._collection(value)
        elif name.endswith("_api"):
            thread = whole(value.get("thread_id"))
            self._calls.append(thread, *times, kind, op, correlation, name == "marker_api")
        else:
            reason = _NO_TABLE.get(name, "record of an unknown kind")
            self._builder.losses.add(reason, offset=stream.offset, what=name[:80])

    def _dispatch(
        self, info: dict[str, object], value: dict[str, object], times: tuple[int, int], link: int
    ) -> None:
        stream = _handle(value.get("stream_id"))
        self.run.dispatch(
            _handle(info.get("agent_id")),
            # Files before ROCm 6.4 name the queue only.
            stream if stream != NULL else max(0, _handle(info.get("queue_id"))),
            times,
            None,
            (self._process, whole(info.get("kernel_id"))),
            _sizes(info.get("grid_size")),
            _sizes(info.get("workgroup_size")),
            lds=whole(info.get("group_segment_size")),
            correlation=link,
            dispatch=whole(info.get("dispatch_id")),
        )

    def _collection(self, value: dict[str, object]) -> None:
        """Hardware counters of a dispatch, summed over the instances of each counter."""
        data = value.get("dispatch_data")
        data = data if isinstance(data, dict) else {}
        info = data.get("dispatch_info")
        info = info if isinstance(info, dict) else {}
        sums: dict[int, float] = {}
        records = value.get("records")
        for record in records if isinstance(records, list) else ():
            number = _real(record.get("value")) if isinstance(record, dict) else None
            if number is None:
                self._builder.losses.add("counter without a number", dropped=False)
                continue
            counter = _handle(record.get("counter_id"))
            sums[counter] = sums.get(counter, 0.0) + number
        times = (whole(data.get("start_timestamp")), whole(data.get("end_timestamp")))
        if not NULL < times[0] <= times[1]:
            times = (NULL, NULL)
        for counter, number in sums.items():
            self._counted.append(
                whole(info.get("dispatch_id")), *times, counter, _bits(number),
                whole(info.get("kernel_id")),
            )  # fmt: skip

    # -- the end of a process ---------------------------------------------------------------------

    def _finish_process(self) -> None:
        """Hand on what needed the process's texts."""
        run, process = self.run, self._process
        for *agents_stream, start, end, kind, op, size, link in _rows(self._copies):
            source, target, stream = agents_stream
            name = self._operation(kind, op)
            run.copy((source, target), stream, (start, end), name, size, process, link)
        for tid, start, end, kind, op, link, is_marker in _rows(self._calls):
            thread = run.thread(self._pid, "" if tid == NULL else str(tid))
            name = self._operation(kind, op)
            # A mark's record holds its function; its text is kept by correlation id.
            message = self._messages.get(link) if is_marker and name.startswith(_MARKS) else None
            if message is None:
                run.call(thread, (start, end), name, process, link)
            else:
                run.range(thread, (start, end), message)
        for at, kind, op, address, size in _rows(self._memory):
            run.memory(at, "FREE" not in self._operation(kind, op).upper(), address, size)
        for dispatch, start, end, counter, bits, kernel in _rows(self._counted):
            run.counter(
                (process, dispatch),
                (start, end),
                self._counter_names.get(counter, f"counter {counter}"),
                bits,
                run.name_of(process, kernel),
            )

    def _operation(self, kind: int, op: int) -> str:
        if 0 <= kind < len(self._operations) and 0 <= op < len(self._operations[kind]):
            return str(self._operations[kind][op])
        return f"operation {op} of kind {kind}"


def _rows(rows: GrowingRows) -> zip[tuple[int, ...]]:
    return zip(*(column.tolist() for column in rows.columns().values()), strict=True)


def _member(value: object, key: str) -> int:
    return whole(value.get(key)) if isinstance(value, dict) else NULL


def _handle(value: object) -> int:
    """An id as `{"handle": 5}`, and an address also as `{"value": 5}` or hexadecimal text."""
    if isinstance(value, dict):
        value = value.get("handle", value.get("value"))
    if isinstance(value, str) and value.startswith("0x") and len(value) <= 18:
        try:
            return whole(int(value, 16))
        except ValueError:
            return NULL
    return whole(value)


def _sizes(value: object) -> tuple[int, int, int]:
    return (_member(value, "x"), _member(value, "y"), _member(value, "z"))


def _real(value: object) -> float | None:
    if not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _bits(number: float) -> int:
    import struct

    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits
