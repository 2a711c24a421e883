"""Where each process group of a job stood when its flight recorders were written."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tokenpath.capture.capture import Capture

Value = TypeVar("Value")
UNKNOWN = -1


@dataclass(frozen=True)
class Entry:
    """One rank's part of a collective in a dump."""

    row: int
    """Row of `collective`."""
    rank: int
    """Rank in the job; of a dump without one, -1 - its number."""
    op: str
    """Operation."""
    payload_bytes: int | None
    """Input bytes."""
    dtype: str | None
    """Element type."""
    state: str | None
    """`completed`, `started` or `scheduled`."""

    @property
    def is_done(self) -> bool:
        """Whether it had finished, as far as the host noticed."""
        return self.state == "completed"


@dataclass(frozen=True)
class Stop:
    """The first collective of a group that did not get through."""

    group: str
    """Name of the process group."""
    sequence: int
    """Its number in the group."""
    entries: Sequence[Entry]
    """Parts of the ranks that asked for it."""
    missing: Sequence[int]
    """Ranks of the group that wrote a dump and never asked for it."""
    without_dump: Sequence[int]
    """Ranks of the group that wrote none."""
    last_of: Mapping[int, int]
    """Last number that each missing rank had asked for; none for one that never used the group."""

    @property
    def op(self) -> str:
        """What most ranks asked for."""
        return _most([entry.op for entry in self.entries])

    @property
    def waiting(self) -> list[Entry]:
        """Parts that had not finished."""
        return [entry for entry in self.entries if not entry.is_done]

    @property
    def disagreeing(self) -> list[Entry]:
        """Parts with another operation or size than most, where parts of that operation are equal."""
        kinds = [_kind(entry) for entry in self.entries]
        usual = _most(kinds)
        return [e for e, kind in zip(self.entries, kinds, strict=True) if kind != usual]


def _kind(entry: Entry) -> tuple[object, ...]:
    # Parts of all-to-alls and gathers of uneven sizes differ, rightly.
    is_even = entry.op in ("allreduce", "broadcast", "reduce", "reduce_scatter")
    return (entry.op, entry.payload_bytes if is_even else None, entry.dtype if is_even else None)


def _most(values: Sequence[Value]) -> Value:
    """The most frequent value, the first of equals."""
    return Counter(values).most_common(1)[0][0]


def find_stops(capture: Capture) -> list[Stop]:
    """The stop of each group that has one; groups in which all is done have none."""
    ranks = _ranks(capture)
    by_group = _entries(capture, ranks)
    members = _members(capture)
    stops = []
    for group, sequences in sorted(by_group.items()):
        wrote = {entry.rank for entries in sequences.values() for entry in entries}
        named = members.get(group, set())
        of_group = (named & set(ranks)) | wrote
        last: dict[int, int] = {}
        for number, entries in sequences.items():
            for entry in entries:
                last[entry.rank] = max(last.get(entry.rank, number), number)
        for number in sorted(sequences):
            entries = sequences[number]
            here = {entry.rank for entry in entries}
            # A rank whose recorder begins later has forgotten it, which is no absence.
            missing = sorted(r for r in of_group - here if last.get(r, -1) < number)
            if missing or any(not entry.is_done for entry in entries):
                stops.append(
                    Stop(
                        group,
                        number,
                        sorted(entries, key=lambda entry: entry.rank),
                        missing,
                        sorted(named - set(ranks)),
                        {rank: last[rank] for rank in missing if rank in last},
                    )
                )
                break
    return stops


def _ranks(capture: Capture) -> list[int]:
    """Rank of each source; -1 - number where unknown."""
    return [
        -1 - number if rank is None else int(rank)
        for number, rank in enumerate(capture["source"]["rank"].to_pylist())
    ]


def _entries(capture: Capture, ranks: Sequence[int]) -> dict[str, dict[int, list[Entry]]]:
    """Collectives of dumps by group and sequence; sends and receives are left out."""
    states, words = capture.codes("collective", "state")
    sequence = capture.int64("collective", "sequence", UNKNOWN)
    is_p2p = capture.int64("collective", "is_p2p", 0)
    rows = np.flatnonzero((sequence != UNKNOWN) & (is_p2p == 0))
    in_dump = {
        int(source)
        for source in np.unique(capture.ids("collective", "source_id")[states >= 0]).tolist()
    }
    table = capture["collective"].take(rows.tolist())
    names = ("source_id", "op", "payload_bytes", "dtype", "group", "sequence")
    found: dict[str, dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for row, values in zip(rows.tolist(), table.select(names).to_pylist(), strict=True):
        if values["source_id"] not in in_dump:
            continue
        state = words[states[row]] if states[row] >= 0 else None
        found[values["group"] or ""][values["sequence"]].append(
            Entry(
                row,
                ranks[values["source_id"]],
                values["op"],
                values["payload_bytes"],
                values["dtype"],
                state,
            )
        )
    return found


def _members(capture: Capture) -> dict[str, set[int]]:
    """Ranks of each group by name, as the dumps' settings state them."""
    names: dict[str, str] = {}
    ranks: dict[str, set[int]] = {}
    for row in capture["setting"].select(["name", "value"]).to_pylist():
        key = row["name"].removeprefix("pg_config.")
        if key == row["name"]:
            continue
        group, _, what = key.rpartition(".")
        if what == "name":
            names[group] = row["value"]
        elif what == "ranks":
            try:
                listed = json.loads(row["value"])
            except ValueError:
                continue
            if isinstance(listed, list):
                ranks[group] = {rank for rank in listed if isinstance(rank, int)}
    return {names.get(group, group): members for group, members in ranks.items()}
