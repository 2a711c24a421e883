"""Traces or a capture folder to a linked capture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.capture.parquet import MARKER, read_capture
from tokenpath.core.errors import InputError
from tokenpath.ingest import read
from tokenpath.stitch import link

Progress = Callable[[int, int | None], None]
"""Called with the bytes read so far and, where known, the bytes in all."""


def load(
    paths: Sequence[str | Path],
    *,
    keep_hosts: bool = False,
    progress: Progress | None = None,
    columns: Mapping[str, str] | None = None,
) -> Capture:
    """A linked capture from trace files, folders or globs of ranks, or one capture folder.

    `columns` says which column of a plain table is what: `{"arrival_s": "start_time"}`. Raises an
    InputError with file and reason when nothing can be read.
    """
    if not paths:
        raise InputError(
            "no file named", next_step="name a trace file, a folder or a glob of ranks"
        )
    named = [Path(path) for path in paths]
    captures = [path for path in named if (path / MARKER).is_file()]
    if captures:
        if len(named) > 1:
            raise InputError(
                "a capture folder cannot be read together with other input",
                where=str(captures[0]),
                next_step="name one capture folder, or only trace files",
            )
        return read_capture(captures[0])
    return link(read(named, keep_hosts=keep_hosts, progress=progress, columns=columns))
