"""Convert: traces to a capture folder of Parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenpath.api.load import Progress, load
from tokenpath.capture.capture import Capture
from tokenpath.capture.parquet import write_capture
from tokenpath.capture.validate import validate


def convert(
    paths: Sequence[str | Path],
    folder: str | Path,
    *,
    keep_hosts: bool = False,
    progress: Progress | None = None,
    columns: Mapping[str, str] | None = None,
) -> Capture:
    """Read, link, validate and write; the folder appears whole or not at all.

    Raises InputError for input that cannot be read and UsageError when the folder is not empty.
    """
    capture = load(paths, keep_hosts=keep_hosts, progress=progress, columns=columns)
    validate(capture)
    write_capture(capture, Path(folder))
    return capture
