"""Read whatever the user named into one capture."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from tokenpath.capture.capture import Capture, build_table
from tokenpath.capture.combine import combine
from tokenpath.core.errors import InputError, UnknownFormat
from tokenpath.core.redact import Redactor
from tokenpath.ingest.formats import sniff, sniff_folder
from tokenpath.ingest.packed import MAX_UNPACKED_BYTES, Progress
from tokenpath.ingest.reader import Options, Reader, options_by_group

_SUFFIXES = (
    *(".json", ".jsonl", ".gz", ".zst", ".zip", ".sqlite", ".db", ".pb", ".pftrace"),
    *(".perfetto-trace", ".csv", ".pickle", ".pkl", ".msgpack", ".log", ".txt", ".prom", ".raw"),
)
"""Files of a folder with other endings are not looked at ..."""
_RANK_AT_END = re.compile(r"rank_?\d+$")
"""... but for those named by rank alone, as the flight recorder's `nccl_trace_rank_0`."""


def read(
    paths: Sequence[Path],
    *,
    keep_hosts: bool = False,
    progress: Progress | None = None,
    max_bytes: int = MAX_UNPACKED_BYTES,
    num_workers: int | None = None,
    scanner: str = "auto",
    columns: Mapping[str, str] | None = None,
) -> Capture:
    """Read files, folders or globs of ranks into one capture.

    Secrets are masked; `keep_hosts` keeps host names. `progress` is called with (stored bytes read,
    stored bytes in all or None). `max_bytes` bounds what one file may unpack to. `num_workers` and
    `scanner` (`slow`, `fast`, `auto`) change how fast it is, not what comes back. `columns` names the
    columns of plain CSV files. Files of several formats become one capture; their rows stay apart.

    InputError and its kinds: no such file, unknown format, nothing readable, larger than a bound.
    """
    files = expand(paths)
    by_file, strangers = _sniff_all(files, {Path(path) for path in paths}, columns or {})
    options = Options(
        keep_hosts,
        progress,
        max_bytes,
        num_workers,
        scanner,
        dict(columns or {}),
        Redactor(keep_hosts=keep_hosts),
    )
    capture = combine(_read_all(by_file, options))
    return _with_strangers(capture, strangers) if strangers else capture


def _read_all(by_file: Mapping[Path, Reader], options: Options) -> list[Capture]:
    """A capture from each format, in the order in which the formats were first named."""
    files_of: dict[str, list[Path]] = {}
    for file, reader in by_file.items():
        files_of.setdefault(reader.name, []).append(file)
    of_name = {reader.name: reader for reader in by_file.values()}
    groups = list(files_of.values())
    each = options_by_group(groups, options) if len(groups) > 1 else iter([options])
    return [
        of_name[name].read(files, own)
        for (name, files), own in zip(files_of.items(), each, strict=True)
    ]


def _sniff_all(
    files: Sequence[Path], named: set[Path], columns: Mapping[str, str]
) -> tuple[dict[Path, Reader], list[Path]]:
    """The reader of each file, and files of a folder that are no traces (a config.json beside them).

    UnknownFormat for a file that was named itself, and when a folder holds nothing else.
    """
    readers: dict[Path, Reader] = {}
    strangers: list[Path] = []
    for file in files:
        try:
            readers[file] = (sniff_folder(file) if file.is_dir() else None) or sniff(file, columns)
        except UnknownFormat:
            if file in named or (len(readers) + len(strangers) + 1 == len(files) and not readers):
                raise
            strangers.append(file)
    return readers, strangers


def _with_strangers(capture: Capture, strangers: Sequence[Path]) -> Capture:
    """The capture with the files of a folder that no reader knows among what was skipped."""
    row = build_table(
        "skip",
        {
            "source_id": [0],
            "reason": ["file of another format in the folder"],
            "lost": [False],
            "num_events": [len(strangers)],
            "example": [Redactor().mask_one(strangers[0].name)],
        },
    )
    return capture.replace({"skip": pa.concat_tables([capture["skip"], row]).unify_dictionaries()})


def expand(paths: Sequence[Path]) -> list[Path]:
    """Files for files, folders (their trace files, sorted) and globs; each once, in the order named."""
    found: dict[Path, None] = {}
    for path in paths:
        for file in _expand_one(Path(path)):
            found.setdefault(file)
    if not found:
        raise InputError("no file was named", next_step="name a trace file, a folder or a glob")
    return list(found)


def _expand_one(path: Path) -> list[Path]:
    if path.is_dir():
        if sniff_folder(path) is not None:
            return [path]
        files = [p for p in sorted(path.iterdir()) if p.is_file() and _looks_like_trace(p)]
        if not files:
            raise UnknownFormat(
                "the folder holds no trace files",
                where=str(path),
                allowed="files ending in " + ", ".join(_SUFFIXES),
            )
        return files
    if path.exists():
        return [path]
    if glob.has_magic(str(path)):
        root = Path(path.anchor)
        matches = sorted(root.glob(str(path.relative_to(root)) if path.anchor else str(path)))
        files = [p for p in matches if p.is_file()]
        if files:
            return files
        raise InputError("the pattern matches no file", where=str(path))
    raise InputError("no such file", where=str(path), next_step="check the path")


def _looks_like_trace(path: Path) -> bool:
    name = path.name
    return not name.startswith(".") and (
        name.endswith(_SUFFIXES) or _RANK_AT_END.search(name) is not None
    )
