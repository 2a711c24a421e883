"""The reader of LLMPerf's results.

Source: ray-project/llmperf f1d6bed (token_benchmark_ray.py, src/llmperf/common_metrics.py): `*_summary.json`,
one flat object, and `*_individual_responses.json`, a list with the lengths of time of each request; when a
request was sent is not written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_RESULT = re.compile(rb'"results_(?:inter_token_latency_s|ttft_s|end_to_end_latency_s)_')
_RESPONSE = tuple(
    re.compile(rb'"%s"\s*:' % key) for key in (b"inter_token_latency_s", b"end_to_end_latency_s")
)


class LlmperfReader:
    """Summaries and individual responses of LLMPerf."""

    name = "llmperf"
    version = 1
    describes = "LLMPerf result, _summary.json or _individual_responses.json"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A flat object of results, or a list of responses."""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
        if start[:1] == b"[":
            return all(mark.search(start) for mark in _RESPONSE)
        return start[:1] == b"{" and _RESULT.search(start) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files into one capture, each a source."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.llmperf.results import read_results

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_results(self, path, own) for path, own in each])


READERS = (LlmperfReader(),)
