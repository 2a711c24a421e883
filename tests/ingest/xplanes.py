"""Writes small XLA profiles, for tests: the same run as an XSpace message and as its JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.protobuf import field as put

Stat = int | float | str


@dataclass
class XPlane:
    """A plane in the making; metadata gets its ids as it is named."""

    name: str
    id: int = 0
    lines: list[bytes] = field(default_factory=list)
    stats: dict[str, Stat] = field(default_factory=dict)
    kinds: dict[str, bytes] = field(default_factory=dict)
    stat_names: dict[str, int] = field(default_factory=dict)

    def stat(self, name: str, value: Stat, *, by_reference: bool = False) -> bytes:
        """An XStat."""
        out = put(1, self._stat_id(name))
        if isinstance(value, float):
            return out + put(2, value)
        if isinstance(value, int):
            return out + put(4 if value < 0 else 3, value)
        return out + (put(7, self._stat_id(value)) if by_reference else put(5, value))

    def event(
        self,
        name: str,
        offset_ps: int,
        duration_ps: int,
        *,
        display: str = "",
        shared: dict[str, Stat] | None = None,
        by_reference: bool = False,
        **stats: Stat,
    ) -> bytes:
        """An XEvent; `shared` are statistics of its kind."""
        if name not in self.kinds:
            kind = put(2, name) + (put(4, display) if display else b"")
            for key, value in (shared or {}).items():
                kind += put(5, self.stat(key, value))
            self.kinds[name] = kind
        out = put(1, list(self.kinds).index(name) + 1) + put(2, offset_ps) + put(3, duration_ps)
        for key, value in stats.items():
            said = self.stat(key.replace("__", " "), value, by_reference=by_reference)
            out += put(4, said)
        return out

    def line(self, name: str, *events: bytes, line_id: int = 1, timestamp_ns: int = 0) -> XPlane:
        """Add an XLine."""
        body = put(1, line_id) + put(2, name) + put(3, timestamp_ns)
        self.lines.append(body + b"".join(put(4, event) for event in events))
        return self

    def encode(self) -> bytes:
        """The XPlane message."""
        own = b"".join(put(6, self.stat(name, value)) for name, value in self.stats.items())
        out = put(1, self.id) + put(2, self.name)
        out += b"".join(put(3, line) for line in self.lines)
        for number, kind in enumerate(self.kinds.values(), 1):
            out += put(4, put(1, number) + put(2, put(1, number) + kind))
        for name, number in self.stat_names.items():
            out += put(5, put(1, number) + put(2, put(1, number) + put(2, name)))
        return out + own

    def _stat_id(self, name: str) -> int:
        return self.stat_names.setdefault(name, len(self.stat_names) + 1)


def write_space(path: Path, *planes: XPlane, host: str = "", errors: tuple[str, ...] = ()) -> Path:
    """An XSpace file."""
    out = b"".join(put(1, plane.encode()) for plane in planes)
    out += b"".join(put(2, error) for error in errors)
    path.write_bytes(out + (put(4, host) if host else b""))
    return path


def environment(start_ns: int) -> XPlane:
    """The plane that says when the profile began."""
    return XPlane("Task Environment", stats={"profile_start_time": start_ns})


def write_trace(path: Path, processes: dict[str, dict[str, list[dict[str, Any]]]]) -> Path:
    """The JSON form: process name -> thread name -> events without `ph`, `pid`, `tid`."""
    events: list[dict[str, Any]] = []
    for pid, (process, threads) in enumerate(processes.items(), 1):
        named = {"ph": "M", "pid": pid}
        events.append({**named, "name": "process_name", "args": {"name": process}})
        for tid, (thread, rows) in enumerate(threads.items(), 1):
            events.append({**named, "tid": tid, "name": "thread_name", "args": {"name": thread}})
            events += [{"ph": "X", "pid": pid, "tid": tid, **row} for row in rows]
    head = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}}
    path.write_text(json.dumps({**head, "traceEvents": [*events, {}]}))
    return path
