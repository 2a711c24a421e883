"""The reader of OpenTelemetry traces (OTLP)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options

_JSON_MARK = re.compile(rb'"(?:resourceSpans|resource_spans)"\s*:')
_OTHER_MARK = re.compile(rb'"batches"\s*:\s*\[\s*\{\s*"(?:resource|scopeSpans)"')


class OtlpReader:
    """Exported traces: ExportTraceServiceRequest messages as JSON or protobuf."""

    name = "otlp"
    version = 1
    describes = "OpenTelemetry traces (OTLP): JSON, JSON lines or protobuf"
    is_generic = False

    def sniff(self, head: bytes, path: Path) -> bool:
        """JSON with resource spans, or the protobuf message with a span that has ids of 16 and 8 bytes."""
        if not head or path.is_dir():
            return False
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
        if start[:1] in (b"{", b"["):
            found = _JSON_MARK.search(start) or _OTHER_MARK.search(start)
            return found is not None
        from tokenpath.ingest.otlp.protobuf_sniff import looks_like_traces

        return looks_like_traces(head)

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Each file its own source."""
        from tokenpath.ingest.otlp.document import read_files

        return read_files(self, paths, options)


READERS = (OtlpReader(),)
