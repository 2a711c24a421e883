"""What one rocprofv3 file says, gathered as columns and written as tables.

Times are those of rocprofiler's clock, nanoseconds since the machine's start (CLOCK_BOOTTIME, or the HSA
system clock): no epoch is in the file, so the capture's clock is monotonic. Sources: rocprofiler-sdk,
`source/lib/output/` (generateJSON.cpp, generateCSV.cpp) and `share/rocprofiler-sdk-rocpd/*.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.core.hardware import find_hardware
from tokenpath.ingest import arrow
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.growing import (
    BY_NAME,
    MEMCPY,
    NULL,
    GrowingRows,
    Words,
    find_rows,
    kinds_and_families,
    nullable,
    nullable_ids,
)

Int64s = NDArray[np.int64]

_GRID = ("grid_x", "grid_y", "grid_z")
_BLOCK = ("block_x", "block_y", "block_z")
NO_SIZES = (NULL, NULL, NULL)
COPY_STREAM = -1
"""Stream of copies whose file names none: they run on engines of their own, apart from all queues."""

LATE_NAME = -2
"""Name code of a dispatch whose kernel symbol may come later in the file."""


@dataclass(frozen=True)
class Gpu:
    """A GPU agent; None where the file does not say."""

    index: int
    """Number among the GPUs of the machine, or of the node where only that is known."""
    name: str | None = None
    """Product name."""
    num_units: int | None = None
    """Compute units."""
    memory_bytes: int | None = None
    """Device memory."""


@dataclass(frozen=True)
class Symbol:
    """A kernel symbol."""

    name: str
    """Demangled, without the `.kd` of its descriptor."""
    num_registers: int = NULL
    """Vector registers a work item: architectural and accumulation ones, which share one file."""
    lds_bytes: int = NULL
    """Static local memory of a workgroup."""


class Run:
    """The records of one file on their way to the tables of one source."""

    def __init__(self, builder: CaptureBuilder) -> None:
        self.builder = builder
        self.words = Words()
        self.gpus: dict[int, Gpu] = {}
        """GPU agents by the id that records name."""
        self._symbols: dict[tuple[int, int], Symbol] = {}
        self._threads: dict[tuple[str, str], int] = {}
        self._thread_names: dict[int, str] = {}
        sizes = (*_GRID, *_BLOCK)
        self._work = GrowingRows(
            "agent", "stream", "start", "end", "name", "how", "process", "symbol", *sizes,
            "registers", "lds", "bytes", "correlation", "dispatch",
        )  # fmt: skip
        self._calls = GrowingRows("thread", "start", "end", "name", "process", "correlation")
        self._ranges = GrowingRows("thread", "start", "end", "name")
        self._memory = GrowingRows("at", "is_alloc", "address", "bytes")
        self._counters = GrowingRows(
            "process", "dispatch", "start", "end", "counter", "value", "name"
        )

    def symbol(self, process: int, number: int, symbol: Symbol) -> None:
        """Say what a kernel id means; order within the file does not matter."""
        self._symbols[process, number] = symbol

    def name_of(self, process: int, number: int) -> str | None:
        """Name of a kernel id, if its symbol is known by now."""
        symbol = self._symbols.get((process, number))
        return None if symbol is None else symbol.name

    def thread(self, process: str, thread: str, name: str | None = None) -> int:
        """Row of `thread`, a new one for a new pair."""
        row = self._threads.setdefault((process, thread), len(self._threads))
        if name:
            self._thread_names.setdefault(row, name)
        return row

    def dispatch(
        self,
        agent: int,
        stream: int,
        times: tuple[int, int],
        name: str | None,
        key: tuple[int, int],
        grid: Sequence[int],
        block: Sequence[int],
        *,
        registers: int = NULL,
        lds: int = NULL,
        correlation: int = NULL,
        dispatch: int = NULL,
    ) -> None:
        """A kernel; `key` is (process, kernel id), which names it when `name` is None.

        `grid` is in work items, as the ROCm runtime counts; the table's is in workgroups.
        """
        if not self._keep(times) or not self._known(agent):
            return
        code = LATE_NAME if name is None else self.words.code(name)
        self._work.append(
            agent, stream, *times, code, BY_NAME, *key, *grid, *block,
            registers, lds, NULL, correlation, dispatch,
        )  # fmt: skip

    def copy(
        self,
        agents: tuple[int, int],
        stream: int,
        times: tuple[int, int],
        name: str,
        num_bytes: int,
        process: int,
        correlation: int,
    ) -> None:
        """A copy between (source, destination) agents.

        It counts for the GPU that takes part, the source where both do.
        """
        here = [agent for agent in agents if agent in self.gpus]
        if not here:
            self.builder.losses.add("copy without a GPU")
            return
        if self._keep(times):
            stream = COPY_STREAM if stream == NULL else stream
            self._work.append(
                here[0], stream, *times, self.words.code(name), MEMCPY, process, NULL,
                *NO_SIZES, *NO_SIZES, NULL, NULL, num_bytes, correlation, NULL,
            )  # fmt: skip

    def call(
        self, thread: int, times: tuple[int, int], name: str, process: int, correlation: int
    ) -> None:
        """A HIP, HSA, RCCL or other API call."""
        if self._keep(times):
            self._calls.append(thread, *times, self.words.code(name), process, correlation)

    def range(self, thread: int, times: tuple[int, int], name: str) -> None:
        """A ROCTx range or mark."""
        if self._keep(times):
            self._ranges.append(thread, *times, self.words.code(name))

    def memory(self, at: int, is_alloc: bool, address: int, num_bytes: int) -> None:
        """A device memory allocation or its end; a free may leave the size out."""
        if self._keep((at, at)):
            self._memory.append(at, is_alloc, address, num_bytes)

    def counter(
        self,
        key: tuple[int, int],
        times: tuple[int, int],
        counter: str,
        bits: int,
        kernel: str | None,
    ) -> None:
        """A hardware counter of the dispatch with this (process, dispatch id).

        The value is given as the bits of a float64.
        """
        name = -1 if kernel is None else self.words.code(kernel)
        self._counters.append(*key, *times, self.words.code(counter), bits, name)

    def _keep(self, times: tuple[int, int]) -> bool:
        start, end = times
        if start == NULL or end == NULL:
            reason = "missing timestamp"
        elif start <= 0 or end < 0:
            # The profiler writes 0 where the hardware gave no time.
            reason = "zero timestamp" if start == 0 else "timestamp out of range"
        elif end < start:
            reason = "end before start"
        else:
            return True
        self.builder.losses.add(reason)
        return False

    def _known(self, agent: int) -> bool:
        if agent in self.gpus:
            return True
        if agent == NULL:
            self.builder.losses.add("dispatch without an agent")
            return False
        # Without a list of agents the number of the agent is all there is.
        self.gpus[agent] = Gpu(agent & (2**32 - 1))
        return True

    def finish(self) -> None:
        """Write all tables of the source."""
        self._add_threads()
        calls, links = self._add_calls()
        work = self._work.columns()
        self._add_work(work, calls, links)
        self._add_ranges()
        self._add_memory()
        self._add_counters(work)

    def _add_threads(self) -> None:
        pairs = list(self._threads)
        names = [self._thread_names.get(row) for row in range(len(pairs))]
        pids, tids = [pid for pid, _ in pairs], [tid for _, tid in pairs]
        self.builder.add("thread", {"pid": pids, "tid": tids, "name": arrow.encode(names)})

    def _add_calls(self) -> tuple[Int64s, Int64s]:
        """The (process, correlation) of each call, an array (num_calls, 2), and their rows."""
        calls = self._calls.columns()
        order = np.argsort(calls["start"], kind="stable")
        calls = {name: values[order] for name, values in calls.items()}
        self.builder.add(
            "api_call",
            {
                "thread_id": calls["thread"].astype(np.int32),
                "start_ns": calls["start"],
                "end_ns": calls["end"],
                "name": self.words.column(calls["name"]),
                "correlation_id": nullable(calls["correlation"]),
            },
        )
        keys = np.stack([calls["process"], calls["correlation"]], axis=1)
        return keys, np.arange(len(keys), dtype=np.int64)

    def _add_work(self, work: dict[str, Int64s], keys: Int64s, rows: Int64s) -> None:
        self._name_late(work)
        order = np.argsort(work["start"], kind="stable")
        work.update({name: values[order] for name, values in work.items()})
        used = dict.fromkeys(np.unique(work["agent"]).tolist())
        device_of = {agent: row for row, agent in enumerate(used)}
        self.builder.add_rows("device", [self._device_row(agent) for agent in used])
        agents, which = np.unique(work["agent"], return_inverse=True)
        devices = np.array([device_of[agent] for agent in agents.tolist()], np.int32)
        wanted = np.stack([work["process"], work["correlation"]], axis=1)
        self.builder.add(
            "kernel",
            {
                "device_id": devices[which] if len(which) else which.astype(np.int32),
                "stream_id": work["stream"],
                "start_ns": work["start"],
                "end_ns": work["end"],
                "name": self.words.column(work["name"]),
                **kinds_and_families(work["name"], self.words, work["how"]),
                "grid": _workgroups(work),
                "block": _triples(work, _BLOCK),
                "registers_per_thread": _int32s(work["registers"]),
                "shared_memory_bytes": nullable(work["lds"]),
                "bytes": nullable(work["bytes"]),
                "correlation_id": nullable(work["correlation"]),
                "api_call_id": nullable_ids(find_rows(wanted, keys, rows)),
            },
        )

    def _name_late(self, work: dict[str, Int64s]) -> None:
        """Names, registers and memory of dispatches that named their kernel by its id."""
        late = np.flatnonzero(work["name"] == LATE_NAME)
        keys = np.stack([work["process"][late], work["symbol"][late]], axis=1)
        distinct, which = np.unique(keys, axis=0, return_inverse=True)
        found = [self._symbols.get((process, number)) for process, number in distinct.tolist()]
        which = which.reshape(-1)
        unknown = sum(
            np.bincount(which, minlength=len(found))[i] for i, s in enumerate(found) if not s
        )
        self.builder.losses.add("kernel without a name", int(unknown), dropped=False)
        symbols = [symbol or Symbol("unknown kernel") for symbol in found]
        for column, values in (
            ("name", [self.words.code(symbol.name) for symbol in symbols]),
            ("registers", [symbol.num_registers for symbol in symbols]),
        ):
            work[column][late] = np.array(values, np.int64)[which]
        lds = np.array([symbol.lds_bytes for symbol in symbols], np.int64)[which]
        work["lds"][late] = np.where(work["lds"][late] == NULL, lds, work["lds"][late])

    def _device_row(self, agent: int) -> dict[str, object]:
        gpu = self.gpus[agent]
        part = find_hardware(gpu.name, gpu.memory_bytes, gpu.num_units)
        return {
            "index": gpu.index,
            "name": gpu.name,
            "num_sms": gpu.num_units,
            "memory_bytes": gpu.memory_bytes,
            "vendor": "amd",
            "hardware": None if part is None else part.key,
            "resolved_by": None if part is None else part.resolved_by,
        }

    def _add_ranges(self) -> None:
        ranges = self._ranges.columns()
        order = np.lexsort((-ranges["end"], ranges["start"], ranges["thread"]))
        ranges = {name: values[order] for name, values in ranges.items()}
        self.builder.add(
            "range",
            {
                "side": arrow.texts(np.zeros(len(order), np.int32), ["host"]),
                "thread_id": ranges["thread"].astype(np.int32),
                "start_ns": ranges["start"],
                "end_ns": ranges["end"],
                "name": self.words.column(ranges["name"]),
            },
        )

    def _add_memory(self) -> None:
        """Allocations of the driver; a free gets the size of the block that lies at its address."""
        held: dict[int, int] = {}
        rows: list[tuple[int, int, int, int]] = []
        events = self._memory.columns()
        order = np.argsort(events["at"], kind="stable")
        listed = zip(*(events[name][order].tolist() for name in events), strict=True)
        for at, is_alloc, address, num_bytes in listed:
            if is_alloc:
                held[address] = num_bytes
            else:
                size = held.pop(address, NULL) if num_bytes in (NULL, 0) else num_bytes
                num_bytes = NULL if size == NULL else -size
            if num_bytes == NULL or (is_alloc and num_bytes < 0):
                self.builder.losses.add("allocation of unknown size")
                continue
            rows.append((at, is_alloc, address, num_bytes))
        at, is_alloc, address, sizes = np.array(rows, np.int64).reshape(-1, 4).T
        labels = ["segment_free", "segment_alloc"]
        self.builder.add(
            "memory_event",
            {
                "at_ns": np.ascontiguousarray(at),
                "action": arrow.texts(is_alloc.astype(np.int32), labels),
                "address": nullable(address),
                "bytes": np.ascontiguousarray(sizes),
            },
        )

    def _add_counters(self, work: dict[str, Int64s]) -> None:
        counters = self._counters.columns()
        kernels = np.flatnonzero(work["dispatch"] != NULL)
        keys = np.stack([work["process"][kernels], work["dispatch"][kernels]], axis=1)
        wanted = np.stack([counters["process"], counters["dispatch"]], axis=1)
        self.builder.add(
            "kernel_counter",
            {
                "kernel_id": nullable_ids(find_rows(wanted, keys, kernels)),
                "start_ns": nullable(counters["start"]),
                "end_ns": nullable(counters["end"]),
                "launch": nullable(counters["dispatch"]),
                "name": self.words.column(counters["counter"]),
                "value": counters["value"].view(np.float64),
                "range_name": self.words.column(counters["name"]),
            },
        )


def _workgroups(work: dict[str, Int64s]) -> pa.Array:
    """Workgroups in x, y, z from work items, rounded up; NULL where either size is unknown."""
    items = np.stack([work[name] for name in _GRID], axis=1)
    sizes = np.stack([work[name] for name in _BLOCK], axis=1)
    valid = np.all((items > 0) & (sizes > 0), axis=1)
    groups = (np.where(valid[:, None], items, 1) - 1) // np.where(valid[:, None], sizes, 1) + 1
    valid &= np.all(groups < 2**31, axis=1)
    return arrow.triples(np.where(valid[:, None], groups, 0).astype(np.int32), valid)


def _triples(work: dict[str, Int64s], names: Sequence[str]) -> pa.Array:
    values = np.stack([work[name] for name in names], axis=1)
    valid = np.all((values >= 0) & (values < 2**31), axis=1)
    return arrow.triples(np.where(valid[:, None], values, 0).astype(np.int32), valid)


def _int32s(values: Int64s) -> pa.Array:
    return nullable_ids(np.where(values < 2**31, values, -1))
