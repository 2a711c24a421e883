"""Entries of the recorder to columns of `collective`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tokenpath.core.units import INT64_MAX, NS_PER_MS
from tokenpath.ingest.call_stacks import CallStacks
from tokenpath.ingest.collective_names import bytes_of, plain_name
from tokenpath.ingest.fields import duration_ns
from tokenpath.ingest.json_stream import JsonStream
from tokenpath.ingest.losses import Losses

_STATES = ("completed", "started", "scheduled")
_P2P = re.compile(r"(?P<op>send|recv) (?P<own>\d{1,9})(?:->|<-)(?P<peer>\d{1,9})")
"""`send 0->1` and `recv 0<-1`; the ranks count within the group."""
_BACKEND = re.compile(r"^(?:nccl|gloo|ucc|xccl|hccl|mpi):")
"""What comes first in `nccl:all_reduce`. Anything else stays: half of a text may escape masking."""
_MAX_NAME = 200

_COLUMNS = (
    *(
        "op",
        "payload_bytes",
        "output_bytes",
        "dtype",
        "group",
        "sequence",
        "state",
        "is_p2p",
        "peer",
    ),
    *("created_ns", "start_ns", "end_ns", "duration_ns", "call_stack"),
)


class Entries:
    """Rows in the making, column by column."""

    def __init__(self, losses: Losses, stacks: CallStacks) -> None:
        self.num_seen = 0
        """Entries seen, malformed ones included."""
        self.num_unfinished = 0
        """Rows whose collective had not finished."""
        self.first_unfinished: str | None = None
        """The one of them that was asked for first, in words."""
        self.has_times = False
        """Whether the host noticed a start or end."""
        self._losses = losses
        self._stacks = stacks
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}

    def __len__(self) -> int:
        return len(self._columns["op"])

    def columns(self, group_sizes: Mapping[str, int]) -> dict[str, list[Any]]:
        """All rows, with the sizes of their groups."""
        sizes = [group_sizes.get(group) for group in self._columns["group"]]
        return {**self._columns, "group_size": sizes}

    def take(self, entry: object, stream: JsonStream | None) -> None:
        """Add an entry, which was just taken from that stream, if from one."""
        self.num_seen += 1
        name = entry.get("profiling_name") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(name, str):
            self._losses.add("malformed entry", offset=_offset(stream))
            return
        op = _BACKEND.sub("", name[:_MAX_NAME])
        p2p = _P2P.fullmatch(op)
        is_p2p = entry["is_p2p"] if isinstance(entry.get("is_p2p"), bool) else None
        group = _group(entry.get("process_group"))
        sequence = _whole(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id"))
        state = entry.get("state")
        if state not in _STATES:
            self._losses.add("entry of unknown state", offset=_offset(stream), dropped=False)
            state = None
        start, end = self._times(entry, stream)
        inputs, dtypes = _list(entry.get("input_sizes")), _list(entry.get("input_dtypes"))
        row = {
            "op": p2p["op"] if p2p else plain_name(op),
            "payload_bytes": bytes_of(inputs, dtypes),
            "output_bytes": bytes_of(
                _list(entry.get("output_sizes")), _list(entry.get("output_dtypes"))
            ),
            "dtype": _dtype(dtypes),
            "group": group,
            "sequence": sequence,
            "state": state,
            "is_p2p": is_p2p,
            "peer": int(p2p["peer"]) if p2p else None,
            "created_ns": _time(entry.get("time_created_ns")),
            "start_ns": start,
            "end_ns": end,
            "duration_ns": duration_ns(entry.get("duration_ms"), NS_PER_MS),
            "call_stack": self._stacks.text(entry.get("frames")),
        }
        for key, column in self._columns.items():
            column.append(row[key])
        if state in ("started", "scheduled"):
            self.num_unfinished += 1
            if self.first_unfinished is None:
                number = "" if sequence is None else f" {sequence}"
                within = "" if group is None else f" of group {group}"
                self.first_unfinished = f"{row['op']}{number}{within} ({state})"

    def _times(
        self, entry: dict[Any, Any], stream: JsonStream | None
    ) -> tuple[int | None, int | None]:
        start = _time(entry.get("time_discovered_started_ns"))
        end = _time(entry.get("time_discovered_completed_ns"))
        self.has_times |= start is not None or end is not None
        if start is not None and end is not None and end < start:
            # The host's clock was set back in between.
            self._losses.add("end before start", offset=_offset(stream), dropped=False)
            start = None
        return start, end


def _offset(stream: JsonStream | None) -> int | None:
    # Asked for only where something is wrong: finding it counts the bytes of what is held.
    return None if stream is None else stream.offset


def _time(value: object) -> int | None:
    """A time; 0 is how the JSON form writes an unknown one."""
    return _whole(value) or None


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= INT64_MAX else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _group(value: object) -> str | None:
    """Name of a process group, from (name, description) or alone."""
    if isinstance(value, list | tuple) and value:
        value = value[0]
    return value[:_MAX_NAME] if isinstance(value, str) else None


def _dtype(dtypes: list[Any]) -> str | None:
    distinct = dict.fromkeys(name[:_MAX_NAME] for name in dtypes[:1000] if isinstance(name, str))
    return ", ".join(list(distinct)[:8]) or None
