"""Gathers what one file holds into a capture: rows, losses, notes, settings; every text masked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tokenpath.capture.capture import Capture, build_table
from tokenpath.capture.tables import TABLES
from tokenpath.core.redact import Redactor
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.plain_texts import not_plain
from tokenpath.ingest.reader import Options, Reader, stored_bytes

_HASHED_BYTES = 64 * 2**20
"""Larger files are not hashed: that would cost as much as reading them."""


@dataclass
class Origin:
    """What a file says about itself; None where it does not."""

    clock: str = "epoch"
    """`epoch` if times are nanoseconds since 1970, else `monotonic`."""
    clock_offset_ns: int = 0
    """What was added to the file's own times."""
    base_time_ns: int | None = None
    """Epoch time that the file's stamps count from."""
    rank: int | None = None
    """Rank in the job."""
    world_size: int | None = None
    """Ranks in the job."""
    rank_source: str | None = None
    """How the rank was found."""
    host: str | None = None
    """Host name as written; it becomes a pseudonym."""
    profiler: str | None = None
    """What wrote the file."""
    trace_id: str | None = None
    """The writer's own id of the run."""
    state: str = "measured"
    """`measured`, `synthetic` or `simulated`."""


class CaptureBuilder:
    """One file on its way to a capture. Rows are added as columns, table by table."""

    def __init__(self, reader: Reader, path: Path, options: Options) -> None:
        self._reader = reader
        self._path = path
        self._redactor = options.masks()
        self._parts: dict[str, list[pa.Table]] = {}
        self._notes: dict[str, str] = {}
        self._settings: dict[str, str] = {}
        self.losses = Losses()
        """What was dropped or repaired, by reason."""
        self.num_events = 0
        """Events seen in the file, skipped ones included; the reader counts them."""
        self.origin = Origin()
        """What the file says about itself."""
        self._others: list[tuple[Origin, int]] = []

    def add_source(self, origin: Origin, num_events: int) -> int:
        """A further row of `source` for the same file, such as another process; its `source_id`."""
        self._others.append((origin, num_events))
        return len(self._others)

    def add(self, table: str, columns: Mapping[str, Sized]) -> int:
        """Append rows to a table; the number of the first of them.

        Without `source_id` they are of the first source. Every text is masked here. CaptureError for columns that the table does not declare.
        """
        first = self.num_rows(table)
        num_rows = len(next(iter(columns.values()), ()))
        if num_rows:
            masked = {name: self._masked(table, name, values) for name, values in columns.items()}
            masked.setdefault("source_id", np.zeros(num_rows, np.int32))
            self._parts.setdefault(table, []).append(build_table(table, masked))
        return first

    def add_rows(self, table: str, rows: Sequence[Mapping[str, Any]]) -> int:
        """The same from rows as dictionaries, for tables of few rows; a missing key is NULL."""
        names = dict.fromkeys(name for row in rows for name in row)
        return self.add(table, {name: [row.get(name) for row in rows] for name in names})

    def so_far(self) -> Capture:
        """What has been added, for reading links between tables; it has no `source` yet."""
        return Capture({name: _joined(parts) for name, parts in self._parts.items()})

    def num_rows(self, table: str) -> int:
        """Rows added to a table so far."""
        return sum(part.num_rows for part in self._parts.get(table, ()))

    def note(self, code: str, sentence: str) -> None:
        """Say, once, what the source's numbers need to be read with."""
        self._notes.setdefault(code, sentence)

    def setting(self, name: str, value: object) -> None:
        """Keep a setting that the file states; None is none."""
        if value is not None:
            self._settings[name] = str(value)

    def finish(self) -> Capture:
        """The capture of the file."""
        for code, sentence in self._notes.items():
            self.add_rows("source_note", [{"code": code, "sentence": sentence}])
        for name, value in self._settings.items():
            self.add_rows("setting", [{"name": name, "value": value}])
        self.add_rows(
            "skip",
            [
                {
                    "reason": loss.reason,
                    "lost": loss.lost,
                    "num_events": loss.num_events,
                    "example": loss.example,
                }
                for loss in self.losses.rows()
            ],
        )
        tables = {name: _joined(parts) for name, parts in self._parts.items()}
        return Capture({"source": self._source(), **tables})

    def _source(self) -> pa.Table:
        redactor = self._redactor
        origins = [(self.origin, self.num_events), *self._others]
        same = {
            "path": redactor.mask_one(self._path.name),
            "format": self._reader.name,
            "reader_version": self._reader.version,
            "sha256": _sha256(self._path),
            "num_bytes": stored_bytes(self._path),
        }
        rows = [
            same
            | {
                "trace_id": redactor.mask_one(_readable(origin.trace_id)),
                "base_time_ns": origin.base_time_ns,
                "clock_offset_ns": origin.clock_offset_ns,
                "clock": origin.clock,
                "rank": origin.rank,
                "world_size": origin.world_size,
                "rank_source": origin.rank_source,
                "host": None if origin.host is None else redactor.host(_readable(origin.host)),
                "profiler": redactor.mask_one(_readable(origin.profiler)),
                "state": origin.state,
                "num_events": num_events,
                "num_skipped": 0 if number else self.losses.num_dropped(),
            }
            for number, (origin, num_events) in enumerate(origins)
        ]
        return build_table("source", {name: [row[name] for row in rows] for name in rows[0]})

    def _masked(self, table: str, name: str, values: Sized) -> Sized:
        kind = TABLES[table].column(name).type if _has(table, name) else ""
        if kind not in ("text", "string", "strings", "map"):
            return values
        array = (
            values
            if isinstance(values, pa.Array)
            else _texts(values, TABLES[table].column(name).arrow_type)
        )
        return _mask_array(array, self._redactor)


def _has(table: str, name: str) -> bool:
    return any(column.name == name for column in TABLES[table].columns)


def _texts(values: Sized, kind: pa.DataType) -> pa.Array:
    is_dictionary = pa.types.is_dictionary(kind)
    plain = kind.value_type if is_dictionary else kind
    try:
        array = pa.array(values, plain)
    except UnicodeEncodeError:
        # JSON may hold half of a surrogate pair, which is no character.
        array = pa.array(_readable(values), plain)
    return array.dictionary_encode() if is_dictionary else array


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return [(_readable(key), _readable(item)) for key, item in value.items()]
    if isinstance(value, list | tuple | np.ndarray):
        return [_readable(item) for item in value]
    return value


def _mask_array(array: pa.Array, redactor: Redactor) -> pa.Array:
    """The same column with every text masked; one masking for each distinct text of a dictionary."""
    types = pa.types
    if types.is_dictionary(array.type):
        texts = _mask_distinct(array.dictionary, redactor)
        return pa.DictionaryArray.from_arrays(array.indices, texts)
    if types.is_map(array.type):
        items = _mask_array(array.items, redactor)
        keys = _mask_array(array.keys, redactor)
        masked = pa.MapArray.from_arrays(array.offsets, _decoded(keys), _decoded(items))
        return masked if not array.null_count else _with_nulls(masked, array)
    if types.is_list(array.type):
        masked = pa.ListArray.from_arrays(array.offsets, _mask_array(array.values, redactor))
        return masked if not array.null_count else _with_nulls(masked, array)
    return _mask_texts(array, redactor)


def _decoded(texts: pa.Array) -> pa.Array:
    return texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts


def _mask_texts(texts: pa.Array, redactor: Redactor) -> pa.Array:
    """Plain texts masked; numbers and hexadecimal ids, of which there are many, are not looked at."""
    if not redactor.knows_only_words():
        return _mask_array(texts.dictionary_encode(), redactor).cast(pa.string())
    looked_at = not_plain(texts)
    if not looked_at.any():
        return texts.cast(pa.string())
    import pyarrow.compute as pc

    found = texts.filter(pa.array(looked_at)).dictionary_encode()
    masked = pa.array(redactor.mask(found.dictionary.to_pylist()), pa.string()).take(found.indices)
    return pc.replace_with_mask(texts.cast(pa.string()), pa.array(looked_at), masked)


def _mask_distinct(texts: pa.Array, redactor: Redactor) -> pa.Array:
    if not redactor.knows_only_words():
        return pa.array(redactor.mask(texts.to_pylist()), pa.string())
    return _mask_texts(texts, redactor)


def _with_nulls(masked: pa.Array, original: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.if_else(original.is_valid(), masked, pa.nulls(len(original), masked.type))


def _joined(parts: Sequence[pa.Table]) -> pa.Table:
    if len(parts) == 1:
        return parts[0]
    return pa.concat_tables(parts).unify_dictionaries().combine_chunks()


def _sha256(path: Path) -> str | None:
    if path.is_dir() or path.stat().st_size > _HASHED_BYTES:
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
