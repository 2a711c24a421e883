"""The readers of what AMD's rocprofv3 writes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options

_SQLITE = b"SQLite format 3\0"
_ROCPD = re.compile(rb"rocpd_(?:metadata|string|info_node|info_agent|kernel_dispatch)")
_CSV_HEADS = (
    b'"Kind","Agent_Id","Queue_Id",',
    b'"Domain","Function","Process_Id","Thread_Id","Correlation_Id",',
    b'"Kind","Direction",',
    b'"Kind","Operation","Agent_Id","Allocation_Size",',
    b'"Kind","Operation","Agent_Id","Queue_Id",',
    b'"Node_Id","Logical_Node_Id","Agent_Type",',
    b'"Correlation_Id","Dispatch_Id","Agent_Id",',
)


class RocprofJsonReader:
    """The JSON of `rocprofv3 --output-format json`."""

    name = "rocprof-json"
    version = 1
    describes = "rocprofv3 JSON (rocprofiler-sdk-tool), .json"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """An object whose first member is the tool's own."""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
        return re.match(rb'\{\s*"rocprofiler-sdk-tool"\s*:', start) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files, each a source of its own."""
        from tokenpath.ingest.rocprof.json_file import read_files

        return read_files(self, paths, options)


class RocprofCsvReader:
    """The CSV files of `rocprofv3 --output-format csv`."""

    name = "rocprof-csv"
    version = 1
    describes = "rocprofv3 CSV: kernel_trace, hip_api_trace, memory_copy_trace, ..., .csv"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A line of column names that one of rocprofv3's files has."""
        first = head.removeprefix(b"\xef\xbb\xbf")
        return first.startswith(_CSV_HEADS)

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files; those of one run (`<prefix>_kernel_trace.csv`, ...) are joined."""
        from tokenpath.ingest.rocprof.csv_files import read_files

        return read_files(self, paths, options)


class RocpdReader:
    """The SQLite database that rocprofv3 writes by default since ROCm 7."""

    name = "rocpd"
    version = 1
    describes = "rocprofv3 database (rocpd), .db"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A SQLite database whose schema names rocpd's tables."""
        return head.startswith(_SQLITE) and _ROCPD.search(head) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files, each a source of its own."""
        from tokenpath.ingest.rocprof.rocpd import read_files

        return read_files(self, paths, options)


READERS = (RocprofJsonReader(), RocprofCsvReader(), RocpdReader())
