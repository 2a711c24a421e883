"""The reader of NCCL flight-recorder dumps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.capture.combine import combine
from tokenpath.ingest.pickle_file import looks_pickled
from tokenpath.ingest.reader import Options, options_by_file

_JSON = re.compile(rb'"(?:collective_seq_id|pg_config|pg_status)"\s*:')
_PROFILE = re.compile(rb'"(?:traceEvents|distributedInfo|schemaVersion)"\s*:')
"""The profiler, too, writes `pg_config`, among the facts of its job."""


class FlightRecorderReader:
    """What `torch.distributed` writes when a collective times out, or `_dump_nccl_trace` gives."""

    name = "nccl_flight_recorder"
    version = 1
    describes = "NCCL flight-recorder dump of PyTorch, JSON or pickle, a file a rank"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """An object or a pickled dict that speaks of process groups and numbered collectives."""
        start = head.lstrip(b" \t\r\n")
        if start[:1] == b"{":
            return _JSON.search(start) is not None and _PROFILE.search(start) is None
        words = (b"pg_config", b"collective_seq_id", b"pg_status")
        return looks_pickled(head) and any(word in head for word in words)

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """One source a file, each a rank's dump."""
        from tokenpath.ingest.flight_recorder.dump import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


READERS = (FlightRecorderReader(),)
