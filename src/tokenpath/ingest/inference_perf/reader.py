"""The reader of kubernetes-sigs/inference-perf's reports.

Source: inference-perf 0.5.0 (reportgen/base.py, apis/base.py): `summary_lifecycle_metrics.json`, the same for
each stage and adapter, and `per_request_lifecycle_metrics.json`, whose times are seconds of the client's
`time.perf_counter()`, a double of unknown origin. The form until 0.2 (`prompt_len`, token times in `info`)
is read, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_REQUESTS = re.compile(
    rb'\[\s*\{\s*"start_time"\s*:[^{}\[\]"]*"end_time"\s*:[^{}\[\]"]*"request"\s*:'
)
_SUMMARY = tuple(re.compile(rb'"%s"\s*:\s*\{' % key) for key in (b"load_summary", b"successes"))


class InferencePerfReader:
    """Lifecycle reports of inference-perf."""

    name = "inference_perf"
    version = 1
    describes = "inference-perf report, summary_ or per_request_lifecycle_metrics.json"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A list of requests, or an object with the load and the successes."""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
        if start[:1] == b"[":
            return _REQUESTS.match(start) is not None
        return start[:1] == b"{" and all(mark.search(start) for mark in _SUMMARY)

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files into one capture, each a source."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.inference_perf.report import read_report

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_report(self, path, own) for path, own in each])


READERS = (InferencePerfReader(),)
