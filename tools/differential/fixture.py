"""The fixture files: compact JSON lines, gzip-compressed, the same bytes for the same records."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

Record = dict[str, Any] | list[Any]


def write(path: Path, records: list[Record]) -> None:
    """Write one record a line. The gzip header carries neither a time nor a name."""
    lines = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        packed.write(lines.encode())
