"""The reader of Chrome trace event JSON that no other reader knows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_PHASE = re.compile(rb'"ph"\s*:\s*"[A-Za-z(),]"')


class ChromeReader:
    """Slices, marks and counters of any tool; of what runs on a device this format says nothing."""

    name = "chrome"
    version = 1
    describes = "Chrome or Perfetto trace JSON of any tool, .json, .json.gz"
    is_generic = True

    def sniff(self, head: bytes, _path: Path) -> bool:
        """An object with a list of trace events, or a bare list of events with a phase."""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
        if start[:1] == b"{":
            return _EVENTS.search(start) is not None
        return re.match(rb"\[\s*\{", start) is not None and _PHASE.search(start) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files, each a source of its own."""
        from tokenpath.ingest.chrome.document import read_files

        return read_files(self, paths, options)


READERS = (ChromeReader(),)
