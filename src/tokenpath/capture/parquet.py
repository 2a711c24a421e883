"""A capture on disk: a folder of Parquet files, one a table, and `capture.json`."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tokenpath.capture.capture import Capture
from tokenpath.capture.tables import SCHEMA_VERSION, TABLES
from tokenpath.core.errors import CaptureError, DamagedInput, UsageError

MARKER = "capture.json"
"""A folder that holds this file is a capture."""


def write_capture(capture: Capture, folder: Path) -> None:
    """Write every non-empty table; the folder must be new or empty, and appears whole or not at all."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            "the folder is not empty", where=str(folder), next_step="name a new folder"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".capture-", dir=folder.parent))
    try:
        tables = [name for name in TABLES if capture.num_rows(name)]
        for name in tables:
            pq.write_table(capture[name], scratch / f"{name}.parquet", compression="zstd")
        marker = {"format": "tokenpath-capture", "schema_version": SCHEMA_VERSION, "tables": tables}
        (scratch / MARKER).write_text(json.dumps(marker, indent=1) + "\n")
        scratch.chmod(0o755)
        if folder.exists():
            folder.rmdir()
        scratch.rename(folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def read_capture(folder: Path) -> Capture:
    """The capture of a folder that `write_capture` wrote.

    DamagedInput when a named table is missing or unreadable; CaptureError for another version.
    """
    marker_path = folder / MARKER
    try:
        marker = json.loads(marker_path.read_text())
        version, names = marker["schema_version"], marker["tables"]
        known = [name for name in names if name in TABLES]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DamagedInput(f"not a capture folder: {error}", where=str(marker_path)) from None
    if version != SCHEMA_VERSION or len(known) != len(names):
        raise CaptureError(
            f"schema version {version!r} with tables {names}",
            where=str(marker_path),
            allowed=f"schema version {SCHEMA_VERSION}",
            next_step="convert the original trace again",
        )
    tables = {}
    for name in known:
        path = folder / f"{name}.parquet"
        try:
            tables[name] = pq.read_table(path, schema=TABLES[name].schema)
        except (OSError, pa.ArrowException) as error:
            raise DamagedInput(f"cannot read the table: {error}", where=str(path)) from None
    return Capture(tables)
