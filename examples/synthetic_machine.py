"""A host thread that feeds the streams of one GPU: an event loop that knows why every gap exists.

`Machine` is driven by a program (see synthetic_gpu_trace.py): `spend` moves the host's clock, `launch`,
`copy`, `replay` put work on a stream, `record` and `wait` order streams. Work starts when the last of its
conditions is met - it arrived, its stream is free, its event happened - and remembers which one that was.
It imports nothing of the package: what it knows must not come from what it tests.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

COMPUTE_STREAM, COMMUNICATION_STREAM, COPY_STREAM = 7, 20, 24

ARRIVAL, STREAM_ORDER, EVENT = "arrival", "stream_dependency", "event_wait"
COLLECTIVE, GRAPH = "collective_wait", "graph_internal"
"""Which condition was met last. All but ARRIVAL are causes of gaps by themselves."""


@dataclass(frozen=True)
class Work:
    """One piece of work on the device."""

    name: str
    """Kernel or copy."""
    kind: str
    """`compute`, `communication`, `memcpy` or `memset`."""
    stream: int
    """Where it ran."""
    start_ns: int
    """Start."""
    end_ns: int
    """End."""
    launch_ns: int
    """Start of the call that launched it."""
    reason: str
    """The condition that was met last."""
    injection: str | None
    """Name of the injected fault that held that condition up."""
    correlation: int
    """Number of the launching call."""
    external: int | None
    """Number of the operator around the call."""
    args: dict[str, object] = field(default_factory=dict)
    """What the profiler notes beside it."""


@dataclass(frozen=True)
class HostItem:
    """A frame, operator, annotation or call on the host thread."""

    category: str
    """Category in the trace."""
    name: str
    """Name."""
    start_ns: int
    """Start."""
    end_ns: int
    """End."""
    args: dict[str, object]
    """What the profiler notes beside it."""


@dataclass(frozen=True)
class Segment:
    """A stretch of host time with one innermost activity."""

    start_ns: int
    """Start."""
    end_ns: int
    """End."""
    cause: str
    """Cause of a gap that is due to this stretch."""
    injection: str | None
    """Name of the injected fault that it belongs to."""


@dataclass(frozen=True)
class Happening:
    """An event recorded on a stream."""

    at_ns: int
    """When the work before it is done."""
    number: int
    """Its number."""
    stream: int
    """Stream it was recorded on."""
    correlation: int
    """Number of the recording call."""
    reason: str
    """EVENT, or COLLECTIVE when it follows a communication kernel."""
    injection: str | None
    """Name of the injected fault that it waits for."""


@dataclass(frozen=True)
class Node:
    """One kernel of a graph; each follows the one before."""

    name: str
    """Kernel."""
    duration_ns: int
    """Length."""
    kind: str = "compute"
    """Kind of work."""


class Machine:
    """The state of the host thread and of the streams, and everything that was recorded."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = 0
        self.works: list[Work] = []
        self.items: list[HostItem] = []
        self.segments: list[Segment] = []
        self.waits: list[HostItem] = []
        """Stream waits and synchronisations as the device side of the trace shows them."""
        self._causes = ["host_untraced"]
        self._injection: str | None = None
        self._frames: list[int] = []
        self._operators: list[int] = []
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self._free: dict[int, int] = {}
        self._after: dict[int, tuple[str, str | None]] = {}
        self._pending: defaultdict[int, list[Happening]] = defaultdict(list)

    # -- host -------------------------------------------------------------------------------------

    def spend(self, duration_ns: int) -> None:
        """The host is busy with whatever is innermost."""
        segment = Segment(self.now, self.now + duration_ns, self._causes[-1], self._injection)
        self.segments.append(segment)
        self.now += duration_ns

    def about(self, duration_ns: int) -> int:
        """A duration that varies by 10 % around the given one."""
        return int(duration_ns * self.rng.uniform(0.9, 1.1))

    @contextmanager
    def injected(self, name: str) -> Iterator[None]:
        """What the host does inside is the injected fault of this name."""
        before, self._injection = self._injection, name
        yield
        self._injection = before

    @contextmanager
    def frame(self, name: str, cause: str = "host_python") -> Iterator[None]:
        """A Python frame."""
        number = self._next("frame")
        args: dict[str, object] = {
            "Python parent id": self._frames[-1] if self._frames else None,
            "Python id": number,
        }
        self._frames.append(number)
        with self._around("python_function", name, args, cause):
            self.spend(self.rng.randint(300, 900))
            yield
            self.spend(self.rng.randint(200, 500))
        self._frames.pop()

    @contextmanager
    def op(self, name: str, dispatch_ns: int = 1500, dims: object = None) -> Iterator[None]:
        """A framework operator."""
        number = self._next("external")
        args: dict[str, object] = {"External id": number, "Record function id": 0}
        if dims is not None:
            args["Input Dims"] = dims
        self._operators.append(number)
        with self._around("cpu_op", name, args, "host_op"):
            self.spend(self.about(dispatch_ns))
            yield
            self.spend(self.rng.randint(200, 600))
        self._operators.pop()

    @contextmanager
    def annotation(self, name: str) -> Iterator[None]:
        """A `record_function` range; the same range over its kernels is written for the device."""
        args: dict[str, object] = {"External id": self._next("external")}
        first = self.now
        with self._around("user_annotation", name, args, self._causes[-1]):
            yield
        mine = [w for w in self.works if first <= w.launch_ns and w.stream == COMPUTE_STREAM]
        if mine:
            start, end = min(w.start_ns for w in mine), max(w.end_ns for w in mine)
            self.items.append(HostItem("gpu_user_annotation", name, start, end, args))

    def call(self, name: str, duration_ns: int, cause: str = "host_api") -> int:
        """A runtime call that only takes time; its correlation id comes back."""
        correlation = self._next("correlation")
        with self._around("cuda_runtime", name, self._call_args(correlation), cause):
            self.spend(duration_ns)
        return correlation

    # -- device -----------------------------------------------------------------------------------

    def launch(
        self,
        name: str,
        duration_ns: int,
        *,
        kind: str = "compute",
        stream: int = COMPUTE_STREAM,
        grid: Sequence[int] = (132, 1, 1),
        **args: object,
    ) -> None:
        """A kernel."""
        launch_ns = self.now
        correlation = self.call("cudaLaunchKernel", self.rng.randint(2600, 3900))
        latency = self.rng.randint(4300, 6200)
        more = {"grid": list(grid), "block": [128, 1, 1], "registers per thread": 128}
        self._enqueue(name, kind, stream, launch_ns, latency, duration_ns, correlation, more | args)

    def fill(self, num_bytes: int) -> None:
        """A memset on the compute stream."""
        launch_ns = self.now
        correlation = self.call("cudaMemsetAsync", self.rng.randint(2200, 3000))
        latency = self.rng.randint(4300, 6200)
        length = 900 + num_bytes // 2000
        more: dict[str, object] = {"bytes": num_bytes}
        self._enqueue(
            "Memset (Device)",
            "memset",
            COMPUTE_STREAM,
            launch_ns,
            latency,
            length,
            correlation,
            more,
        )

    def copy(
        self,
        num_bytes: int,
        direction: str,
        *,
        stream: int = COMPUTE_STREAM,
        blocks: bool = False,
        bytes_per_us: int = 40_000,
    ) -> None:
        """A copy; a blocking one returns when the bytes have arrived."""
        launch_ns = self.now
        latency = self.rng.randint(4500, 6500)
        length = 1200 + num_bytes * 1000 // bytes_per_us
        correlation = self._next("correlation")
        name, cause = ("cudaMemcpy", "host_memcpy") if blocks else ("cudaMemcpyAsync", "host_api")
        with self._around("cuda_runtime", name, self._call_args(correlation), cause):
            self.spend(self.rng.randint(3200, 4800))
            text = f"Memcpy {direction}"
            more: dict[str, object] = {"bytes": num_bytes}
            work = self._enqueue(
                text, "memcpy", stream, launch_ns, latency, length, correlation, more
            )
            if blocks:
                self.spend(max(0, work.end_ns - self.now) + self.rng.randint(3000, 6000))

    def replay(self, graph: int, nodes: Sequence[Node], stream: int = COMPUTE_STREAM) -> None:
        """A graph launch: all its kernels carry the number of the one call."""
        launch_ns = self.now
        correlation = self.call("cudaGraphLaunch", 9000 + 30 * len(nodes))
        latency = self.rng.randint(9000, 12_000) + 20 * len(nodes)
        for number, node in enumerate(nodes):
            args: dict[str, object] = {"graph id": graph, "graph node id": number + 1}
            reason = ARRIVAL if number == 0 else GRAPH
            self._enqueue(
                node.name, node.kind, stream, launch_ns, latency, node.duration_ns, correlation,
                args, reason=reason,
            )  # fmt: skip

    def host_function(self, duration_ns: int, stream: int) -> None:
        """A callback that the stream waits for: no profiler records it on the device."""
        begin = self.now
        self.call("cudaLaunchHostFunc", self.rng.randint(3000, 5000))
        events = [event.at_ns + 2000 for event in self._pending.pop(stream, [])]
        ready = max(begin + 8000, self._free.get(stream, 0), *events)
        self._free[stream] = ready + duration_ns
        self._after[stream] = (EVENT, self._injection)

    def record(self, stream: int) -> Happening:
        """Record an event on a stream."""
        correlation = self.call("cudaEventRecord", self.rng.randint(700, 1200))
        reason, injection = self._after.get(stream, (EVENT, None))
        at_ns = max(self.now, self._free.get(stream, 0))
        return Happening(at_ns, self._next("event"), stream, correlation, reason, injection)

    def wait(self, stream: int, event: Happening) -> None:
        """Later work of a stream starts after the event."""
        begin = self.now
        correlation = self.call("cudaStreamWaitEvent", self.rng.randint(700, 1200))
        self._pending[stream].append(event)
        self._synchronization("Stream Wait Event", begin, correlation, stream, event)

    def synchronize_event(self, event: Happening) -> None:
        """The host waits for an event."""
        self._synchronize("cudaEventSynchronize", "Event Sync", event.at_ns, -1, event)

    def synchronize(self, stream: int = COMPUTE_STREAM) -> None:
        """The host waits until a stream is empty."""
        done = self._free.get(stream, 0)
        self._synchronize("cudaStreamSynchronize", "Stream Sync", done, stream, None)

    # -- inside -----------------------------------------------------------------------------------

    def _next(self, what: str) -> int:
        self._numbers[what] += 1
        return self._numbers[what]

    @contextmanager
    def _around(
        self, category: str, name: str, args: dict[str, object], cause: str
    ) -> Iterator[None]:
        begin = self.now
        self._causes.append(cause)
        yield
        self._causes.pop()
        self.items.append(HostItem(category, name, begin, self.now, args))

    def _call_args(self, correlation: int) -> dict[str, object]:
        args: dict[str, object] = {"cbid": 211, "correlation": correlation}
        return args | ({"External id": self._operators[-1]} if self._operators else {})

    def _enqueue(
        self,
        name: str,
        kind: str,
        stream: int,
        launch_ns: int,
        latency_ns: int,
        duration_ns: int,
        correlation: int,
        args: dict[str, object],
        *,
        reason: str = ARRIVAL,
    ) -> Work:
        """Place work: it starts when the last of its conditions is met."""
        conditions: list[tuple[int, str, str | None]] = []
        if reason != GRAPH:
            conditions.append((launch_ns + latency_ns, ARRIVAL, None))
        if stream in self._free:
            hand_over = (
                self.rng.randint(500, 1100) if reason == GRAPH else self.rng.randint(900, 1700)
            )
            order = GRAPH if reason == GRAPH else STREAM_ORDER
            conditions.append((self._free[stream] + hand_over, order, None))
        for event in self._pending.pop(stream, []):
            resolved = event.at_ns + self.rng.randint(1500, 2600)
            conditions.append((resolved, event.reason, event.injection))
        start, last, injection = max(conditions, key=lambda condition: condition[0])
        external = self._operators[-1] if self._operators else None
        work = Work(
            name, kind, stream, start, start + duration_ns, launch_ns, last, injection,
            correlation, external, args,
        )  # fmt: skip
        self._free[stream] = work.end_ns
        self._after[stream] = (COLLECTIVE if kind == "communication" else EVENT, None)
        self.works.append(work)
        return work

    def _synchronize(
        self, call: str, kind: str, done_ns: int, stream: int, event: Happening | None
    ) -> None:
        begin = self.now
        length = max(0, done_ns - begin) + self.rng.randint(2500, 5000)
        correlation = self.call(call, length, "host_synchronize")
        self._synchronization(kind, begin, correlation, stream, event)

    def _synchronization(
        self, kind: str, begin: int, correlation: int, stream: int, event: Happening | None
    ) -> None:
        # The profiler gives these records the time of the call, not of the wait on the device.
        args: dict[str, object] = {"cuda_sync_kind": kind, "stream": stream}
        args |= {"correlation": correlation, "device": 0, "context": 1}
        if event is not None:
            args |= {"wait_on_stream": event.stream, "wait_on_cuda_event_id": event.number}
            args["wait_on_cuda_event_record_corr_id"] = event.correlation
        inset = min(200, (self.now - begin) // 3)
        self.waits.append(HostItem("cuda_sync", kind, begin + inset, self.now - inset, args))
