"""A file of forward-pass metrics to a capture."""

from __future__ import annotations

from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.fpm.fast import read_fast
from tokenpath.ingest.fpm.steps import Steps
from tokenpath.ingest.messages import messages
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options, Reader

_FAST_FROM_BYTES = 2**23
"""In smaller files decoding takes less time than loading compiled code."""
_USUAL_RATIO = 4
"""How much smaller packed recordings are."""


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of one file. DamagedInput when no message of it can be read."""
    builder = CaptureBuilder(reader, path, options)
    steps = Steps(builder)
    if _is_fast(path, options):
        read_fast(path, options, builder, steps)
    else:
        for message in messages(path, options, builder):
            steps.take(message)
    steps.close()
    if not builder.num_rows("step") and not steps.num_idle:
        raise DamagedInput("no message can be read", where=str(path))
    return builder.finish()


def _is_fast(path: Path, options: Options) -> bool:
    """Whether the scanner reads the file: a large one, and no JSON."""
    if options.scanner == "slow":
        return False
    unpacked = open_unpacked(path, max_bytes=options.max_bytes)
    size = unpacked.num_stored_bytes * (1 if unpacked.container == "plain" else _USUAL_RATIO)
    if options.scanner != "fast" and size < _FAST_FROM_BYTES:
        return False
    first = next(unpacked.chunks, None)
    return first is not None and first[:4096].tobytes().lstrip()[:1] != b"{"
