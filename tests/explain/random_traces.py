"""Random small captures: a few kernels, calls, operators and frames on few streams, threads, devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from explaining import GEMM, NCCL
from hypothesis import strategies as st

from ingest.traces import Trace

SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float>()"
COPY, FILL = "copy", "fill"
HOST_NAMES = {
    "op": ("aten::linear", "aten::add"),
    "frame": ("model.py(10): forward", "queue.py(154): get"),
    "sync": ("Stream Wait Event",),
    "call": ("cudaMalloc", "cudaStreamSynchronize", "cudaFuncGetAttributes", "cudaStreamWaitEvent"),
}


@dataclass(frozen=True)
class Piece:
    """Device work with its launch, or without one; times in ns."""

    name: str
    device: int
    stream: int
    start: int
    dur: int
    launch: int | None
    launch_dur: int
    thread: int
    graph: int | None
    """Pieces with the same number share one graph launch."""


@dataclass(frozen=True)
class HostPart:
    """An operator, frame, call or recorded wait of stream 7 or 20 for the other; times in ns."""

    layer: str
    name: str
    thread: int
    start: int
    dur: int


@dataclass(frozen=True)
class Plan:
    """A capture, before it is written down."""

    pieces: Sequence[Piece]
    host: Sequence[HostPart]
    steps: Sequence[int] = ()
    """Lengths of steps that follow each other from time 0."""

    def trace(self, *, shift: int = 0, scale: int = 1, base: int | None = None) -> Trace:
        """The trace, all times scaled, then shifted."""

        def us(time_ns: int) -> Decimal:
            return Decimal(time_ns * scale + shift) / 1000

        def length(time_ns: int) -> Decimal:
            return Decimal(time_ns * scale) / 1000

        trace = Trace(base_time_ns=base)
        at = 0
        for number, dur in enumerate(self.steps):
            trace.range(f"ProfilerStep#{number}", us(at), length(dur))
            at += dur
        launched: set[int] = set()
        for number, piece in enumerate(self.pieces):
            correlation = 1000 + number
            if piece.graph is not None:
                correlation = 10 + piece.graph
                if piece.graph not in launched:
                    launched.add(piece.graph)
                    first = min(p.start for p in self.pieces if p.graph == piece.graph)
                    trace.call(
                        "cudaGraphLaunch", us(first - 7_000), length(3_000), correlation=correlation
                    )
            elif piece.launch is not None:
                name = "cudaMemcpyAsync" if piece.name == COPY else "cudaLaunchKernel"
                trace.call(
                    name, us(piece.launch), length(piece.launch_dur),
                    correlation=correlation, tid=100 + piece.thread,
                )  # fmt: skip
            where = {"stream": piece.stream, "device": piece.device, "correlation": correlation}
            if piece.name == COPY:
                trace.memcpy(us(piece.start), length(piece.dur), **where)
            elif piece.name == FILL:
                trace.memset(us(piece.start), length(piece.dur), **where)
            else:
                trace.kernel(piece.name, us(piece.start), length(piece.dur), **where)
        for part in self.host:
            if part.layer == "sync":
                stream = (7, 20)[part.thread]
                trace.sync(
                    part.name,
                    us(part.start),
                    length(1_000),
                    stream=stream,
                    wait_on_stream=27 - stream,
                )
                continue
            add = {"op": trace.op, "frame": trace.frame, "call": trace.call}[part.layer]
            add(part.name, us(part.start), length(part.dur), tid=100 + part.thread)
        return trace


def _times(limit_us: int) -> st.SearchStrategy[int]:
    """Whole microseconds and odd nanoseconds, so that ties and near misses are common."""
    coarse = st.integers(0, limit_us).map(lambda us: us * 1000)
    return st.one_of(coarse, st.integers(0, limit_us * 1000))


@st.composite
def _piece(draw: st.DrawFn, devices: int) -> Piece:
    start = draw(_times(300)) + 20_000
    launch = draw(st.one_of(st.none(), st.integers(0, 20_000), st.integers(0, 200_000)))
    return Piece(
        name=draw(st.sampled_from((GEMM, GEMM, SOFTMAX, NCCL, COPY, FILL))),
        device=draw(st.integers(0, devices - 1)),
        stream=draw(st.sampled_from((7, 7, 8, 20))),
        start=start,
        dur=draw(st.one_of(st.just(0), _times(60), _times(60))),
        launch=None if launch is None else max(start - launch, 0),
        launch_dur=draw(st.integers(0, 6_000)),
        thread=draw(st.integers(0, 1)),
        graph=draw(st.one_of(st.none(), st.none(), st.integers(0, 1))),
    )


@st.composite
def _host_part(draw: st.DrawFn) -> HostPart:
    layer = draw(st.sampled_from(tuple(HOST_NAMES)))
    return HostPart(
        layer,
        draw(st.sampled_from(HOST_NAMES[layer])),
        draw(st.integers(0, 1)),
        draw(_times(350)),
        draw(_times(120)),
    )


def plans(devices: int = 2, steps: int = 0) -> st.SearchStrategy[Plan]:
    """Captures with device work on at most so many devices, in at most so many steps."""
    return st.builds(
        Plan,
        st.lists(_piece(devices), min_size=1, max_size=14),
        st.lists(_host_part(), max_size=8),
        st.lists(st.integers(1_000, 90_000), max_size=steps),
    )
