"""The reader of SGLang's request metrics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_RECORD = re.compile(rb'\s*\{\s*"request_parameters"\s*:\s*"')


class SglangRequestsReader:
    """A line for each finished request (--export-metrics-to-file)."""

    name = "sglang_requests"
    version = 1
    describes = "SGLang request metrics, sglang-request-metrics-*.log"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A first line that begins with the parameters of a request."""
        return _RECORD.match(head) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Each file is a source of its own."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.sglang_requests.file import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


READERS = (SglangRequestsReader(),)
