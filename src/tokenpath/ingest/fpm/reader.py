"""The reader of forward-pass metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file


class FpmReader:
    """Messages as they were sent, one after the other: MessagePack, or JSON lines."""

    name = "fpm"
    version = 1
    describes = "ForwardPassMetrics recorded from ZMQ, .fpm.msgpack or .fpm.jsonl"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A first line, or a first message, with the requests that a step scheduled."""
        from tokenpath.ingest.fpm.record import is_metrics
        from tokenpath.ingest.messages import first_message

        if head.lstrip()[:1] == b"{":
            line = head.lstrip().split(b"\n", 1)[0]
            return b'"scheduled_requests"' in line and b'"wall_time"' in line
        message = first_message(head)
        return message is not None and is_metrics(message.payload)

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Each file holds the messages of one worker, or of several."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.fpm.file import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


READERS = (FpmReader(),)
