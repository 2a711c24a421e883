"""The reader of our load generator's files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_REQUESTS = re.compile(rb"req,(?:[a-z_]+,)*arrival_us,")
_TOKENS = re.compile(rb'\s*\{\s*"req"\s*:\s*"[^"\n]*"\s*,\s*"token_us"\s*:\s*\[')


class VllmLoadReader:
    """A row a request with its times, or a line a request with the times of its tokens."""

    name = "vllm_load"
    version = 1
    describes = "client side of a vLLM load run, .requests.csv or .tokens.jsonl.gz"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """The columns of the requests file, or a first line with token times."""
        return _REQUESTS.match(head) is not None or _TOKENS.match(head) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Each file is one observer: the client."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.vllm_load.file import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


READERS = (VllmLoadReader(),)
