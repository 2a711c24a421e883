"""Slices, marks and counters of host tracks on their way to tables: what general trace formats hold."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest import arrow
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.growing import NULL, GrowingRows, Words

Int64s = NDArray[np.int64]

NO_NAME = "(no name)"
_MAX_LOOK_BACK = 64
"""How many open slices an end is compared with: a hostile file must not cost a square."""


class Slices:
    """The tracks of one source. Times are int64 nanoseconds; `finish` adds the base."""

    def __init__(self, builder: CaptureBuilder) -> None:
        self.words = Words()
        self._builder = builder
        self._threads: dict[tuple[str, str], int] = {}
        self._names: dict[int, str] = {}
        self._places: dict[int, tuple[str, str]] = {}
        self._whole = GrowingRows("thread", "start", "end", "name")
        self._ends = GrowingRows("thread", "at", "is_end", "name", "offset")
        self._samples = GrowingRows("at", "name", "labels", "bits", "unit")

    def thread(self, pid: str, tid: str) -> int:
        """Row of `thread`, a new one for a new pair."""
        return self._threads.setdefault((pid, tid), len(self._threads))

    def name_thread(self, row: int, name: str) -> None:
        """Name a thread; the last name stands."""
        self._names[row] = name

    def place_thread(self, row: int, pid: str, tid: str) -> None:
        """Say whose a thread is, for formats that tell it after its events."""
        self._places[row] = (pid, tid)

    def names_of_processes(self, names: Mapping[str, str]) -> None:
        """Threads without a name of their own get that of their process."""
        for (pid, _), row in self._threads.items():
            if pid in names:
                self._names.setdefault(row, names[pid])

    def slice(self, thread: int, start: int, end: int, name: str) -> None:
        """A slice whose end is known; one of length 0 is a mark."""
        self._whole.append(thread, start, end, self.words.code(name))

    def begin(self, thread: int, at: int, name: str, offset: int) -> None:
        """A slice begins; `offset` is where the event lies in the file."""
        self._ends.append(thread, at, 0, self.words.code(name), offset)

    def end(self, thread: int, at: int, name: str | None, offset: int) -> None:
        """The innermost open slice of this name ends, the innermost of all without a name."""
        code = -1 if name is None else self.words.code(name)
        self._ends.append(thread, at, 1, code, offset)

    def sample(
        self, at: int, name: str, labels: Mapping[str, str], value: float, unit: str | None = None
    ) -> None:
        """A value of a counter, finite."""
        text = json.dumps(labels, sort_keys=True, ensure_ascii=False) if labels else None
        bits = struct.unpack("<q", struct.pack("<d", value if math.isfinite(value) else 0.0))[0]
        codes = [-1 if word is None else self.words.code(word) for word in (text, unit)]
        self._samples.append(at, self.words.code(name), codes[0], bits, codes[1])

    def first_ns(self) -> int | None:
        """The earliest time so far; None when there is none."""
        columns = (
            (self._whole, "start"),
            (self._ends, "at"),
            (self._samples, "at"),
        )
        lows = [int(rows.columns()[name].min()) for rows, name in columns if len(rows)]
        return min(lows) if lows else None

    def finish(self, base_ns: int = 0) -> None:
        """Pair begins with ends and write the tables; `base_ns` is added to every time."""
        rows = [self._places.get(row, pair) for row, pair in enumerate(self._threads)]
        self._builder.add(
            "thread",
            {
                "pid": [pid for pid, _ in rows],
                "tid": [tid for _, tid in rows],
                "name": arrow.encode([self._names.get(row) for row in range(len(rows))]),
            },
        )
        self._add_ranges(base_ns)
        self._add_samples(base_ns)

    def _add_ranges(self, base_ns: int) -> None:
        whole, paired = self._whole.columns(), self._pair()
        ranges = {name: np.concatenate([whole[name], paired[name]]) for name in whole}
        keep = self._movable(ranges["start"], base_ns) & self._movable(ranges["end"], base_ns)
        # A length must be an int64 too.
        keep &= ranges["end"] - ranges["start"] >= 0
        self._builder.losses.add("timestamp out of range", int((~keep).sum()))
        order = np.lexsort((-ranges["end"], ranges["start"], ranges["thread"]))
        ranges = {name: values[order][keep[order]] for name, values in ranges.items()}
        self._builder.add(
            "range",
            {
                "side": arrow.texts(np.zeros(len(ranges["start"]), np.int32), ["host"]),
                "thread_id": ranges["thread"].astype(np.int32),
                "start_ns": ranges["start"] + base_ns,
                "end_ns": ranges["end"] + base_ns,
                "name": self.words.column(ranges["name"]),
            },
        )

    def _add_samples(self, base_ns: int) -> None:
        samples = self._samples.columns()
        keep = self._movable(samples["at"], base_ns)
        self._builder.losses.add("timestamp out of range", int((~keep).sum()))
        order = np.argsort(samples["at"], kind="stable")
        samples = {name: values[order][keep[order]] for name, values in samples.items()}
        self._builder.add(
            "counter_sample",
            {
                "at_ns": samples["at"] + base_ns,
                "name": self.words.column(samples["name"]),
                "labels": self.words.column(samples["labels"]),
                "value": samples["bits"].view(np.float64),
                "unit": self.words.column(samples["unit"]),
            },
        )

    def _movable(self, values: Int64s, base_ns: int) -> NDArray[np.bool_]:
        low, high = max(-(2**63), -(2**63) - base_ns), min(2**63 - 1, 2**63 - 1 - base_ns)
        if low > high:
            return np.zeros(len(values), np.bool_)
        return (values > low) & (values <= high)

    def _pair(self) -> dict[str, Int64s]:
        """Slices from begins and ends: on each track in the order of time, then of the file."""
        rows = self._ends.columns()
        order = np.lexsort((rows["at"], rows["thread"]))
        threads, is_end = rows["thread"].tolist(), rows["is_end"].tolist()
        names = rows["name"].tolist()
        begins: list[int] = []
        ends: list[int] = []
        open_rows: list[int] = []
        lonely: dict[str, list[int]] = {"end without begin": [], "begin without end": []}
        thread = NULL
        for row in order.tolist():
            if threads[row] != thread:
                lonely["begin without end"] += open_rows
                open_rows, thread = [], threads[row]
            if not is_end[row]:
                open_rows.append(row)
                continue
            for at in range(len(open_rows) - 1, max(-1, len(open_rows) - 1 - _MAX_LOOK_BACK), -1):
                if names[row] < 0 or names[row] == names[open_rows[at]]:
                    begins.append(open_rows.pop(at))
                    ends.append(row)
                    break
            else:
                lonely["end without begin"].append(row)
        lonely["begin without end"] += open_rows
        for reason, alone in lonely.items():
            if alone:
                first = int(rows["offset"][alone].min())
                self._builder.losses.add(reason, len(alone), offset=first)
        return {
            "thread": rows["thread"][begins],
            "start": rows["at"][begins],
            "end": rows["at"][ends],
            "name": rows["name"][begins],
        }
