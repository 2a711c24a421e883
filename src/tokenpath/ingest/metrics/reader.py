"""The reader of metrics: Prometheus text, OpenMetrics, answers of Prometheus' HTTP API."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options

_DECLARATION = re.compile(rb"# (?:TYPE|HELP|UNIT|EOF)\b")
_SAMPLE = re.compile(
    rb"(?:[a-zA-Z_:][a-zA-Z0-9_:]*)?(?:\{.*\})?\s+[+-]?(?:[0-9.]|[Nn]a[Nn]|[Ii]nf)[^,;]*$"
)
_LINES_SEEN = 100
_ANSWER = re.compile(rb'"resultType"\s*:\s*"(?:matrix|vector|scalar|string)"')


class MetricsReader:
    """Snapshots of /metrics, and results of queries."""

    name = "metrics"
    version = 1
    describes = "Prometheus text, OpenMetrics, or JSON of Prometheus' query API"
    is_generic = False

    def sniff(self, head: bytes, path: Path) -> bool:
        """Declarations and mostly samples in the first lines, or a query's answer with its type."""
        if not head or path.is_dir():
            return False
        if head.lstrip()[:1] == b"{" and _ANSWER.search(head) is not None:
            return True
        lines = [line.strip() for line in head.split(b"\n")]
        # The last line may be cut.
        whole = [line for line in lines[:-1] or lines if line][:_LINES_SEEN]
        declared = any(_DECLARATION.match(line) for line in whole)
        samples = [line for line in whole if not line.startswith(b"#")]
        num_good = sum(_SAMPLE.match(line) is not None for line in samples)
        if declared:
            # A damaged line here and there is counted, not a reason to refuse the file.
            return 2 * num_good >= len(samples)
        return bool(samples) and all(b"{" in line for line in samples) and num_good == len(samples)

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Each file its own source; snapshots without times are put in the order of their counters."""
        from tokenpath.ingest.metrics.document import read_files

        return read_files(self, paths, options)


READERS = (MetricsReader(),)
