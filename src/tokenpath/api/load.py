"""Traces or a capture folder to a linked capture."""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
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
) -> Capture:
    """A linked capture from trace files, folders or globs of ranks, or one capture folder.

    Raises an InputError with file and reason when nothing can be read.
    """
    if not paths:
        raise InputError(
            "no file named", next_step="name a trace file, a folder or a glob of ranks"
        )
    expanded = [found for path in paths for found in _expand(path)]
    captures = [path for path in expanded if (path / MARKER).is_file()]
    if captures:
        if len(expanded) > 1:
            raise InputError(
                "a capture folder cannot be read together with other input",
                where=str(captures[0]),
                next_step="name one capture folder, or only trace files",
            )
        return read_capture(captures[0])
    return link(read(expanded, keep_hosts=keep_hosts, progress=progress))


def _expand(path: str | Path) -> list[Path]:
    if Path(path).exists() or not glob.has_magic(str(path)):
        return [Path(path)]
    # `glob.glob` takes a pattern as the shell writes it, absolute or not; Path.glob does not.
    found = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207
    if not found:
        raise InputError("no file matches", where=str(path), next_step="check the pattern")
    return found
