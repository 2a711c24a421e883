"""The reader of PyTorch Kineto traces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_MARKS = re.compile(rb'"(?:schemaVersion|deviceProperties|distributedInfo|traceEvents)"\s*:')
_PHASE = re.compile(rb'"ph"\s*:\s*"[A-Za-z]"')
_TIME = re.compile(rb'"ts"\s*:')
_XPROF = b'"highres-ticks"'


class KinetoReader:
    """Chrome trace JSON as PyTorch's profiler and its vendor plug-ins write it."""

    name = "kineto"
    version = 1
    describes = "PyTorch profiler trace, .json, .json.gz, .json.zst or .zip"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """An object with the marks of the profiler, or a bare list of events."""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
        if start[:1] == b"{":
            # XLA's profiler writes the same container with rows of another meaning.
            return _MARKS.search(start) is not None and _XPROF not in start[:4096]
        is_list = re.match(rb"\[\s*\{", start) is not None
        return is_list and None not in (_PHASE.search(start), _TIME.search(start))

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files of one job, ranks or split parts, into one capture."""
        from tokenpath.ingest.kineto.merge import merge_files
        from tokenpath.ingest.kineto.source import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return merge_files((read_file(path, own) for path, own in each), len(paths), options)


READERS = (KinetoReader(),)
