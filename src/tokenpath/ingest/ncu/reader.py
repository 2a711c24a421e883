"""The reader of Nsight Compute CSV exports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_HEADER = re.compile(
    rb'^(?:"ID",)?"Process ID",(?:"[^"\r\n]*",)*"Kernel Name"(?:,"[^"\r\n]*")*', re.MULTILINE
)


class NcuReader:
    """What `ncu --csv --page raw` and `--page details` print."""

    name = "ncu"
    version = 1
    describes = "Nsight Compute counters, .csv of --page raw or --page details"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A line of quoted column names with a process and a kernel; ncu prints others before it."""
        return _HEADER.search(head) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files into one capture, each its own row of `source`."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.ncu.table import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


READERS = (NcuReader(),)
