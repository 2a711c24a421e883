"""rocpd, the SQLite database of rocprofv3: schema 3 (columns in each table) and 4 (columns in tracks).

Tables carry the id of their run as a suffix (`rocpd_region_0000...`); views of the plain names join them
and are not used. Source: share/rocprofiler-sdk-rocpd/versions/*/rocpd_tables.sql, lib/output/generateRocpd.cpp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.capture.combine import combine
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.growing import NULL, GrowingRows, small, whole
from tokenpath.ingest.reader import Options, Reader, options_by_file
from tokenpath.ingest.rocprof.names import kernel_name
from tokenpath.ingest.rocprof.run import Gpu, Run, Symbol
from tokenpath.ingest.sqlite_file import Database, open_database

_TABLE = re.compile(
    r"rocpd_(metadata|string|info_node|info_process|info_thread|info_agent|info_kernel_symbol|info_pmc"
    r"|info_category|track|event|region|sample|kernel_dispatch|memory_copy|memory_allocate|pmc_event)"
    r"(_[0-9a-fA-F_]{8,64})?"
)
_MAX_AGENT_BYTES = 2**20
_PLACE = ("track_id", "pid", "tid", "agent_id", "queue_id", "stream_id")
_NO_PLACE = (NULL,) * 5


def read_files(reader: Reader, paths: Sequence[Path], options: Options) -> Capture:
    """A capture of all files, each a source of its own."""
    each = zip(paths, options_by_file(paths, options), strict=True)
    return combine([_read_one(reader, path, own) for path, own in each])


def _read_one(reader: Reader, path: Path, options: Options) -> Capture:
    builder = CaptureBuilder(reader, path, options)
    builder.origin.clock = "monotonic"
    builder.origin.profiler = "rocprofv3"
    run = Run(builder)
    with open_database(path, builder.losses) as database:
        suffixes: dict[str, int] = {}
        for name in database.tables:
            match = _TABLE.fullmatch(name)
            if match is not None:
                suffixes.setdefault(match[2] or "", len(suffixes))
        if not suffixes:
            raise DamagedInput("no table of rocpd could be read", where=str(path))
        for suffix, number in suffixes.items():
            _Part(database, suffix, number, run).read()
    run.finish()
    if options.progress is not None:
        options.progress(path.stat().st_size, path.stat().st_size)
    return builder.finish()


class _Part:
    """The tables of one run."""

    def __init__(self, database: Database, suffix: str, number: int, run: Run) -> None:
        self._database = database
        self._suffix = suffix
        self._run = run
        self._losses = run.builder.losses
        # Ids count from one in each run, so those of agents and processes are told apart by it.
        self._base = number << 32
        self._number = number
        self._agents: dict[int, int] = {}

    def read(self) -> None:
        """Hand all rows to the run."""
        strings = ((whole(key), str(text)) for key, text in self._rows("string", "id", "string"))
        self._strings = dict(strings)
        self._describe()
        self._read_tracks()
        self._read_events()
        self._read_dispatches()
        self._read_copies()
        self._read_regions()
        self._read_allocations()
        self._read_counters()

    def _rows(self, table: str, *columns: str) -> Iterator[tuple[object, ...]]:
        name = f"rocpd_{table}{self._suffix}"
        return self._database.rows(name, columns) if name in self._database.tables else iter(())

    def _numbers(self, table: str, *columns: str) -> Iterator[list[int]]:
        for row in self._rows(table, *columns):
            yield [whole(value) for value in row]

    def _describe(self) -> None:
        builder, run = self._run.builder, self._run
        for (host,) in self._rows("info_node", "hostname"):
            if isinstance(host, str) and host:
                builder.origin.host = builder.origin.host or host
        processes = self._rows("info_process", "id", "pid")
        self._pids = {whole(key): str(pid) for key, pid in processes}
        self._losses.add("command line", len(self._pids), lost=False, dropped=False)
        self._losses.add("environment", len(self._pids), lost=False, dropped=False)
        for tag, value in self._rows("metadata", "tag", "value"):
            if tag == "schema_version":
                builder.setting("rocpd.schema_version", value)
        self._threads: dict[int, int] = {}
        for key, pid, tid, name in self._rows("info_thread", "id", "pid", "tid", "name"):
            of_process = self._pids.get(whole(pid), str(pid))
            text = name if isinstance(name, str) else None
            self._threads[whole(key)] = run.thread(of_process, str(tid), text)
        for row in self._rows("info_agent", "id", "type", "type_index", "absolute_index",
                              "product_name", "name", "extdata"):  # fmt: skip
            self._agent(*row)
        for key, display, mangled, vgprs, more, lds in self._rows(
            "info_kernel_symbol", "id", "display_name", "kernel_name", "arch_vgpr_count",
            "accum_vgpr_count", "group_segment_size",
        ):  # fmt: skip
            name = kernel_name({"display_name": display, "kernel_name": mangled})
            known = [number for value in (vgprs, more) if (number := small(value)) >= 0]
            symbol = Symbol(name, sum(known) if known else NULL, whole(lds))
            run.symbol(self._number, whole(key), symbol)

    def _agent(self, key: object, kind: object, *rest: object) -> None:
        number = whole(key)
        if kind != "GPU" or not 0 <= number < 2**31:
            return
        type_index, absolute, product, name, more = rest
        indices = [index for value in (type_index, absolute, key) if (index := whole(value)) >= 0]
        facts: object = None
        if isinstance(more, str) and len(more) <= _MAX_AGENT_BYTES:
            try:
                facts = json.loads(more)
            except (ValueError, RecursionError):
                facts = None
        facts = facts if isinstance(facts, dict) else {}
        # The tool wraps what it saves into one nameless object.
        inner = facts.get("value0")
        facts = inner if isinstance(inner, dict) else facts
        banks = facts.get("mem_banks")
        sizes = [
            size
            for bank in (banks if isinstance(banks, list) else ())
            if isinstance(bank, dict) and (size := whole(bank.get("size_in_bytes"))) > 0
        ]
        units = whole(facts.get("cu_count"))
        texts = [text for text in (product, name) if isinstance(text, str) and text]
        self._run.gpus[self._base + number] = Gpu(
            indices[0],
            texts[0] if texts else None,
            units if 0 < units < 2**31 else None,
            max(sizes) if sizes else None,
        )

    def _agent_key(self, number: int) -> int:
        return self._base + number if 0 <= number < 2**31 else NULL

    def _read_tracks(self) -> None:
        rows = self._numbers("track", "id", "pid", "tid", "agent_id", "queue_id", "stream_id")
        self._tracks = {key: tuple(place) for key, *place in rows}
        names = self._numbers("track", "id", "name_id")
        self._track_names = {key: self._strings.get(name) for key, name in names}

    def _read_events(self) -> None:
        """Correlation by event; the texts of marks, which stand in the JSON of their events."""
        events = GrowingRows("id", "link")
        categories = {
            whole(key): str(name) for key, name in self._rows("info_category", "id", "name")
        }
        categories = categories or self._strings
        self._marks: dict[int, str] = {}
        for key, stack, link, category, more in self._rows(
            "event", "id", "stack_id", "correlation_id", "category_id", "extdata"
        ):
            number = whole(stack)
            # 0 is no correlation.
            events.append(whole(key), number if number > 0 else whole(link) or NULL)
            if "MARKER" in categories.get(whole(category), ""):
                self._marks[whole(key)] = _message(more)
        columns = events.columns()
        order = np.argsort(columns["id"], kind="stable")
        self._event_ids, self._links = columns["id"][order], columns["link"][order]

    def _link(self, event: int) -> int:
        at = int(np.searchsorted(self._event_ids, event))
        if at < len(self._event_ids) and self._event_ids[at] == event and event != NULL:
            return int(self._links[at])
        return NULL

    def _place(self, values: Sequence[int]) -> tuple[int, ...]:
        """(process, thread, agent, queue, stream) of a row, from its track where it has one."""
        track, *own = values
        known = self._tracks.get(track, _NO_PLACE) if track != NULL else _NO_PLACE
        return tuple(mine if mine != NULL else its for mine, its in zip(own, known, strict=True))

    def _read_dispatches(self) -> None:
        sizes = [f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz"]
        columns = ("start", "end", "kernel_id", "dispatch_id", "event_id", "group_segment_size")
        for row in self._numbers("kernel_dispatch", *_PLACE, *columns, *sizes):
            self._run.builder.num_events += 1
            _, _, agent, queue, stream = self._place(row[:6])
            start, end, kernel, dispatch, event, lds = row[6:12]
            self._run.dispatch(
                self._agent_key(agent),
                stream if stream != NULL else max(0, queue),
                (start, end),
                None,
                (self._number, kernel),
                row[12:15],
                row[15:18],
                lds=lds,
                correlation=self._link(event),
                dispatch=dispatch,
            )

    def _read_copies(self) -> None:
        columns = ("start", "end", "name_id", "src_agent_id", "dst_agent_id", "size", "event_id")
        for row in self._numbers("memory_copy", *_PLACE, *columns):
            self._run.builder.num_events += 1
            stream = self._place(row[:6])[4]
            start, end, name, source, target, size, event = row[6:]
            agents = [self._agent_key(number) for number in (source, target)]
            text = self._strings.get(name, "copy")
            link = self._link(event)
            self._run.copy(
                (agents[0], agents[1]), stream, (start, end), text, size, self._number, link
            )

    def _read_regions(self) -> None:
        columns = ("start", "end", "name_id", "event_id")
        for row in self._numbers("region", *_PLACE, *columns):
            self._run.builder.num_events += 1
            start, end, name, event = row[6:]
            text = self._strings.get(name, "unknown")
            thread = self._thread(row)
            message = self._marks.get(event)
            if message:
                self._run.range(thread, (start, end), message)
            else:
                self._run.call(thread, (start, end), text, self._number, self._link(event))
        for row in self._numbers("sample", *_PLACE, "timestamp", "event_id"):
            self._run.builder.num_events += 1
            message = self._marks.get(row[7]) or self._track_names.get(row[0]) or "mark"
            self._run.range(self._thread(row), (row[6], row[6]), message)

    def _thread(self, row: Sequence[int]) -> int:
        process, thread, *_ = self._place(row[:6])
        known = self._threads.get(thread)
        if known is not None:
            return known
        pid = self._pids.get(process, "" if process == NULL else str(process))
        return self._run.thread(pid, "" if thread == NULL else str(thread))

    def _read_allocations(self) -> None:
        for kind, level, *values in self._rows(
            "memory_allocate", "type", "level", "start", "address", "size"
        ):
            self._run.builder.num_events += 1
            at, address, size = (whole(value) for value in values)
            if level == "SCRATCH":
                self._losses.add("scratch memory")
            elif kind not in ("ALLOC", "FREE"):
                self._losses.add("allocation of another kind")
            else:
                self._run.memory(at, kind == "ALLOC", address, size)

    def _read_counters(self) -> None:
        names = {whole(key): str(name) for key, name in self._rows("info_pmc", "id", "name")}
        wanted: dict[tuple[int, int], float] = {}
        for event, pmc, value in self._rows("pmc_event", "event_id", "pmc_id", "value"):
            self._run.builder.num_events += 1
            if isinstance(value, (int, float)):
                key = (whole(event), whole(pmc))
                wanted[key] = wanted.get(key, 0.0) + value
            else:
                self._losses.add("counter without a number")
        if not wanted:
            return
        rows = self._numbers(
            "kernel_dispatch", "event_id", "dispatch_id", "kernel_id", "start", "end"
        )
        dispatches = {event: rest for event, *rest in rows}
        for (event, pmc), value in wanted.items():
            dispatch, kernel, *times = dispatches.get(event, [NULL] * 4)
            is_whole = NULL < times[0] <= times[1]
            self._run.counter(
                (self._number, dispatch),
                (times[0], times[1]) if is_whole else (NULL, NULL),
                names.get(pmc, f"counter {pmc}"),
                int(np.float64(value).view(np.int64)),
                self._run.name_of(self._number, kernel),
            )


def _message(more: object) -> str:
    if not isinstance(more, str) or len(more) > _MAX_AGENT_BYTES:
        return ""
    try:
        value = json.loads(more)
    except (ValueError, RecursionError):
        return ""
    message = value.get("message") if isinstance(value, dict) else None
    return message if isinstance(message, str) else ""
