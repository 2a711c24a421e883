"""rocprofv3 CSV: one file a kind of record, columns by name (they differ between versions)."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.capture.combine import combine
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.growing import NULL, small, whole
from tokenpath.ingest.packed import Unpacked, open_unpacked
from tokenpath.ingest.reader import Options, Reader, options_by_file
from tokenpath.ingest.rocprof.join import join_run
from tokenpath.ingest.rocprof.names import strip_descriptor
from tokenpath.ingest.rocprof.run import Gpu, Run

_KIND = re.compile(
    r"_(?:\w+_api_trace|kernel_trace|memory_copy_trace|memory_allocation_trace|scratch_memory_trace"
    r"|counter_collection|agent_info)\.csv(?:\.\w+)?$"
)
_AGENT = re.compile(r"(?:Agent )?(\d{1,9})")
_MAX_LINE_CHARS = 2**20
_PROCESS = 0
"""Correlation ids count from one in every process, and a file is of one process."""

Row = Mapping[str, str]


def read_files(reader: Reader, paths: Sequence[Path], options: Options) -> Capture:
    """A capture of all files, each a source of its own; files of one run share devices and threads."""
    runs: dict[tuple[Path, str], list[tuple[Path, Options]]] = {}
    for path, own in zip(paths, options_by_file(paths, options), strict=True):
        runs.setdefault((path.parent, _KIND.sub("", path.name)), []).append((path, own))
    return combine([_read_run(reader, files) for files in runs.values()])


def _read_run(reader: Reader, files: Sequence[tuple[Path, Options]]) -> Capture:
    gpus: dict[int, Gpu] = {}
    # The list of agents first: the other files name them by number only.
    order = sorted(range(len(files)), key=lambda at: "agent_info" not in files[at][0].name)
    captures = {at: _read_one(reader, *files[at], gpus) for at in order}
    capture = combine([captures[at] for at in range(len(files))])
    return join_run(capture) if len(files) > 1 else capture


def _read_one(reader: Reader, path: Path, options: Options, gpus: dict[int, Gpu]) -> Capture:
    builder = CaptureBuilder(reader, path, options)
    builder.origin.clock = "monotonic"
    builder.origin.profiler = "rocprofv3"
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    run = Run(builder)
    run.gpus.update(gpus)
    lines = csv.reader(_lines(unpacked))
    header = _next_row(lines, builder)
    take = _taker(header or [], run, gpus)
    if header is None or take is None:
        raise DamagedInput(
            "the columns are those of no rocprofv3 file",
            where=str(path),
            allowed="files of `rocprofv3 --output-format csv`",
        )
    while (values := _next_row(lines, builder)) is not None:
        builder.num_events += 1
        if len(values) != len(header):
            builder.losses.add("row of another length")
        else:
            take(dict(zip(header, values, strict=True)))
    unpacked.report_done()
    for problem in unpacked.problems:
        builder.losses.add(problem.split(":")[0], dropped=False)
    run.finish()
    return builder.finish()


def _lines(unpacked: Unpacked) -> Iterator[str]:
    """Lines of text; a NUL, which ends a row for some versions of the csv module, is taken out."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    rest = ""
    for chunk in unpacked.chunks:
        for low in range(0, len(chunk), 2**18):
            rest += decoder.decode(chunk[low : low + 2**18].tobytes()).replace("\0", "\ufffd")
            *lines, rest = rest.split("\n")
            yield from (line + "\n" for line in lines)
            if len(rest) > _MAX_LINE_CHARS:
                # Too long for the reader of rows, which counts it.
                yield rest
                rest = "\n"
    rest += decoder.decode(b"", True)
    if rest:
        yield rest


def _next_row(lines: Iterator[list[str]], builder: CaptureBuilder) -> list[str] | None:
    while True:
        try:
            row = next(lines, None)
        except csv.Error:
            builder.num_events += 1
            builder.losses.add("malformed row")
            continue
        if row is None or row:
            return row


def _taker(header: Sequence[str], run: Run, gpus: dict[int, Gpu]) -> Callable[[Row], None] | None:
    """Who keeps the rows of a file with these columns."""
    columns = set(header)
    if len(columns) != len(header):
        return None
    if {"Counter_Name", "Counter_Value", "Dispatch_Id"} <= columns:
        return lambda row: _counter(row, run)
    if {"Kernel_Name", "Agent_Id", "Start_Timestamp", "End_Timestamp"} <= columns:
        return lambda row: _kernel(row, run)
    if {"Domain", "Function", "Start_Timestamp", "End_Timestamp"} <= columns:
        return lambda row: _call(row, run)
    if {"Direction", "Start_Timestamp", "End_Timestamp"} <= columns:
        return lambda row: _copy(row, run)
    if {"Operation", "Allocation_Size", "Start_Timestamp"} <= columns:
        return lambda row: _memory(row, run)
    if {"Operation", "Queue_Id", "Start_Timestamp"} <= columns:
        return lambda _row: run.builder.losses.add("scratch memory")
    if {"Node_Id", "Agent_Type"} <= columns:
        return lambda row: _agent(row, run, gpus)
    return None


def _times(row: Row) -> tuple[int, int]:
    return whole(row.get("Start_Timestamp")), whole(row.get("End_Timestamp"))


def _agent_number(text: str | None) -> int:
    match = _AGENT.fullmatch(text or "")
    return NULL if match is None else int(match[1])


def _kernel(row: Row, run: Run) -> None:
    stream = whole(row.get("Stream_Id"))
    registers = [small(row.get(name)) for name in ("VGPR_Count", "Accum_VGPR_Count")]
    known = [number for number in registers if number != NULL]
    lds = whole(row.get("LDS_Block_Size"))
    run.dispatch(
        _agent_number(row["Agent_Id"]),
        stream if stream != NULL else max(0, whole(row.get("Queue_Id"))),
        _times(row),
        strip_descriptor(row["Kernel_Name"]),
        (_PROCESS, NULL),
        [whole(row.get(f"Grid_Size_{axis}")) for axis in "XYZ"],
        [whole(row.get(f"Workgroup_Size_{axis}")) for axis in "XYZ"],
        registers=sum(known) if known else NULL,
        lds=lds if lds != NULL else whole(row.get("Group_Segment_Size")),
        correlation=whole(row.get("Correlation_Id")),
        dispatch=whole(row.get("Dispatch_Id")),
    )


def _call(row: Row, run: Run) -> None:
    thread = run.thread(row.get("Process_Id", ""), row.get("Thread_Id", ""))
    name, domain = row["Function"], row["Domain"]
    # The text of a mark stands where other calls have their function.
    if domain.startswith("MARKER_CORE") and not name.startswith("roctx"):
        run.range(thread, _times(row), name)
    else:
        run.call(thread, _times(row), name, _PROCESS, whole(row.get("Correlation_Id")))


def _copy(row: Row, run: Run) -> None:
    source, target = (
        _agent_number(row.get(name)) for name in ("Source_Agent_Id", "Destination_Agent_Id")
    )
    direction = row["Direction"]
    # Agents are numbered together, so the direction says which of the two is a GPU.
    for agent, mark in ((source, "DEVICE_TO"), (target, "TO_DEVICE")):
        if mark in direction and agent != NULL:
            run.gpus.setdefault(agent, Gpu(agent))
    on_device = tuple(
        agent if mark in direction else NULL
        for agent, mark in ((source, "DEVICE_TO"), (target, "TO_DEVICE"))
    )
    link = whole(row.get("Correlation_Id"))
    stream = whole(row.get("Stream_Id"))
    run.copy((on_device[0], on_device[1]), stream, _times(row), direction, NULL, _PROCESS, link)


def _memory(row: Row, run: Run) -> None:
    address = row.get("Address", "")
    try:
        at = whole(int(address, 16 if address.startswith("0x") else 10)) if address else NULL
    except ValueError:
        at = NULL
    is_alloc = "FREE" not in row["Operation"].upper()
    run.memory(_times(row)[0], is_alloc, at, whole(row.get("Allocation_Size")))


def _counter(row: Row, run: Run) -> None:
    import struct

    try:
        bits = struct.unpack("<q", struct.pack("<d", float(row["Counter_Value"])))[0]
    except (ValueError, OverflowError):
        run.builder.losses.add("counter without a number")
        return
    start, end = _times(row)
    times = (start, end) if NULL < start <= end else (NULL, NULL)
    name = strip_descriptor(row.get("Kernel_Name", "")) or None
    run.counter((_PROCESS, whole(row["Dispatch_Id"])), times, row["Counter_Name"], bits, name)


def _agent(row: Row, run: Run, gpus: dict[int, Gpu]) -> None:
    run.builder.losses.add("agent description", lost=False)
    number, units = whole(row["Node_Id"]), whole(row.get("Cu_Count"))
    if row["Agent_Type"] == "GPU" and number >= 0:
        name = row.get("Product_Name") or row.get("Name") or None
        gpus[number] = Gpu(len(gpus), name, units if 0 < units < 2**31 else None)
