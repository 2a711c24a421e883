"""Raw memory timelines: (time, action, bytes, category) of each tensor of one device.

The form is that of `export_memory_timeline_raw` in torch/profiler/_memory_profiler.py, which also names the
actions and, in the order of its colours, the categories. Times are the profiler's: ns since 1970.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tokenpath.capture.capture import Capture, dictionary
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.growing import NULL, GrowingRows, nullable
from tokenpath.ingest.json_stream import JsonStream, Take
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options, Reader

ACTIONS = ("preexisting", "alloc", "new_version", "free")
"""Action 1 and on. A new version is two rows: less of one category, as much more of another."""
CATEGORIES = (
    *("parameter", "optimizer_state", "input", "temporary"),
    *("activation", "gradient", "autograd_detail"),
)
"""Category 0 and on; 7 is none of them."""


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """One timeline."""
    builder = CaptureBuilder(reader, path, options)
    builder.origin.profiler = "torch.profiler memory timeline"
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    events = _Events(builder.losses)
    JsonStream(unpacked.chunks, builder.losses).walk(events)
    unpacked.report_done()
    for problem in unpacked.problems:
        builder.losses.add(problem, dropped=False)
    if not len(events.rows):
        raise DamagedInput("no event could be read", where=str(path), next_step="export it again")
    columns = events.rows.columns()
    builder.add(
        "memory_event",
        {
            "at_ns": nullable(columns["at"]),
            "action": dictionary((columns["action"] - 1).astype(np.int32), ACTIONS),
            "bytes": columns["bytes"],
            "category": dictionary(
                np.where(columns["category"] == len(CATEGORIES), -1, columns["category"]).astype(
                    np.int32
                ),
                CATEGORIES,
            ),
        },
    )
    builder.num_events = events.num_seen
    return builder.finish()


class _Events:
    """Takes the elements of the list."""

    def __init__(self, losses: Losses) -> None:
        self.rows = GrowingRows("at", "action", "bytes", "category")
        self.num_seen = 0
        self._losses = losses

    def choose(self, path: tuple[str, ...], opens: str) -> Take:
        return Take.EACH if not path and opens == "[" else Take.SKIP

    def take(self, _path: tuple[str, ...], value: object, stream: JsonStream) -> None:
        self.num_seen += 1
        if not isinstance(value, list) or len(value) != 4 or any(type(x) is not int for x in value):
            self._losses.add("malformed event", offset=stream.offset)
            return
        at, action, num_bytes, category = value
        is_known = 1 <= action <= len(ACTIONS) and 0 <= category <= len(CATEGORIES)
        if not is_known or not -(2**62) < num_bytes < 2**62 or not at < 2**63:
            self._losses.add("malformed event", offset=stream.offset)
            return
        # -1 stands for memory that was there before the recording.
        self.rows.append(NULL if at < 0 else at, action, num_bytes, category)

    def leave(self, _path: tuple[str, ...]) -> None:
        """Nothing is held open."""

    def damaged(self, _path: tuple[str, ...]) -> None:
        self.num_seen += 1
