"""One file of trace events, in the object form or as a bare list, closed or not.

Source: "Trace Event Format" (Chromium project, document 1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
`ts` and `dur` are microseconds whatever `displayTimeUnit` says: that is about display.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.capture.combine import combine
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.growing import NULL, whole
from tokenpath.ingest.json_stream import JsonStream, Take
from tokenpath.ingest.json_stream import Path as JsonPath
from tokenpath.ingest.kineto.facts import is_epoch
from tokenpath.ingest.kineto.numbers import parse_ns
from tokenpath.ingest.kineto.texts import compact_json, readable
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options, Reader, options_by_file
from tokenpath.ingest.slices import NO_NAME, Slices

_MAX_TEXT = 4096
"""Names longer than this are cut: they are data, not names."""
_BASE = "baseTimeNanoseconds"
_DESCRIPTIONS = ("displayTimeUnit", "otherData", "metadata", "viztracer_metadata", "file_info")
"""Members beside the events that say nothing about when; command lines are among them."""
_NO_TABLE = {
    **dict.fromkeys("stf", "flow arrow"),
    **dict.fromkeys("NOD", "object of the program"),
    **dict.fromkeys("vV", "memory dump"),
    **dict.fromkeys("(),", "context"),
    "P": "stack sample",
    "c": "clock synchronisation",
}
_CARRY_NOTHING = frozenset({"flow arrow", "clock synchronisation"})


def read_files(reader: Reader, paths: Sequence[Path], options: Options) -> Capture:
    """A capture of all files, each a source of its own."""
    each = zip(paths, options_by_file(paths, options), strict=True)
    return combine([_read_one(reader, path, own) for path, own in each])


def _read_one(reader: Reader, path: Path, options: Options) -> Capture:
    builder = CaptureBuilder(reader, path, options)
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    document = _Document(builder)
    JsonStream(unpacked.chunks, builder.losses).walk(document)
    unpacked.report_done()
    for problem in unpacked.problems:
        builder.losses.add(problem.split(":")[0], dropped=False)
    if not document.has_events:
        raise DamagedInput("no list of events could be read", where=str(path))
    document.finish()
    return builder.finish()


class _Document:
    """The visitor of one file."""

    def __init__(self, builder: CaptureBuilder) -> None:
        self.has_events = False
        self._builder = builder
        self._losses = builder.losses
        self._slices = Slices(builder)
        self._base_ns = 0
        self._process_names: dict[str, str] = {}
        self._async: dict[tuple[str, ...], int] = {}
        self._by_phase: dict[str, Callable[[dict[str, object], int, JsonStream], None]] = {
            "X": self._complete,
            "B": self._begin,
            "E": self._end,
            **dict.fromkeys("iIR", self._instant),
            **dict.fromkeys("bneSTpF", self._asynchronous),
            "C": self._counter,
        }

    def finish(self) -> None:
        """Write the tables."""
        first = self._slices.first_ns()
        has_epoch = first is not None and is_epoch(first + self._base_ns, self._base_ns or None)
        self._builder.origin.clock = "epoch" if has_epoch else "monotonic"
        self._builder.origin.base_time_ns = self._base_ns or None
        self._builder.origin.clock_offset_ns = self._base_ns
        self._slices.names_of_processes(self._process_names)
        self._slices.finish(self._base_ns)

    # -- the visitor ------------------------------------------------------------------------------

    def choose(self, path: JsonPath, opens: str) -> Take:
        if not path and opens == "{":
            return Take.ENTER
        if path in ((), ("traceEvents",)) and opens == "[":
            self.has_events = True
            return Take.EACH
        if path == (_BASE,):
            return Take.WHOLE
        if path and path[0] not in _DESCRIPTIONS:
            self._losses.add("other part of the file", dropped=False)
        return Take.SKIP

    def take(self, path: JsonPath, value: object, stream: JsonStream) -> None:
        if path == (_BASE,):
            base = whole(value)
            self._base_ns = base if 0 < base < 2**62 else 0
        elif isinstance(value, dict):
            self._builder.num_events += 1
            self._event(value, stream)
        elif path in ((), ("traceEvents",)):
            self._builder.num_events += 1
            self._losses.add("not an object", offset=stream.offset)

    def leave(self, _path: JsonPath) -> None:
        return

    def damaged(self, _path: JsonPath) -> None:
        self._builder.num_events += 1

    # -- events -----------------------------------------------------------------------------------

    def _event(self, event: dict[str, object], stream: JsonStream) -> None:
        phase = event.get("ph")
        if not event:
            self._losses.add("empty object", offset=stream.offset, lost=False)
        elif not isinstance(phase, str) or len(phase) != 1:
            self._losses.add("event without phase", offset=stream.offset)
        elif phase == "M":
            self._metadata(event)
        elif phase in self._by_phase:
            at = self._time(event.get("ts"), "timestamp", stream)
            if at is not None:
                self._by_phase[phase](event, at, stream)
        else:
            reason = _NO_TABLE.get(phase, "event of an unknown phase")
            is_lost = reason not in _CARRY_NOTHING
            self._losses.add(reason, offset=stream.offset, what=phase, lost=is_lost)

    def _time(self, value: object, what: str, stream: JsonStream) -> int | None:
        """Microseconds as nanoseconds, rounded down; None, counted, for what is none."""
        if type(value) is int:
            found = value * 1000
        else:
            parsed = parse_ns(value) if isinstance(value, str) else None
            if parsed is None:
                reason = "missing" if value is None else "malformed"
                self._losses.add(f"{reason} {what}", offset=stream.offset)
                return None
            found = parsed[0]
        if NULL < found < 2**63:
            return found
        self._losses.add(f"{what} out of range", offset=stream.offset)
        return None

    def _thread(self, event: Mapping[str, object]) -> int:
        return self._slices.thread(_word(event.get("pid")), _word(event.get("tid")))

    def _complete(self, event: dict[str, object], at: int, stream: JsonStream) -> None:
        duration = self._time(event.get("dur"), "duration", stream)
        if duration is None:
            return
        if duration < 0 or at + duration >= 2**63:
            reason = "negative duration" if duration < 0 else "timestamp out of range"
            self._losses.add(reason, offset=stream.offset)
            return
        self._note_arguments(event)
        self._slices.slice(self._thread(event), at, at + duration, _name(event) or NO_NAME)

    def _begin(self, event: dict[str, object], at: int, stream: JsonStream) -> None:
        self._note_arguments(event)
        self._slices.begin(self._thread(event), at, _name(event) or NO_NAME, stream.offset)

    def _end(self, event: dict[str, object], at: int, stream: JsonStream) -> None:
        self._slices.end(self._thread(event), at, _name(event), stream.offset)

    def _instant(self, event: dict[str, object], at: int, _stream: JsonStream) -> None:
        self._note_arguments(event)
        self._slices.slice(self._thread(event), at, at, _name(event) or NO_NAME)

    def _asynchronous(self, event: dict[str, object], at: int, stream: JsonStream) -> None:
        """Slices that overlap freely: each id is a track of its own."""
        phase, name = str(event["ph"]), _name(event) or NO_NAME
        thread = self._async_track(event, name if phase in "STpF" else "")
        if phase in "bS":
            self._note_arguments(event)
            self._slices.begin(thread, at, name, stream.offset)
        elif phase in "eF":
            self._slices.end(thread, at, _name(event), stream.offset)
        else:
            self._slices.slice(thread, at, at, name)

    def _async_track(self, event: dict[str, object], name: str) -> int:
        pid, category = _word(event.get("pid")), _word(event.get("cat"))
        number, scope, owner = event.get("id"), _word(event.get("scope")), ""
        both = event.get("id2")
        if isinstance(both, dict):
            number = both.get("global", both.get("local"))
            # A local id is one of its process; other ids are the same in all of them.
            owner = pid if "local" in both else ""
        key = (category, scope, _word(number), owner, name)
        thread = self._async.get(key)
        if thread is None:
            parts = ["async", category, scope, _word(number), name]
            label = " ".join(part for part in parts if part)
            thread = self._async[key] = self._slices.thread(pid, label)
            self._slices.name_thread(thread, category or name or "async")
        return thread

    def _counter(self, event: dict[str, object], at: int, stream: JsonStream) -> None:
        arguments = event.get("args")
        kept = 0
        for key, value in arguments.items() if isinstance(arguments, dict) else ():
            number = _real(value)
            if number is not None:
                labels = {"series": readable(key[:_MAX_TEXT])}
                if event.get("id") is not None:
                    labels["id"] = _word(event["id"])
                self._slices.sample(at, _name(event) or NO_NAME, labels, number)
                kept += 1
        if not kept:
            self._losses.add("counter without a number", offset=stream.offset)

    def _metadata(self, event: dict[str, object]) -> None:
        self._losses.add("metadata", lost=False)
        arguments = event.get("args")
        name = arguments.get("name") if isinstance(arguments, dict) else None
        if not isinstance(name, str) or not name:
            return
        pid = _word(event.get("pid"))
        if event.get("name") == "process_name":
            self._process_names[pid] = name[:_MAX_TEXT]
        elif event.get("name") == "thread_name":
            thread = self._slices.thread(pid, _word(event.get("tid")))
            self._slices.name_thread(thread, name[:_MAX_TEXT])

    def _note_arguments(self, event: Mapping[str, object]) -> None:
        if event.get("args"):
            self._losses.add("arguments of a slice", dropped=False)


def _word(value: object) -> str:
    """A pid, tid, category or id as text."""
    if isinstance(value, str):
        return readable(value[:_MAX_TEXT])
    if value is None:
        return ""
    return str(value) if type(value) is int else compact_json(value)[:_MAX_TEXT]


def _name(event: Mapping[str, object]) -> str | None:
    name = event.get("name")
    return None if name is None else _word(name)


def _real(value: object) -> float | None:
    """A finite number; the decoder gives numbers with a fraction as text."""
    if type(value) is not int and not isinstance(value, str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None
