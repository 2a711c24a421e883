"""The reader of GuideLLM's benchmarks.json.

Source: guidellm 0.2.1 and 0.3.1 (benchmark/benchmark.py, objects/statistics.py), 0.4.0, 0.5.3 and 0.8.1
(benchmark/schemas, schemas/base/request_stats.py). Times are seconds since 1970 as doubles, exact to about
200 ns. A sweep is one file with a benchmark for each rate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_REPORT = re.compile(rb'"benchmarks"\s*:\s*\[')
_KIND = re.compile(rb'"(?:type_"\s*:\s*"generative_benchmark"|guidellm_version"\s*:)')


class GuidellmReader:
    """Reports of GuideLLM, old and new form."""

    name = "guidellm"
    version = 1
    describes = "GuideLLM report, benchmarks.json"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A report with benchmarks that name their kind, or with GuideLLM's version."""
        if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{" or _KIND.search(head) is None:
            return False
        return _REPORT.search(head) is not None or b'"guidellm_version"' in head

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files into one capture, each a source; the benchmarks of one file are labelled."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.guidellm.report import read_report

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_report(self, path, own) for path, own in each])


READERS = (GuidellmReader(),)
