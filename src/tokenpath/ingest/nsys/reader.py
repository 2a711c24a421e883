"""The reader of Nsight Systems exports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file, stored_bytes

_MAGIC = b"SQLite format 3\0"
_MARKS = re.compile(
    rb"CREATE TABLE \W?(?:StringIds|META_DATA_EXPORT|EXPORT_META_DATA|TARGET_INFO_\w+|NVTX_EVENTS)\b"
)
_TABLES = frozenset(
    {"StringIds", "NVTX_EVENTS", "META_DATA_EXPORT", "CUPTI_ACTIVITY_KIND_KERNEL", "PROCESSES"}
)
_SUFFIXES = (".parquet", ".arrow")


class NsysReader:
    """What `nsys export` writes, as SQLite or as a folder of Parquet or Arrow files."""

    name = "nsys"
    version = 1
    describes = "Nsight Systems export, .sqlite, or a folder of .parquet or .arrow files"
    is_generic = False

    def sniff(self, head: bytes, path: Path) -> bool:
        """A SQLite file with the tables of an export, or a folder of files named like them."""
        if path.is_dir():
            files = [file for file in path.iterdir() if file.suffix in _SUFFIXES]
            return any(file.stem in _TABLES for file in files)
        return head.startswith(_MAGIC) and _MARKS.search(head) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read exports into one capture; each process of each file is a row of `source`."""
        from tokenpath.capture.combine import combine

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([self._read_one(path, own) for path, own in each])

    def _read_one(self, path: Path, options: Options) -> Capture:
        from tokenpath.ingest.builder import CaptureBuilder
        from tokenpath.ingest.nsys.assemble import read_export
        from tokenpath.ingest.nsys.export import FolderExport
        from tokenpath.ingest.sqlite_columns import open_columns

        builder = CaptureBuilder(self, path, options)
        if path.is_dir():
            folder = FolderExport(path, options.max_bytes)
            for name in folder.unreadable:
                builder.losses.add("table that cannot be read", what=name, dropped=False)
            capture = read_export(folder, builder, path.name)
        else:
            log = path.with_name(path.name + "-wal")
            if log.is_file() and log.stat().st_size:
                builder.losses.add("write-ahead log beside the file", dropped=False)
            with open_columns(path, builder.losses, options.max_bytes) as database:
                capture = read_export(database, builder, path.name)
        if options.progress is not None:
            size = stored_bytes(path)
            options.progress(size, size)
        return capture


READERS = (NsysReader(),)
