"""The reader of PyTorch Kineto traces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_MARKS = re.compile(rb'"(?:schemaVersion|deviceProperties|distributedInfo)"\s*:')
"""Header entries that only the profiler writes."""
_EVENTS = re.compile(rb'"traceEvents"\s*:')
_EVENT_MARKS = re.compile(
    rb'"cat"\s*:\s*"(?:kernel|gpu_mem(?:cpy|set)|(?:gpu_)?user_annotation|(?:cpu|hpu)_op|python_function'
    rb"|Kernel|Mem(?:cpy|set)|Operator|(?:cuda|xpu|privateuse1)_(?:runtime|driver)|(?:mtia|glow)_runtime"
    rb'|privateuse1_kernel|mtia_ccp_events|cuda_(?:sync|profiler_range))"'
    rb'|"TS1"\s*:|"Ascend Hardware"|"name"\s*:\s*"(?:CANN|\[memory\])"'
)
"""What tells the events of the profiler and of its vendor plug-ins (IBM, Huawei) from those of others."""
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
            if _XPROF in start[:4096]:
                return False
            if _MARKS.search(start) is not None:
                return True
            return _EVENTS.search(start) is not None and _EVENT_MARKS.search(start) is not None
        is_list = re.match(rb"\[\s*\{", start) is not None
        patterns = (_PHASE, _TIME, _EVENT_MARKS)
        return is_list and all(pattern.search(start) is not None for pattern in patterns)

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files of one job, ranks or split parts, into one capture."""
        from tokenpath.ingest.kineto.merge import merge_files
        from tokenpath.ingest.kineto.source import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return merge_files((read_file(path, own) for path, own in each), len(paths), options)


READERS = (KinetoReader(),)
