"""The reader of Perfetto's protobuf traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options

_VARINTS = frozenset({3, 8, 10, 13, 41, 42, 58, 79})
_MESSAGES = frozenset({11, 12, 33, 36, 43, 44, 50, 59, 60, 89})
"""Fields of a TracePacket that no other format of repeated messages has at these numbers."""
_NUM_PACKETS = 8


class PerfettoReader:
    """Track events of any program that uses Perfetto's SDK, and of rocprofv3 `--output-format pftrace`."""

    name = "perfetto"
    version = 1
    describes = "Perfetto protobuf trace, .pftrace, .perfetto-trace"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """Messages one after the other, each with fields that only a trace packet has."""
        if head[:1] != b"\x0a":
            return False
        # Loaded only for bytes that may be a protobuf.
        from tokenpath.ingest.wire import BYTES, VARINT, WireError, fields

        num_packets = 0
        try:
            for number, wire_type, value in fields(head):
                if number != 1 or wire_type != BYTES or not isinstance(value, slice):
                    return False
                kinds = {(inner, kind) for inner, kind, _ in fields(head, value)}
                is_packet = any(
                    (kind == VARINT and inner in _VARINTS) or (kind == BYTES and inner in _MESSAGES)
                    for inner, kind in kinds
                )
                if not is_packet or (1, VARINT) in kinds:
                    return False
                num_packets += 1
                if num_packets == _NUM_PACKETS:
                    return True
        except WireError:
            # The head may end within a packet.
            return num_packets > 0
        return num_packets > 0

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files, each a source of its own."""
        from tokenpath.ingest.perfetto.trace import read_files

        return read_files(self, paths, options)


READERS = (PerfettoReader(),)
