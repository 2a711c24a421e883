"""A capture on disk: a folder of Parquet files, one a table, and `capture.json`."""

from __future__ import annotations

import json
import secrets
import shutil
from pathlib import Path

import pyarrow as pa

from tokenpath.capture.capture import Capture
from tokenpath.capture.tables import SCHEMA_VERSION, TABLES
from tokenpath.core.errors import CaptureError, DamagedInput, UsageError

MARKER = "capture.json"
"""A folder that holds this file is a capture."""

FORMAT = "tokenpath-capture"
"""What the marker says that the folder is."""

MARKER_BYTES_MAX = 2**20
"""A marker names some tens of tables; a larger file is something else."""


def write_capture(capture: Capture, folder: Path) -> None:
    """Write every non-empty table; the folder must be new or empty, and appears whole or not at all.

    UsageError when the folder cannot be written; CaptureError for a table that breaks its declaration.
    """
    folder = Path(folder)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(
                "the folder is not empty", where=str(folder), next_step="name a new folder"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = folder.parent / f".{folder.name}-{secrets.token_hex(4)}"
        scratch.mkdir()
        try:
            _write_tables(capture, scratch)
            if folder.exists():
                folder.rmdir()
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise UsageError(
            f"cannot write the capture: {error}", where=str(folder), next_step="name another folder"
        ) from None


def _write_tables(capture: Capture, folder: Path) -> None:
    # Imported here: reading a trace needs no Parquet, and the import takes a twentieth of a second.
    import pyarrow.parquet as pq

    tables = {name: capture.num_rows(name) for name in TABLES if capture.num_rows(name)}
    for name in tables:
        try:
            pq.write_table(
                capture[name],
                folder / f"{name}.parquet",
                compression="zstd",
                write_page_checksum=True,
            )
        except pa.ArrowInvalid as error:
            raise CaptureError(
                str(error), where=f"table {name}", next_step="see tokenpath.capture.validate"
            ) from None
    marker = {"format": FORMAT, "schema_version": SCHEMA_VERSION, "tables": tables}
    (folder / MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")


def read_capture(folder: Path) -> Capture:
    """The capture of a folder that `write_capture` wrote.

    DamagedInput when the folder is no capture, or a named table is missing or unreadable; CaptureError
    for another version or other columns.
    """
    folder = Path(folder)
    num_rows = _read_marker(folder / MARKER)
    return Capture({name: _read_table(folder, name, rows) for name, rows in num_rows.items()})


def _read_marker(path: Path) -> dict[str, int]:
    """Rows of each table in the folder."""
    try:
        if path.stat().st_size > MARKER_BYTES_MAX:
            raise DamagedInput(
                "too large to be a marker", where=str(path), allowed=f"{MARKER_BYTES_MAX:,} bytes"
            )
        marker = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedInput(f"not a capture folder: {error}", where=str(path)) from None
    if not isinstance(marker, dict) or marker.get("format") != FORMAT:
        raise DamagedInput("not a capture folder", where=str(path), allowed=f'"format": "{FORMAT}"')
    version, num_rows = marker.get("schema_version"), marker.get("tables")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise CaptureError(
            f"schema version {version!r}",
            where=str(path),
            allowed=f"schema version {SCHEMA_VERSION}",
            next_step="convert the original trace again",
        )
    if not isinstance(num_rows, dict) or not all(type(rows) is int for rows in num_rows.values()):
        raise DamagedInput("`tables` does not give the rows of each table", where=str(path))
    # Only declared names become part of a path.
    unknown = [name for name in num_rows if name not in TABLES]
    if unknown:
        raise CaptureError(
            "tables that are not declared: " + ", ".join(map(repr, unknown[:5])),
            where=str(path),
            allowed=", ".join(TABLES),
            next_step="convert the original trace again",
        )
    return num_rows


def _read_table(folder: Path, name: str, num_rows: int) -> pa.Table:
    # Imported here: reading a trace needs no Parquet, and the import takes a twentieth of a second.
    import pyarrow.parquet as pq

    path = folder / f"{name}.parquet"
    expected = TABLES[name].schema
    try:
        # Not read_table: it fills columns that the file lacks with NULL, and takes `rank=0` in the path
        # of the folder for a column.
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            found = file.schema_arrow
            if found.equals(expected):
                table = file.read()
                table.validate(full=True)
                if table.num_rows != num_rows:
                    raise DamagedInput(
                        f"{table.num_rows:,} rows, {MARKER} says {num_rows:,}", where=str(path)
                    )
                return table
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DamagedInput(f"cannot read the table: {error}", where=str(path)) from None
    raise CaptureError(
        "columns differ from the declaration: "
        + ", ".join(f"{field.name} {field.type}" for field in found),
        where=str(path),
        allowed=", ".join(f"{field.name} {field.type}" for field in expected),
        next_step="convert the original trace again",
    )
