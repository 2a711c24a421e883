"""One dump: its entries, process groups and their status.

The form is that of torch/csrc/distributed/c10d/FlightRecorderDetail.hpp (versions 2.0 to 2.10): the JSON and
the pickled form have the same keys, but in JSON an unknown time is 0, in the pickle it is None, and only the
pickle has call stacks. Times are nanoseconds since 1970.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput, LimitExceeded
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.call_stacks import CallStacks
from tokenpath.ingest.file_rank import last_number, rank_in_name
from tokenpath.ingest.flight_recorder.entries import Entries
from tokenpath.ingest.json_stream import JsonStream, Take
from tokenpath.ingest.nested_settings import add_settings
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.pickle_file import looks_pickled, read_pickle
from tokenpath.ingest.reader import Options, Reader

_HEADER = ("version", "comm_lib_version", "pg_config", "pg_status", "nccl_comm_state")
_LISTS = ("input_sizes", "input_dtypes", "output_sizes", "output_dtypes")
_MAX_RANKS = 1_000_000


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """The dump of one rank."""
    builder = CaptureBuilder(reader, path, options)
    entries = Entries(builder.losses, CallStacks(builder.losses))
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    first = next(unpacked.chunks, None)
    if first is not None and looks_pickled(first[:2].tobytes()):
        header = _from_pickle(path, options, builder, entries)
    else:
        header = _from_json(path, options, builder, entries)
    if not len(entries) and not header:
        raise DamagedInput(
            "neither collectives nor process groups could be read",
            where=str(path),
            allowed="what torch.distributed's flight recorder writes",
        )
    builder.num_events = entries.num_seen
    groups = header.get("pg_config")
    sizes = _group_sizes(groups)
    builder.add("collective", entries.columns(sizes))
    for name in _HEADER:
        if name in header:
            add_settings(builder, name, header[name])
    origin = builder.origin
    origin.profiler = "NCCL flight recorder"
    rank = rank_in_name(path)
    origin.rank = last_number(path) if rank is None else rank
    origin.rank_source = None if origin.rank is None else "file name"
    origin.world_size = _world_size(groups, sizes)
    _add_notes(builder, entries)
    return builder.finish()


def _from_pickle(
    path: Path, options: Options, builder: CaptureBuilder, entries: Entries
) -> dict[str, Any]:
    root, num_bytes = read_pickle(path, options, builder.losses)
    if not isinstance(root, dict):
        return {}
    found = root.get("entries")
    if isinstance(found, list):
        if sum(map(_num_bytes_at_least, found)) > num_bytes:
            raise LimitExceeded(
                "more collectives than its bytes can hold: parts are named over and over",
                where=str(path),
                allowed="a dump in which every collective is there once",
            )
        for entry in found:
            entries.take(entry, None)
    return {name: root[name] for name in _HEADER if name in root}


def _num_bytes_at_least(entry: Any) -> int:
    """A lower bound on how an entry is written: a pickle can name one list in many places."""
    if not isinstance(entry, dict):
        return 1
    lists = [entry.get(key) for key in _LISTS]
    return 16 + sum(len(found) for found in lists if isinstance(found, list))


def _from_json(
    path: Path, options: Options, builder: CaptureBuilder, entries: Entries
) -> dict[str, Any]:
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    document = _Document(entries)
    JsonStream(unpacked.chunks, builder.losses).walk(document)
    unpacked.report_done()
    for problem in unpacked.problems:
        builder.losses.add(problem, dropped=False)
    return document.header


class _Document:
    """Takes the members of the JSON object."""

    def __init__(self, entries: Entries) -> None:
        self.header: dict[str, Any] = {}
        self._entries = entries

    def choose(self, path: tuple[str, ...], _opens: str) -> Take:
        if not path:
            return Take.ENTER
        if path == ("entries",):
            return Take.EACH
        return Take.WHOLE if len(path) == 1 and path[0] in _HEADER else Take.SKIP

    def take(self, path: tuple[str, ...], value: object, stream: JsonStream) -> None:
        if path == ("entries",):
            self._entries.take(value, stream)
        elif path:
            self.header[path[0]] = value

    def leave(self, _path: tuple[str, ...]) -> None:
        """Nothing is held open."""

    def damaged(self, _path: tuple[str, ...]) -> None:
        self._entries.num_seen += 1


def _group_sizes(groups: Any) -> dict[str, int]:
    """Ranks of each process group by name."""
    if not isinstance(groups, dict):
        return {}
    sizes = {}
    for key, group in groups.items():
        ranks = group.get("ranks") if isinstance(group, dict) else None
        if isinstance(ranks, str):
            # "[0, 1, 2]"; where the ranks have a form of their own ("0-7"), the size stays unknown.
            try:
                ranks = json.loads(ranks)
            except (ValueError, RecursionError):
                continue
        if isinstance(ranks, list) and 0 < len(ranks) <= _MAX_RANKS:
            sizes[str(group.get("name", key))] = len(ranks)
    return sizes


def _world_size(groups: Any, sizes: dict[str, int]) -> int | None:
    """Size of the default group, which holds all ranks."""
    for key, group in groups.items() if isinstance(groups, dict) else ():
        if isinstance(group, dict) and group.get("desc") == "default_pg":
            return sizes.get(str(group.get("name", key)))
    return None


def _add_notes(builder: CaptureBuilder, entries: Entries) -> None:
    if entries.num_unfinished:
        ago = f"the first is {entries.first_unfinished}" if entries.first_unfinished else ""
        builder.note(
            "unfinished-collectives",
            f"{entries.num_unfinished} of {len(entries)} collectives had not finished when this was "
            f"written; {ago}",
        )
    if entries.has_times:
        builder.note(
            "watchdog-times",
            "starts and ends of collectives are when the host noticed them, so both are late and their "
            "difference is not the device's time",
        )
