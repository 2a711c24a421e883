"""Small Kineto-like traces for tests: events in, JSON bytes or a file out.

    from ingest.traces import Trace
    Trace(rank=0).launched("gemm", launch_us=0, start_us=12, dur_us=5).write(tmp_path / "a.json.gz")

Every method adds one event (or a few) and returns the trace. Times are microseconds: int, float or
Decimal; a Decimal is written digit for digit. Further keyword arguments go into `args`.
"""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

Us = int | float | Decimal

H100 = "NVIDIA H100 80GB HBM3"


class Raw(str):
    """Text that is written into the JSON as it stands."""


class Trace:
    """A trace under construction; `bytes` and `write` give what a profiler would have left."""

    def __init__(
        self,
        *,
        base_time_ns: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        trace_id: str | None = None,
        device_name: str | None = H100,
        num_sms: int | None = 132,
        pid: int | str = 100,
        tid: int | str = 100,
        **top: object,
    ) -> None:
        """What stands beside the events; `device_name=None` leaves the device properties out."""
        self.pid, self.tid = pid, tid
        self.events: list[object] = []
        self.head: dict[str, object] = {"schemaVersion": 1}
        self.tail: dict[str, object] = {"traceName": "trace.json"}
        self._correlation = 0
        if device_name is not None:
            properties: dict[str, object] = {"id": 0, "name": device_name}
            properties["totalGlobalMem"] = 85018279936
            if num_sms is not None:
                properties["numSms"] = num_sms
            self.head["deviceProperties"] = [properties]
        if rank is not None or world_size is not None:
            info: dict[str, object] = {"backend": "nccl"}
            info.update({"rank": rank} if rank is not None else {})
            info.update({"world_size": world_size} if world_size is not None else {})
            self.head["distributedInfo"] = info
        if trace_id is not None:
            self.head["trace_id"] = trace_id
        if base_time_ns is not None:
            self.tail["displayTimeUnit"] = "ms"
            self.tail["baseTimeNanoseconds"] = base_time_ns
        self.head.update(top)

    # -- device side ------------------------------------------------------------------------------

    def kernel(
        self,
        name: str,
        start_us: Us,
        dur_us: Us,
        *,
        stream: int = 7,
        correlation: int | None = None,
        device: int = 0,
        external_id: int | None = None,
        grid: Sequence[int] | None = (1, 1, 1),
        block: Sequence[int] | None = (128, 1, 1),
        **args: object,
    ) -> Self:
        """Device work of category `kernel`."""
        own = {"device": device, "context": 1, "stream": stream, "correlation": correlation}
        own |= {"External id": external_id, "grid": grid, "block": block}
        return self.complete("kernel", name, start_us, dur_us, device, stream, own | args)

    def memcpy(
        self,
        start_us: Us,
        dur_us: Us,
        *,
        name: str = "Memcpy HtoD (Pageable -> Device)",
        stream: int = 7,
        correlation: int | None = None,
        device: int = 0,
        num_bytes: int = 1024,
        **args: object,
    ) -> Self:
        """A copy on a device."""
        own = {"device": device, "context": 1, "stream": stream, "correlation": correlation}
        own |= {"bytes": num_bytes}
        return self.complete("gpu_memcpy", name, start_us, dur_us, device, stream, own | args)

    def memset(
        self,
        start_us: Us,
        dur_us: Us,
        *,
        stream: int = 7,
        correlation: int | None = None,
        device: int = 0,
        num_bytes: int = 1024,
        **args: object,
    ) -> Self:
        """A fill on a device."""
        own = {"device": device, "context": 1, "stream": stream, "correlation": correlation}
        own |= {"bytes": num_bytes}
        name = "Memset (Device)"
        return self.complete("gpu_memset", name, start_us, dur_us, device, stream, own | args)

    def device_range(
        self,
        name: str,
        start_us: Us,
        dur_us: Us,
        *,
        stream: int = 7,
        device: int = 0,
        **args: object,
    ) -> Self:
        """An annotation as seen on the device (`gpu_user_annotation`)."""
        return self.complete("gpu_user_annotation", name, start_us, dur_us, device, stream, args)

    def sync(
        self,
        kind: str,
        start_us: Us,
        dur_us: Us,
        *,
        stream: int = 7,
        correlation: int | None = None,
        device: int = 0,
        **args: object,
    ) -> Self:
        """A `cuda_sync` record; kinds: Stream Sync, Event Sync, Context Sync, Stream Wait Event."""
        own = {"cuda_sync_kind": kind, "stream": stream, "correlation": correlation}
        own |= {"device": device, "context": 1}
        return self.complete("cuda_sync", kind, start_us, dur_us, device, stream, own | args)

    # -- host side --------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        start_us: Us,
        dur_us: Us,
        *,
        correlation: int | None = None,
        external_id: int | None = None,
        tid: int | str | None = None,
        category: str = "cuda_runtime",
        **args: object,
    ) -> Self:
        """A runtime or driver call."""
        own = {"External id": external_id, "cbid": 211, "correlation": correlation}
        return self.complete(category, name, start_us, dur_us, self.pid, tid, own | args)

    def launch(
        self, start_us: Us, dur_us: Us, *, correlation: int | None = None, **more: Any
    ) -> Self:
        """A `cudaLaunchKernel`."""
        name = more.pop("name", "cudaLaunchKernel")
        return self.call(name, start_us, dur_us, correlation=correlation, **more)

    def op(
        self,
        name: str,
        start_us: Us,
        dur_us: Us,
        *,
        external_id: int | None = None,
        tid: int | str | None = None,
        dims: object = None,
        types: object = None,
        **args: object,
    ) -> Self:
        """A framework operator."""
        own = {"External id": external_id, "Input Dims": dims, "Input type": types}
        return self.complete("cpu_op", name, start_us, dur_us, self.pid, tid, own | args)

    def frame(
        self,
        name: str,
        start_us: Us,
        dur_us: Us,
        *,
        python_id: int | None = None,
        parent: int | None = None,
        tid: int | str | None = None,
        **args: object,
    ) -> Self:
        """A Python frame."""
        own = {"Python parent id": parent, "Python id": python_id}
        return self.complete("python_function", name, start_us, dur_us, self.pid, tid, own | args)

    def range(
        self,
        name: str,
        start_us: Us,
        dur_us: Us,
        *,
        tid: int | str | None = None,
        external_id: int | None = None,
        **args: object,
    ) -> Self:
        """A host annotation (`user_annotation`)."""
        own = {"External id": external_id}
        return self.complete("user_annotation", name, start_us, dur_us, self.pid, tid, own | args)

    def memory(self, at_us: Us, num_bytes: int, *, address: int = 4096, **args: object) -> Self:
        """An allocator event."""
        own = {"Device Type": 1, "Device Id": 0, "Addr": address, "Bytes": num_bytes}
        return self.event(
            ph="i",
            cat="cpu_instant_event",
            s="t",
            name="[memory]",
            pid=self.pid,
            tid=self.tid,
            ts=at_us,
            args=own | args,
        )

    def launched(
        self,
        name: str,
        *,
        launch_us: Us,
        start_us: Us,
        dur_us: Us,
        launch_dur_us: Us = 4,
        op: str | None = None,
        **kernel: Any,
    ) -> Self:
        """A kernel with its launch call under a fresh correlation id, and an op around it if named."""
        self._correlation += 1
        number = 10_000 + self._correlation
        if op is not None:
            self.op(op, launch_us - 1, launch_dur_us + 2, external_id=number)
        self.launch(launch_us, launch_dur_us, correlation=number, external_id=number)
        return self.kernel(name, start_us, dur_us, correlation=number, external_id=number, **kernel)

    # -- the rest ---------------------------------------------------------------------------------

    def flow(
        self, phase: str, number: int, at_us: Us, pid: object, tid: object, **more: Any
    ) -> Self:
        """One end of an arrow: `s` start, `f` finish."""
        category = more.pop("cat", "ac2g")
        end = {"bp": "e"} if phase == "f" else {}
        return self.event(
            ph=phase,
            id=number,
            pid=pid,
            tid=tid,
            ts=at_us,
            cat=category,
            name=category,
            **end,
            **more,
        )

    def counter(self, name: str, at_us: Us, **values: object) -> Self:
        """A counter sample (`ph` C), one value a series."""
        return self.event(ph="C", name=name, pid=self.pid, tid=0, ts=at_us, args=values)

    def thread_name(self, name: str, tid: object = None, pid: object = None) -> Self:
        """Metadata: the name of a thread."""
        return self._metadata("thread_name", name, pid, self.tid if tid is None else tid)

    def process_name(self, name: str, pid: object = None) -> Self:
        """Metadata: the name of a process."""
        return self._metadata("process_name", name, pid, 0)

    def _metadata(self, kind: str, name: str, pid: object, tid: object) -> Self:
        pid = self.pid if pid is None else pid
        return self.event(name=kind, ph="M", ts=0, pid=pid, tid=tid, args={"name": name})

    def complete(
        self,
        category: str | None,
        name: str,
        start_us: Us | str | None,
        dur_us: Us | str | None,
        pid: object,
        tid: object,
        args: Mapping[str, object],
    ) -> Self:
        """Any event of phase X; what is None is left out, and `tid` None is the trace's own."""
        kept = {key: value for key, value in args.items() if value is not None}
        fields = {"ph": "X", "cat": category, "name": name, "pid": pid}
        fields |= {"tid": self.tid if tid is None else tid, "ts": start_us, "dur": dur_us}
        self.events.append({k: v for k, v in fields.items() if v is not None} | {"args": kept})
        return self

    def event(self, **fields: object) -> Self:
        """Any event, field by field."""
        self.events.append(fields)
        return self

    def raw(self, text: str) -> Self:
        """Text that stands in the place of an event."""
        self.events.append(Raw(text))
        return self

    # -- out --------------------------------------------------------------------------------------

    def bytes(self, style: str = "kineto") -> bytes:
        """The JSON: `kineto` (line breaks as the profiler writes them), `compact`, `pretty`, `array`."""
        if style == "compact":
            return _json(self.head | {"traceEvents": self.events} | self.tail, False).encode()
        if style == "array":
            return _json(self.events, False).encode()
        if style == "pretty":
            return _json(self.head | {"traceEvents": self.events} | self.tail, True).encode()
        head = "".join(f'\n  "{key}": {_json(value, False)},' for key, value in self.head.items())
        events = ",\n".join("  " + _json(event, False, outer=True) for event in self.events)
        tail = ",".join(f'\n  "{key}": {_json(value, False)}' for key, value in self.tail.items())
        tail = f",{tail}" if tail else ""
        return f'\n{{{head}\n  "traceEvents": [\n{events}\n  ]{tail}\n}}\n'.encode()

    def write(self, path: Path, style: str = "kineto") -> Path:
        """Write the file, packed as its suffix says (.gz, .zst, .zip), and give its path back."""
        data = self.bytes(style)
        if path.suffix == ".gz":
            data = gzip.compress(data, 1, mtime=0)
        elif path.suffix == ".zst":
            import zstandard

            data = zstandard.compress(data, 1)
        elif path.suffix == ".zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(path.stem, data)
            return path
        path.write_bytes(data)
        return path


def _json(value: object, pretty: bool, *, outer: bool = False) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, Mapping):
        colon = ": "
        items = [f"{json.dumps(str(k))}{colon}{_json(v, pretty)}" for k, v in value.items()]
        if outer:
            return "{\n    " + ", ".join(items) + "\n  }"
        return "{\n" + ",\n".join(items) + "\n}" if pretty else "{" + ", ".join(items) + "}"
    if isinstance(value, list | tuple):
        items = [_json(item, pretty) for item in value]
        return "[\n" + ",\n".join(items) + "\n]" if pretty else "[" + ", ".join(items) + "]"
    return json.dumps(value)
