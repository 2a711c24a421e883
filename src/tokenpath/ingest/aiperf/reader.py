"""The reader of what AIPerf and its forerunner genai-perf write.

Source: aiperf 0.13.0 (common/models/export_models.py and record_models.py, exporters), genai-perf 0.0.16
(export_data, profile_data_parser/llm_profile_data_parser.py). Four kinds of file: a record a request
(`profile_export.jsonl`, and its raw form), Perf Analyzer's requests with the time of each response
(`profile_export.json`), and aggregates as JSON or CSV (`profile_export_aiperf.json`, `*_genai_perf.csv`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_RECORD = re.compile(rb'\{\s*"metadata"\s*:\s*\{[^\n]*?"request_start_ns"\s*:')
_PERF_ANALYZER = re.compile(rb'"experiments"\s*:\s*\[')
_PERF_REQUEST = re.compile(rb'"(?:response_timestamps|request_inputs|window_boundaries)"\s*:')
_SUMMARY = re.compile(
    rb'"(?:request_throughput|request_latency|time_to_first_token|request_count)"\s*:\s*\{\s*"unit"\s*:'
)
_CSV = re.compile(rb"Metric,avg,min,max,")


def kind_of(head: bytes) -> str | None:
    """`records`, `perf_analyzer`, `summary`, `csv`, or None for another format."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
    if _CSV.match(start):
        return "csv"
    if start[:1] != b"{":
        return None
    if _RECORD.match(start):
        return "records"
    if _PERF_ANALYZER.search(start) and _PERF_REQUEST.search(start):
        return "perf_analyzer"
    return "summary" if _SUMMARY.search(start) else None


class AiperfReader:
    """Requests and aggregates of AIPerf and genai-perf."""

    name = "aiperf"
    version = 1
    describes = "AIPerf or genai-perf output, profile_export.jsonl, .json or summary .json, .csv"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """One of the four kinds of file."""
        return kind_of(head) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files into one capture, each a source."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.aiperf.files import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


READERS = (AiperfReader(),)
