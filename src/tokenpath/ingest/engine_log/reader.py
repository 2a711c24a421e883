"""The reader of server logs of engines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_LINES = re.compile(
    rb"Engine [0-9]+: Iteration\([0-9]+\):|Avg prompt throughput: [0-9.]+ tokens/s,"
    rb"|(?:Prefill|Decode) batch(?: \[[0-9]+\])?[,.] #"
)


class EngineLogReader:
    """Lines of throughput, queues and iterations among others."""

    name = "engine_log"
    version = 1
    describes = "vLLM or SGLang server log, .log or .txt"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A line that says how much is running, in either engine's words."""
        return head.lstrip()[:1] != b"{" and _LINES.search(head) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Each file is a source of its own."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.engine_log.file import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


READERS = (EngineLogReader(),)
