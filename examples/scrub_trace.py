"""Take out of a trace of torch.profiler what tells about the machine that recorded it.

Only known fields are kept, folders are cut from file names, addresses, process and thread ids are
replaced by made-up ones, the same for the same one. Times and shapes stay.
"""

from __future__ import annotations

import re

KEPT_HEADER = (
    "schemaVersion",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "record_shapes",
    "with_stack",
)
KEPT_ARGS = (
    "External id",
    "Record function id",
    "Sequence number",
    "Fwd thread id",
    "Input Dims",
    "Input type",
    "Python id",
    "Python parent id",
    "Python module id",
    "Ev Idx",
    "name",
    "labels",
)
# In this order: what lies in front of an installed package, of a frame's file (folders may hold blanks and
# brackets), and of anything else that looks like a path.
_FOLDERS = (
    re.compile(r"^/.*(?:site-packages|lib/python3\.\d+)/"),
    re.compile(r"^/.*/(?=[^/]+\(\d+\): )"),
    re.compile(r"(?<![\w<])/(?:[^\s()/]+/)*"),
)
_THREAD = re.compile(r"(?<=^thread )\d+(?= \()")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


class Scrubber:
    """Takes out of a trace what tells about the machine."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self.processes: dict[int, int] = {}

    def scrub(self, trace: dict[str, object]) -> dict[str, object]:
        """The trace with known fields only and neutral names and numbers."""
        kept = {key: trace[key] for key in KEPT_HEADER if key in trace}
        events = trace["traceEvents"]
        assert isinstance(events, list)
        kept["traceEvents"] = [self.event(e) for e in events if "sort_index" not in e["name"]]
        return kept | {"traceName": "transformer"}

    def event(self, event: dict[str, object]) -> dict[str, object]:
        """One event."""
        event = dict(event)
        event["name"] = self.text(str(event["name"]))
        for key in ("pid", "tid"):
            if isinstance(event.get(key), int):
                event[key] = self.number(int(str(event[key])))
        args = event.get("args")
        if isinstance(args, dict):
            event["args"] = {key: self.value(args[key]) for key in KEPT_ARGS if key in args}
        return event

    def value(self, value: object) -> object:
        """One argument."""
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        """Without folders, addresses and ids."""
        text = _THREAD.sub(lambda match: str(self.number(int(match[0]))), text)
        for pattern in _FOLDERS:
            text = pattern.sub("", text)
        return _ADDRESS.sub(self.address, text)

    def address(self, match: re.Match[str]) -> str:
        """A made-up address, the same for the same one."""
        return self.addresses.setdefault(match[0], f"0x{(len(self.addresses) + 1) * 16:x}")

    def number(self, number: int) -> int:
        """A made-up process or thread id; small numbers name no process."""
        if number < 100:
            return number
        return self.processes.setdefault(number, 1000 + len(self.processes))
