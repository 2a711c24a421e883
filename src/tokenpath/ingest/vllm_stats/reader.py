"""The reader of vLLM stat-logger records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_RECORD = re.compile(rb'\s*\{\s*"ev"\s*:\s*"stats"\s*,')


class VllmStatsReader:
    """A line for each record() call of a stat-logger plug-in."""

    name = "vllm_stats"
    version = 1
    describes = "vLLM stat-logger records, .stat_logger.jsonl or .jsonl.gz"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A first line that is a record."""
        return _RECORD.match(head) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Each file is a source of its own."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.vllm_stats.file import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


READERS = (VllmStatsReader(),)
