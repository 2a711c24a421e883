"""The readers of PyTorch's memory snapshots and raw memory timelines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.capture.combine import combine
from tokenpath.ingest.pickle_file import looks_pickled
from tokenpath.ingest.reader import Options, options_by_file

_TIMELINE = re.compile(rb"\s*\[\s*\[\s*-?\d{1,20}\s*,\s*[1-4]\s*,\s*-?\d{1,20}\s*,\s*[0-7]\s*\]")


class MemorySnapshotReader:
    """What `torch.cuda.memory._dump_snapshot` writes: segments, blocks and the history of events."""

    name = "torch_memory_snapshot"
    version = 1
    describes = "PyTorch memory snapshot, .pickle"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A pickle that speaks of segments and their sizes, or of traces of devices."""
        if not looks_pickled(head):
            return False
        return b"device_traces" in head or (
            b"total_size" in head and b"segment_type" in head and b"allocated_size" in head
        )

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """One source a file, each a rank's snapshot."""
        from tokenpath.ingest.memory.snapshot import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


class MemoryTimelineReader:
    """What `export_memory_timeline(..., "x.raw.json.gz")` of PyTorch's profiler writes."""

    name = "torch_memory_timeline"
    version = 1
    describes = "raw memory timeline of PyTorch's profiler, .raw.json.gz"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A list whose first element is (time, action 1 to 4, bytes, category 0 to 7)."""
        return _TIMELINE.match(head) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """One source a file."""
        from tokenpath.ingest.memory.timeline import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


READERS = (MemorySnapshotReader(), MemoryTimelineReader())
