"""The reader of llama.cpp responses and slots."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_TIMINGS = re.compile(rb'"timings"\s*:\s*\{')
_COUNTS = re.compile(rb'"(?:prompt_n|predicted_n)"\s*:')
_SLOT = re.compile(rb'"id_task"\s*:\s*-?[0-9]')
_SLOTS = re.compile(rb'"(?:is_processing|n_ctx)"\s*:')


class LlamaCppReader:
    """Responses of the server with their record of a request, or its state of slots."""

    name = "llama_cpp"
    version = 1
    describes = "llama.cpp responses with timings, or /slots, .json or .jsonl"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A record of timings, or a slot with its task."""
        if head.lstrip()[:1] not in (b"{", b"["):
            return False
        is_response = None not in (_TIMINGS.search(head), _COUNTS.search(head))
        return is_response or None not in (_SLOT.search(head), _SLOTS.search(head))

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Each file is a source of its own."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.llama_cpp.file import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


READERS = (LlamaCppReader(),)
