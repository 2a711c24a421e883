"""The `trace.json.gz` that XLA's tools make of a profile: Chrome's JSON with times to the picosecond.

Form: xla/tsl/profiler/convert/trace_events_to_json.cc of openxla/xla. `ts` and `dur` are microseconds with
six decimals; a process is a plane, a thread a timeline; statistics are texts in `args`. The profiler's
internal events (allocations, bytes in flight) and the start of the profile are not in it, and it stops at
a million events without a word (jax issue 21295).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.json_stream import JsonStream, Path, Take
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.xla.lines import INTEGERS, NO_TEXT, NULL, TEXTS, Line, Plane, Space, Texts

PS_PER_US = 1_000_000
_EVENTS = ("traceEvents",)
_TIMED = frozenset({"X", "i", "I"})
_MAX_LINES = 2**20
_UNSIGNED = 2**64


class _Lane:
    """Events of one thread as they come, column by column."""

    def __init__(self) -> None:
        self.start = array("q")
        self.duration = array("q")
        self.name = array("i")
        self.long_name = array("i")
        self.stats: dict[str, array[int]] = {}

    def add_stat(self, key: str, value: int, null: int) -> None:
        """The statistic of the event at hand, which is not in `start` yet."""
        column = self.stats.get(key)
        if column is None:
            column = self.stats[key] = array("q")
        missing = len(self.start) - len(column)
        if missing > 0:
            column.extend(array("q", [null]) * missing)
        column.append(value)

    def column(self, key: str, null: int) -> NDArray[np.int64]:
        """A statistic for every event."""
        column = self.stats[key]
        column.extend(array("q", [null]) * (len(self.start) - len(column)))
        return np.array(column, np.int64)


class _Collector:
    """Takes the events of a trace as they are read."""

    def __init__(self, losses: Losses) -> None:
        self.losses = losses
        self.num_events = 0
        self.has_events = False
        self.lanes: dict[tuple[str, str], _Lane] = {}
        self.planes: dict[str, str] = {}
        self.threads: dict[tuple[str, str], str] = {}
        self._codes: dict[str, int] = {}

    def choose(self, path: Path, opens: str) -> Take:
        """Enter the object, take each event, skip the rest."""
        if path == ():
            return Take.EACH if opens == "[" else Take.ENTER
        if path == _EVENTS:
            self.has_events = True
            return Take.EACH
        return Take.SKIP

    def leave(self, path: Path) -> None:
        """Nothing to close."""

    def damaged(self, _path: Path) -> None:
        """Count an event that could not be read."""
        self.num_events += 1

    def take(self, _path: Path, value: object, stream: JsonStream) -> None:
        """One event."""
        self.has_events = True
        if value == {}:
            # The writer closes its list with an empty object, so that each line may end in a comma.
            return
        self.num_events += 1
        if not isinstance(value, dict):
            self.losses.add("not an object", offset=stream.offset)
            return
        phase = value.get("ph")
        if phase == "M":
            self._name(value)
            self.losses.add("metadata", lost=False)
        elif phase not in _TIMED:
            reason = "counter" if phase == "C" else "other phase"
            self.losses.add(reason, offset=stream.offset)
        elif not self._add(value):
            self.losses.add("no time or name", offset=stream.offset)

    def _name(self, event: dict[str, object]) -> None:
        args = event.get("args")
        name = args.get("name") if isinstance(args, dict) else None
        if isinstance(name, str):
            pid = str(event.get("pid"))
            if event.get("name") == "process_name":
                # xprof puts the host in front: `host0 /device:GPU:0`.
                at = max(name.find(" /device:"), name.find(" /host:"))
                self.planes[pid] = name[at + 1 :] if at > 0 else name
            elif event.get("name") == "thread_name":
                self.threads[pid, str(event.get("tid"))] = name

    def _add(self, event: dict[str, object]) -> bool:
        start, duration = _picoseconds(event.get("ts")), _picoseconds(event.get("dur", 0))
        name = event.get("name")
        if start is None or duration is None or not isinstance(name, str):
            return False
        key = (str(event.get("pid")), str(event.get("tid")))
        lane = self.lanes.get(key)
        if lane is None:
            if len(self.lanes) >= _MAX_LINES:
                return False
            lane = self.lanes[key] = _Lane()
        args = event.get("args")
        long_name = NO_TEXT
        if isinstance(args, dict):
            for stat in INTEGERS:
                number = _whole(args.get(stat)) if stat in args else None
                if number is not None:
                    lane.add_stat(stat, number, NULL)
            for stat in TEXTS:
                said = args.get(stat)
                if isinstance(said, str):
                    lane.add_stat(stat, self._code(said), NO_TEXT)
            said = args.get("long_name")
            if isinstance(said, str) and said:
                long_name = self._code(said)
        lane.start.append(start)
        lane.duration.append(duration)
        lane.name.append(self._code(name))
        lane.long_name.append(long_name)
        return True

    def _code(self, text: str) -> int:
        return self._codes.setdefault(text, len(self._codes))

    def space(self) -> Space:
        """The profile that the events make up."""
        planes: dict[str, Plane] = {}
        texts = [_clean(text) for text in self._codes]
        for pid, name in self.planes.items():
            planes[pid] = Plane(_clean(name))
        for (pid, tid), lane in self.lanes.items():
            plane = planes.setdefault(pid, Plane(_clean(f"process {pid}")))
            line = Line(
                plane.name,
                _whole(tid) or 0,
                _clean(self.threads.get((pid, tid), "")),
                0,
                np.array(lane.start, np.int64),
                np.array(lane.duration, np.int64),
                _texts(np.array(lane.name, np.int32), texts),
                _texts(np.array(lane.long_name, np.int32), texts),
            )
            for stat in lane.stats:
                if stat in INTEGERS:
                    line.integers[stat] = lane.column(stat, NULL)
                else:
                    line.texts[stat] = _texts(lane.column(stat, NO_TEXT).astype(np.int32), texts)
            plane.lines.append(line)
        return Space(list(planes.values()), self.num_events)


def read_trace(chunks: Iterable[NDArray[np.uint8]], losses: Losses, where: str) -> Space:
    """Read a whole trace. DamagedInput when no list of events can be read."""
    collector = _Collector(losses)
    JsonStream(chunks, losses).walk(collector)
    if not collector.has_events:
        raise DamagedInput(
            "no list of events (`traceEvents`) could be read",
            where=where,
            next_step="give the trace.json.gz as the profiler wrote it, or the .xplane.pb beside it",
        )
    return collector.space()


def _clean(text: str) -> str:
    """The text without halves of characters, which damage and bad escapes leave."""
    return text.encode("utf-8", "replace").decode()


def _texts(codes: NDArray[np.int32], texts: list[str]) -> Texts:
    """A column of only those texts that occur in it."""
    distinct, which = np.unique(codes, return_inverse=True)
    return Texts(which.astype(np.int32), []).mapped(
        [None if code < 0 else texts[code] for code in distinct.tolist()]
    )


def _picoseconds(value: object) -> int | None:
    """Microseconds, as written, in whole picoseconds; None for what is no time or out of range."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number.adjusted()) > 40:
        return None if not number.is_finite() or number else 0
    found = int(number * PS_PER_US)
    return found if abs(found) < 2**62 else None


def _whole(value: object) -> int | None:
    """An integer, or the text of one, as int64 (unsigned ones as two's complement)."""
    if isinstance(value, str):
        if len(value) > 20 or not value.lstrip("-").isascii() or not value.lstrip("-").isdigit():
            return None
        value = int(value) if value.count("-") <= 1 else None
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < _UNSIGNED:
        return None
    return value - _UNSIGNED if value >= 2**63 else value
