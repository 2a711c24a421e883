"""The frame around the events: an object with a list `traceEvents`, or a bare list."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.kineto.slow import Damaged, Truncated, decode_value
from tokenpath.ingest.kineto.window import Window
from tokenpath.ingest.losses import Losses

KEPT = frozenset(
    {
        "schemaVersion",
        "deviceProperties",
        "distributedInfo",
        "traceName",
        "trace_id",
        "host_name",
        "baseTimeNanoseconds",
        "displayTimeUnit",
        "cupti_version",
        "cuda_runtime_version",
        "cuda_driver_version",
        "hip_runtime_version",
        "hip_driver_version",
        "roctracer_version",
        "vllm_version",
        "pytorch_version",
        "synthetic",
        "tokenpath",
    }
)
"""The header entries that are read. The rest (environment, user, command line, messages) is dropped."""

_SPACE = b" \t\r\n"
_KNOWN_KEY = re.compile(
    rb'"(?:traceEvents|' + b"|".join(key.encode() for key in sorted(KEPT)) + rb')"[ \t\r\n]*:'
)

ScanEvents = Callable[[Window, int], tuple[int, bool]]
"""Reads events from the byte after `[`; (offset after them, whether `]` was reached)."""


@dataclass
class Header:
    """What stands beside the events."""

    entries: dict[str, object] = field(default_factory=dict)
    """Kept entries by key; floats are text."""
    has_events: bool = False
    """Whether a list of events was found."""
    is_bare_list: bool = False
    """Whether the file is a list of events and nothing else."""


def read_document(window: Window, scan_events: ScanEvents, losses: Losses, where: str) -> Header:
    """Read the frame and hand the list of events to `scan_events`; DamagedInput if there is none."""
    header = Header()
    at = 3 if window.read(0, 3) == b"\xef\xbb\xbf" else 0
    at = _skip(window, at, _SPACE)
    first = window.read(at, 1)
    if first == b"[":
        header.is_bare_list = header.has_events = True
        at, closed = scan_events(window, at + 1)
        _check_rest(window, at, closed, losses)
    elif first == b"{":
        _read_entries(window, at + 1, header, scan_events, losses)
    else:
        raise DamagedInput(
            "not JSON: it begins with neither { nor [" if first else "the file is empty",
            where=where,
            next_step="give the .json or .json.gz file that torch.profiler wrote",
        )
    if not header.has_events:
        raise DamagedInput(
            "no list of events (`traceEvents`) could be read",
            where=where,
            next_step="give the .json or .json.gz file that torch.profiler wrote",
        )
    return header


def _read_entries(
    window: Window, at: int, header: Header, scan_events: ScanEvents, losses: Losses
) -> None:
    while True:
        at = _skip(window, at, _SPACE + b",")
        first = window.read(at, 1)
        if first == b"}":
            _check_rest(window, at + 1, True, losses)
            return
        try:
            if not first:
                raise Truncated
            key = decode_value(window, at)
            after = _skip(window, key.end, _SPACE)
            if not isinstance(key.value, str) or window.read(after, 1) != b":":
                raise (Damaged("damaged header") if window.read(after, 1) else Truncated())
            value_at = _skip(window, after + 1, _SPACE)
            if key.value == "traceEvents" and window.read(value_at, 1) == b"[":
                header.has_events = True
                at, closed = scan_events(window, value_at + 1)
                if not closed:
                    _note_end(losses, at)
                    return
                continue
            value = decode_value(window, value_at)
            if key.value in KEPT:
                header.entries[key.value] = value.value
            at = value.end
        except Truncated:
            _note_end(losses, at)
            return
        except Damaged:
            losses.add("damaged header", offset=at, dropped=False)
            at = _find_known_key(window, at + 1)


def _note_end(losses: Losses, at: int) -> None:
    losses.add("no end of the file", offset=at, dropped=False)


def _check_rest(window: Window, at: int, closed: bool, losses: Losses) -> None:
    if not closed:
        _note_end(losses, at)
        return
    rest = _skip(window, at, _SPACE + b"\0")
    if window.read(rest, 1):
        losses.add("data after the end", offset=rest, dropped=False)


def _skip(window: Window, at: int, what: bytes) -> int:
    while True:
        data = window.read(at, 64)
        kept = data.lstrip(what)
        at += len(data) - len(kept)
        if kept or not data:
            return at


def _find_known_key(window: Window, at: int) -> int:
    """Offset of the next header entry of a known name; the end of the input if there is none."""
    while True:
        match = _KNOWN_KEY.search(window.view, max(0, at - window.base))
        if match is not None:
            return window.base + match.start()
        at = max(at, window.end - 64)
        if not window.pull(at):
            return window.end
