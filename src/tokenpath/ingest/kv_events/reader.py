"""The reader of KV cache events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_EVENTS = re.compile(rb'"events"\s*:\s*\[')
_TIME = re.compile(rb'"ts(?:_us)?"\s*:')


class KvEventsReader:
    """Batches of events as the engine publishes them: MessagePack, or JSON lines."""

    name = "kv_events"
    version = 1
    describes = "KV cache events recorded from ZMQ, .kv_events.msgpack or .kv_events.jsonl.gz"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A first line, or a first message, that is a batch of events."""
        from tokenpath.ingest.kv_events.batch import is_batch
        from tokenpath.ingest.messages import first_message

        if head.lstrip()[:1] == b"{":
            line = head.lstrip().split(b"\n", 1)[0]
            return _EVENTS.search(line) is not None and _TIME.search(line) is not None
        message = first_message(head)
        return message is not None and is_batch(message.payload)

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Each file is the stream of one publisher, or of several."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.kv_events.batch import read_file

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_file(self, path, own) for path, own in each])


READERS = (KvEventsReader(),)
