"""The reader of TensorRT-LLM iteration stats and perf metrics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_ITERATION = re.compile(rb'"iterLatencyMS"\s*:')
_REQUEST = re.compile(rb'"(?:(?:ctx_|gen_)?perf_metrics|timing_metrics)"\s*:')
_TIMES = re.compile(rb'"(?:arrival_time|first_scheduled_time|disagg_server_arrival_time)"\s*:')


class TrtllmStatsReader:
    """JSON lists as the endpoints give them, or one record a line."""

    name = "trtllm_stats"
    version = 1
    describes = (
        "TensorRT-LLM iteration stats (/metrics) or perf metrics (/perf_metrics), .json or .jsonl"
    )
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """Iterations with their latency, or requests with their times."""
        if head.lstrip()[:1] not in (b"{", b"["):
            return False
        is_request = None not in (_REQUEST.search(head), _TIMES.search(head))
        return is_request or _ITERATION.search(head) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Each file is a source of its own."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.trtllm_stats.file import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


READERS = (TrtllmStatsReader(),)
