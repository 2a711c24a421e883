"""Where things ran: processes, threads, devices, streams.

A serialised id holds host, virtual machine and process in its upper 40 bits and the thread in the lower 24
(docs.nvidia.com/nsight-systems, "Serialized process and thread identifiers"). Correlation ids, stream
numbers and device numbers are unique within a process or context only, so

- each process is a row of `source` of its own, within which `stitch` matches correlation ids;
- a device that several processes or contexts use has each one's streams in a number range of its own:
  stream + 2**32 times the number of the context, in the order met, the first unchanged;
- the device number of a process is looked up in TARGET_INFO_CUDA_DEVICE, where the export has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass

import numpy as np

from tokenpath.capture.intervals import Int64s
from tokenpath.core.units import INT64_MIN
from tokenpath.ingest.nsys.export import Export
from tokenpath.ingest.nsys.names import Codes, Strings, codes_of

_TID_BITS = 24
_TID_MASK = (1 << _TID_BITS) - 1
_UNKNOWN = INT64_MIN
_STREAMS = 2**32


def process_key(serial: Int64s) -> Int64s:
    """The process part of serialised process or thread ids."""
    return np.where(serial == INT64_MIN, _UNKNOWN, serial & ~_TID_MASK)


def pid_of(key: int) -> int:
    """The process id in a serialised id."""
    return (key >> _TID_BITS) & _TID_MASK


class Processes:
    """Numbers of `source` for processes, in the order met."""

    def __init__(self) -> None:
        self.keys: list[int] = []
        """Serialised id of each process; INT64_MIN for one that the rows do not name."""
        self.num_events: list[int] = []
        """Rows of each process."""
        self._number: dict[int, int] = {}

    def rows(self, key: Int64s) -> Codes:
        """The source of each row, counted; where rows do not say, the only process there is."""
        distinct, codes = codes_of(key)
        numbers = np.array([self._find(int(value)) for value in distinct], np.int32)
        result = numbers[codes] if len(numbers) else codes
        for number, count in enumerate(np.bincount(result, minlength=len(self.keys)).tolist()):
            self.num_events[number] += count
        return result

    def uncount(self, source: Codes) -> None:
        """Take back the count of rows that are counted elsewhere."""
        for number, count in enumerate(np.bincount(source, minlength=len(self.keys)).tolist()):
            self.num_events[number] -= count

    def _find(self, key: int) -> int:
        if key == _UNKNOWN and len(self.keys) == 1:
            return 0
        if key not in self._number:
            self._number[key] = len(self.keys)
            self.keys.append(key)
            self.num_events.append(0)
        return self._number[key]


class Threads:
    """Rows of `thread`, in the order met."""

    def __init__(self) -> None:
        self.serials: list[int] = []
        """Serialised id of each thread."""
        self.sources: list[int] = []
        """Source of each thread."""
        self._row: dict[tuple[int, int], int] = {}

    def rows(self, serial: Int64s, source: Codes) -> Codes:
        """The row of each one's thread."""
        # A process has one source, so the serial tells both, unless it is unknown.
        distinct, codes = codes_of(serial)
        first = np.zeros(len(distinct), np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        rows = np.array(
            [
                self._find(value, number)
                for value, number in zip(distinct.tolist(), source[first].tolist(), strict=True)
            ],
            np.int32,
        )
        return rows[codes] if len(rows) else codes

    def _find(self, serial: int, source: int) -> int:
        key = (serial, source)
        if key not in self._row:
            self._row[key] = len(self.serials)
            self.serials.append(serial)
            self.sources.append(source)
        return self._row[key]

    def table(self, export: Export, strings: Strings, named: Mapping[int, str]) -> dict[str, Sized]:
        """Columns of `thread`; `named` are names that the program gave its threads."""
        names = export.read("ThreadNames", ["nameId", "globalTid"])
        of_thread = {
            serial: strings.text(name)
            for serial, name in zip(
                names.integer("globalTid").tolist(), names.integer("nameId").tolist(), strict=True
            )
            if serial in set(self.serials)
        }
        processes = export.read("PROCESSES", ["globalPid"], ["name"])
        of_process = processes.texts_by("globalPid", "name")
        return {
            "source_id": np.array(self.sources, np.int32),
            "pid": [self._shown(serial, pid_of(serial)) for serial in self.serials],
            "tid": [self._shown(serial, serial & _TID_MASK) for serial in self.serials],
            "name": [
                named.get(serial) or of_thread.get(serial) or of_process.get(serial & ~_TID_MASK)
                for serial in self.serials
            ],
        }

    @staticmethod
    def _shown(serial: int, number: int) -> str:
        return "unknown" if serial == _UNKNOWN else str(number)


@dataclass
class _Gpu:
    name: str | None = None
    num_sms: int | None = None
    memory_bytes: int | None = None


class Devices:
    """Rows of `device`, in the order met."""

    def __init__(self, export: Export) -> None:
        self._gpus = _read_gpus(export)
        self._gpu_of, self._sms_of = _read_numbers(export)
        self._row: dict[int, int] = {}
        self._source: list[int] = []
        self._contexts: dict[tuple[int, int, int], int] = {}
        self._num_contexts: dict[int, int] = {}
        self._processes: dict[int, set[int]] = {}
        self._is_mapped = True

    def rows(
        self, source: Codes, key: Int64s, device: Int64s, context: Int64s, stream: Int64s
    ) -> tuple[Codes, Int64s]:
        """The row of each one's device, and its stream, unique on that device."""
        _, context_codes = codes_of(context)
        place = (source.astype(np.int64) << 32) + context_codes
        _, place_codes = codes_of(place)
        devices, device_codes = codes_of(device)
        both = place_codes.astype(np.int64) * max(1, len(devices)) + device_codes
        distinct, codes = codes_of(both)
        first = np.zeros(len(distinct), np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        rows, bases = np.empty(len(distinct), np.int32), np.empty(len(distinct), np.int64)
        for number, at in enumerate(first.tolist()):
            owner = int(source[at])
            row = self._find(owner, int(key[at]), int(device[at]))
            rows[number] = row
            bases[number] = self._context(row, owner, int(context[at])) * _STREAMS
        if len(distinct) == 0:
            return codes, stream
        return rows[codes], stream + bases[codes]

    def known_row(self, key: int, device: int) -> int:
        """The row of a device that did something; -1 for any other."""
        return self._row.get(self._gpu(key, device), -1)

    def base_of(self, row: int, source: int, context: int) -> int:
        """What was added to the streams of a context."""
        return self._contexts.get((row, source, context), 0) * _STREAMS

    @property
    def are_ambiguous(self) -> bool:
        """Whether processes share a device number that nothing maps to a device."""
        return not self._gpu_of and any(len(users) > 1 for users in self._processes.values())

    def table(self) -> dict[str, Sized]:
        """Columns of `device`."""
        gpus = [self._gpus.get(index, _Gpu()) for index in self._row]
        sms = [
            gpu.num_sms or self._sms_of.get(index)
            for gpu, index in zip(gpus, self._row, strict=True)
        ]
        return {
            "source_id": np.array(self._source, np.int32),
            "index": np.array(list(self._row), np.int64),
            "name": [gpu.name for gpu in gpus],
            "num_sms": sms,
            "memory_bytes": [gpu.memory_bytes for gpu in gpus],
            "vendor": ["nvidia"] * len(gpus),
        }

    def _find(self, source: int, key: int, device: int) -> int:
        index = self._gpu(key, device)
        self._processes.setdefault(index, set()).add(source)
        if index not in self._row:
            self._row[index] = len(self._row)
            self._source.append(source)
        return self._row[index]

    def _gpu(self, key: int, device: int) -> int:
        return self._gpu_of.get((pid_of(key), device), device)

    def _context(self, row: int, source: int, context: int) -> int:
        place = (row, source, context)
        if place not in self._contexts:
            self._contexts[place] = self._num_contexts.get(row, 0)
            self._num_contexts[row] = self._contexts[place] + 1
        return self._contexts[place]


def _read_gpus(export: Export) -> dict[int, _Gpu]:
    columns = export.read("TARGET_INFO_GPU", ["id", "smCount", "totalMemory"], ["name"])
    gpus = {}
    for index, sms, memory, name in zip(
        columns.integer("id").tolist(),
        columns.integer("smCount").tolist(),
        columns.integer("totalMemory").tolist(),
        columns.text("name").to_pylist(),
        strict=True,
    ):
        gpus[index] = _Gpu(
            name or None, sms if 0 < sms < 2**31 else None, memory if memory > 0 else None
        )
    return gpus


def _read_numbers(export: Export) -> tuple[dict[tuple[int, int], int], dict[int, int]]:
    """(process id, its number of a device) -> device, and multiprocessors by device."""
    columns = export.read(
        "TARGET_INFO_CUDA_DEVICE", ["gpuId", "cudaId", "pid", "numMultiprocessors"]
    )
    device_of, sms_of = {}, {}
    for gpu, number, pid, sms in zip(
        columns.integer("gpuId").tolist(),
        columns.integer("cudaId").tolist(),
        columns.integer("pid").tolist(),
        columns.integer("numMultiprocessors").tolist(),
        strict=True,
    ):
        if INT64_MIN not in (gpu, number, pid):
            device_of[pid, number] = gpu
        if 0 < sms < 2**31:
            sms_of[gpu] = sms
    return device_of, sms_of
