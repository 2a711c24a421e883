"""The reader of step logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_EVENT = re.compile(rb'\s*\{\s*"ev"\s*:\s*"(?:config|add|step)"')


class VllmStepsReader:
    """JSON lines: the engine's configuration, then requests as they are added, and steps."""

    name = "vllm_steps"
    version = 1
    describes = "vLLM step log of tokenpath's recorder, .steps.jsonl or .steps.jsonl.gz"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A first line that is a configuration, an added request or a step."""
        return _EVENT.match(head) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Each file is the log of one engine core."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.vllm_steps.file import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


READERS = (VllmStepsReader(),)
