"""What one host thread does in one step, written once and repeated with fresh noise for each step and rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenpath.lab.machine import loop as at

FRAME, OP, ANNOTATION, CALL = "python_function", "cpu_op", "user_annotation", "cuda_runtime"
NO_LABEL = -1


@dataclass(frozen=True)
class Label:
    """How a host event is written."""

    category: str
    """Category of the trace."""
    name: str
    """Name."""
    args: str = ""
    """Further arguments as JSON text without braces; empty: none."""


@dataclass(frozen=True)
class DeviceLabel:
    """How device work is written."""

    category: str
    """`kernel`, `gpu_memcpy` or `gpu_memset`."""
    name: str
    """Name."""
    args: str
    """Arguments that do not depend on the launch, as JSON text without braces."""


@dataclass(frozen=True)
class Work:
    """Device work as a program states it."""

    label: DeviceLabel
    """How it is written."""
    ns: float
    """Length that is expected, in ns."""
    role: str
    """What it does in the model, such as `qkv`; faults choose by it."""
    kind: int = at.KERNEL
    """KERNEL, COLLECTIVE or COPY of the loop."""
    scales: bool = False
    """Whether its length grows with the context of the step."""


class Labels:
    """Numbers for labels, shared by all scripts of a scenario."""

    def __init__(self) -> None:
        self.host: dict[Label, int] = {}
        self.device: dict[DeviceLabel, int] = {}
        self.roles: dict[str, int] = {}

    def of_host(self, label: Label) -> int:
        """Number of a host label."""
        return self.host.setdefault(label, len(self.host))

    def of_device(self, label: DeviceLabel) -> int:
        """Number of a device label."""
        return self.device.setdefault(label, len(self.device))

    def of_role(self, role: str) -> int:
        """Number of a role."""
        return self.roles.setdefault(role, len(self.roles))


@dataclass
class Template:
    """A script as columns."""

    code: NDArray[np.int64]
    """(instructions, 4): operation, two arguments, length in ns."""
    spread: NDArray[np.float64]
    """Relative spread of each instruction's length."""
    label: NDArray[np.int64]
    """Host label of BEGIN and of calls, else NO_LABEL."""
    pair: NDArray[np.int64]
    """For BEGIN the place of its END, else the place itself."""
    op: NDArray[np.int64]
    """Innermost operator or annotation around it, else -1."""
    frame: NDArray[np.int64]
    """Innermost Python frame around it, else -1."""
    extra: NDArray[np.bool_]
    """Whether a fault or decoy put it there: its noise is drawn apart, so the rest keeps its own."""
    works: NDArray[np.int64]
    """(works, 7) as the loop takes them."""
    work_label: NDArray[np.int64]
    """Device label of each work; NO_LABEL for records and waits."""
    role: NDArray[np.int64]
    """Role of each work."""
    node: NDArray[np.int64]
    """Number within its graph, or -1."""
    graph: NDArray[np.int64]
    """Number of its graph, or -1."""
    scales: NDArray[np.bool_]
    """Whether its length grows with the context."""
    work_extra: NDArray[np.bool_]
    """As `extra`."""
    slots: dict[str, int] = field(default_factory=dict)
    """Named labels that each step replaces, by place."""


class Script:
    """Writes a template."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._rows: list[tuple[int, int, int, float]] = []
        self._spread: list[float] = []
        self._label: list[int] = []
        self._pair: list[int] = []
        self._op: list[int] = []
        self._frame: list[int] = []
        self._extra: list[bool] = []
        self._works: list[tuple[int, int, int, int, int, int, int]] = []
        self._work_label: list[int] = []
        self._role: list[int] = []
        self._node: list[int] = []
        self._graph: list[int] = []
        self._scales: list[bool] = []
        self._work_extra: list[bool] = []
        self._ops = [-1]
        self._frames = [-1]
        self._is_extra = False
        self.slots: dict[str, int] = {}
        self.host_factor = 1.0
        """Factor on host time that is stated from here on."""
        self.launch_factor = 1.0
        """Factor on the length of launching calls."""
        self.events: dict[str, int] = {}
        """Numbers of the events by name within the step."""

    # -- host -------------------------------------------------------------------------------------

    def spend(self, ns: float, spread: float = 0.15) -> None:
        """The thread computes."""
        self._add(at.SPEND, ns=ns * self.host_factor, spread=spread)

    @contextmanager
    def frame(self, name: str) -> Iterator[None]:
        """A Python frame."""
        yield from self._range(Label(FRAME, name), self._frames, 250.0)

    @contextmanager
    def op(self, name: str, args: str = "", ns: float = 2_000.0) -> Iterator[None]:
        """An operator; its own time is spent before what is inside."""
        yield from self._range(Label(OP, name, args), self._ops, ns)

    @contextmanager
    def annotation(self, name: str, slot: str | None = None) -> Iterator[None]:
        """A `record_function` range; with `slot` each step names it anew."""
        if slot is not None:
            self.slots[slot] = len(self._rows)
        yield from self._range(Label(ANNOTATION, name), self._ops, 1_500.0)

    @contextmanager
    def extra(self) -> Iterator[None]:
        """What follows was put in by a fault or decoy."""
        before, self._is_extra = self._is_extra, True
        yield
        self._is_extra = before

    def call(self, name: str, ns: float, spread: float = 0.2, category: str = CALL) -> None:
        """A runtime call that only takes time."""
        self._add(at.SPEND, ns=ns, spread=spread, label=Label(category, name))

    def acquire(self) -> None:
        """Take the interpreter lock."""
        self._add(at.ACQUIRE, ns=0)

    def release(self) -> None:
        """Give the interpreter lock away."""
        self._add(at.RELEASE, ns=0)

    def signal(self, number: int) -> None:
        """Wake whoever waits for this signal of the step."""
        self._add(at.SIGNAL, number)

    def wait_signal(self, number: int) -> None:
        """Wait for a signal of the step."""
        self._add(at.WAIT_SIGNAL, number, ns=4_000, spread=0.3)

    # -- device -----------------------------------------------------------------------------------

    def launch(
        self,
        work: Work,
        stream: int = 0,
        *,
        call: str = "cudaLaunchKernel",
        ns: float = 3_600.0,
        collective: int = 0,
        blocking: bool = False,
        category: str = CALL,
    ) -> None:
        """Launch one piece of work."""
        number = self._work(work, stream, collective=collective)
        what = at.LAUNCH_BLOCKING if blocking else at.LAUNCH
        cost = ns * self.launch_factor
        self._add(what, number, 1, cost, 0.22, Label(category, call))

    def replay(self, graph: int, works: Sequence[tuple[Work, int]], ns: float) -> None:
        """Launch a graph: (work, collective) in stream order; all belong to one call."""
        first = len(self._works)
        for node, (work, collective) in enumerate(works):
            self._work(work, 0, collective=collective, graph=graph, node=node)
        self._add(at.LAUNCH, first, len(works), ns, 0.12, Label(CALL, "cudaGraphLaunch"))

    def record(self, event: str, stream: int = 0) -> None:
        """Record an event on a stream."""
        number = self.events.setdefault(event, len(self.events))
        row = (stream, at.RECORD, 0, 1_500, 0, number, 0)
        self._plain_work(row)
        self._add(at.LAUNCH, len(self._works) - 1, 1, 700, 0.3, Label(CALL, "cudaEventRecord"))

    def wait(self, event: str, stream: int) -> None:
        """Let a stream wait for an event."""
        number = self.events.setdefault(event, len(self.events))
        self._plain_work((stream, at.WAIT, 0, 1_500, 0, number, 0))
        label = Label(CALL, "cudaStreamWaitEvent")
        self._add(at.LAUNCH, len(self._works) - 1, 1, 800, 0.3, label)

    def sync_event(self, event: str, *, before: int = 0) -> None:
        """Wait on the host for an event of this step, or of one `before` it."""
        number = self.events.setdefault(event, len(self.events))
        label = Label(CALL, "cudaEventSynchronize")
        self._add(at.SYNC_EVENT, number, before, 2_600, 0.3, label)

    def sync_stream(self, stream: int = 0) -> None:
        """Wait on the host until a stream is empty."""
        self._add(at.SYNC_STREAM, stream, 0, 2_800, 0.3, Label(CALL, "cudaStreamSynchronize"))

    def sync_device(self, call: str = "cudaDeviceSynchronize", ns: float = 3_200.0) -> None:
        """Wait on the host until the device is idle."""
        self._add(at.SYNC_DEVICE, 0, 0, ns, 0.3, Label(CALL, call))

    def sync_device_quietly(self) -> None:
        """Nothing more is done before the device is idle, without a call."""
        self._add(at.SYNC_DEVICE)

    def pause(self, ns: float, spread: float = 0.1) -> None:
        """The thread sleeps."""
        self._add(at.SPEND, ns=ns, spread=spread)

    def instant(self, slot: str) -> None:
        """An event without length that each step names."""
        self.slots[slot] = self._add(at.SPEND)

    def template(self) -> Template:
        """The columns."""
        rows = np.array([row[:3] for row in self._rows], np.int64).reshape(-1, 3)
        ns = np.array([row[3] for row in self._rows], np.float64)
        return Template(
            code=np.column_stack([rows, ns.astype(np.int64)]),
            spread=np.array(self._spread),
            label=np.array(self._label, np.int64),
            pair=np.array(self._pair, np.int64),
            op=np.array(self._op, np.int64),
            frame=np.array(self._frame, np.int64),
            extra=np.array(self._extra, np.bool_),
            works=np.array(self._works, np.int64).reshape(-1, 7),
            work_label=np.array(self._work_label, np.int64),
            role=np.array(self._role, np.int64),
            node=np.array(self._node, np.int64),
            graph=np.array(self._graph, np.int64),
            scales=np.array(self._scales, np.bool_),
            work_extra=np.array(self._work_extra, np.bool_),
            slots=dict(self.slots),
        )

    # -- inside -----------------------------------------------------------------------------------

    def _add(
        self,
        what: int,
        a: int = 0,
        b: int = 0,
        ns: float = 0.0,
        spread: float = 0.0,
        label: Label | None = None,
    ) -> int:
        place = len(self._rows)
        self._rows.append((what, a, b, ns))
        self._spread.append(spread)
        self._label.append(NO_LABEL if label is None else self.labels.of_host(label))
        self._pair.append(place)
        self._op.append(self._ops[-1])
        self._frame.append(self._frames[-1])
        self._extra.append(self._is_extra)
        return place

    def _range(self, label: Label, stack: list[int], ns: float) -> Iterator[None]:
        own = ns * self.host_factor
        begin = self._add(at.BEGIN, ns=own, spread=0.25, label=label)
        stack.append(begin)
        yield
        stack.pop()
        self._pair[begin] = self._add(at.END, ns=0.15 * own, spread=0.25)

    def _work(
        self, work: Work, stream: int, *, collective: int, graph: int = -1, node: int = -1
    ) -> int:
        is_first = node <= 0
        latency = (9_000 if graph >= 0 else 5_600) if is_first else 0
        gap = (1_300 if is_first else 420) if work.kind != at.COPY else 1_600
        argument = collective if work.kind == at.COLLECTIVE else -1
        self._works.append((stream, work.kind, int(work.ns), latency, gap, argument, int(is_first)))
        self._work_label.append(self.labels.of_device(work.label))
        self._role.append(self.labels.of_role(work.role))
        self._node.append(node)
        self._graph.append(graph)
        self._scales.append(work.scales)
        self._work_extra.append(self._is_extra)
        return len(self._works) - 1

    def _plain_work(self, row: tuple[int, int, int, int, int, int, int]) -> None:
        self._works.append(row)
        self._work_label.append(NO_LABEL)
        self._role.append(self.labels.of_role(""))
        self._node.append(-1)
        self._graph.append(-1)
        self._scales.append(False)
        self._work_extra.append(self._is_extra)
