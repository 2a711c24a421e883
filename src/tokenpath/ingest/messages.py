"""Messages of a ZMQ stream that were recorded to a file.

The container is as plain as can be: MessagePack values, one after the other. Each is one of

- the payload itself, as it was sent;
- `[topic, sequence, payload]`: the three parts of the message, `sequence` as 8 bytes, big endian;
- `[received_unix_ns, topic, sequence, payload]`: the same with the time of receipt.

JSON lines of payloads are read, too; there the time of receipt is the key `received_unix_ns`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.json_lines import count_problems, records
from tokenpath.ingest.msgpack import Incomplete, Malformed, decode
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options

MAX_MESSAGE_BYTES = 2**26
"""A longer message ends the reading."""

_SEQUENCE_BYTES = 8
_PARTS = 3


@dataclass(frozen=True)
class Message:
    """One message."""

    offset: int
    """Byte offset in the file."""
    payload: Any
    """Decoded payload."""
    sequence: int | None = None
    """Number that the publisher gave it."""
    received_ns: int | None = None
    """When it was received, in nanoseconds since 1970."""


def first_message(head: bytes) -> Message | None:
    """The message with which a file begins; None when that is no MessagePack container."""
    try:
        return _open(0, decode(head)[0])
    except (Incomplete, Malformed):
        return None


def messages(path: Path, options: Options, builder: CaptureBuilder) -> Iterator[Message]:
    """All messages of a file, in order, each counted as an event.

    After a damaged one there is no finding the next: reading ends.
    """
    losses = builder.losses
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    held, at, base = b"", 0, 0
    is_first = True
    for chunk in unpacked.chunks:
        for begin in range(0, len(chunk), 2**20):
            piece = chunk[begin : begin + 2**20].tobytes()
            if is_first and piece.lstrip()[:1] == b"{":
                yield from _of_json(path, options, builder)
                return
            is_first = False
            base += at
            held, at = held[at:] + piece, 0
            while at < len(held):
                try:
                    message, end = read_one(held, at, base)
                except Incomplete:
                    break
                except Malformed as error:
                    builder.num_events += 1
                    losses.add("damaged message", offset=base + at, what=str(error))
                    return
                builder.num_events += 1
                yield message
                at = end
            if len(held) - at > MAX_MESSAGE_BYTES:
                builder.num_events += 1
                losses.add("message too long", offset=base + at)
                return
            unpacked.report_scanned(base + at)
    if at < len(held):
        losses.add("no end of the file", offset=base + at, dropped=False)
    count_problems(unpacked, losses)


def read_one(held: bytes, at: int, base: int) -> tuple[Message, int]:
    """The message at a byte of data that lies at `base` in the file, and the byte after it.

    Incomplete, Malformed.
    """
    value, end = decode(held, at)
    return _open(base + at, value), end


def _of_json(path: Path, options: Options, builder: CaptureBuilder) -> Iterator[Message]:
    for offset, record in records(path, options, builder):
        received = fields.count(record.get("received_unix_ns"))
        yield Message(offset, record, fields.count(record.get("seq")), received)


def _open(offset: int, value: Any) -> Message:
    """Take a payload out of the parts of its message. Incomplete within a part is damage."""
    if not isinstance(value, list) or len(value) not in (_PARTS, _PARTS + 1):
        return Message(offset, value)
    received = fields.count(value[0]) if len(value) > _PARTS else None
    topic, sequence, payload = value[-_PARTS:]
    is_wrapped = isinstance(sequence, bytes) and len(sequence) == _SEQUENCE_BYTES
    if not is_wrapped or not isinstance(payload, bytes) or not isinstance(topic, bytes | str):
        return Message(offset, value)
    try:
        inner = decode(payload)[0]
    except Incomplete:
        raise Malformed("a payload that ends early") from None
    number = int.from_bytes(sequence, "big")
    return Message(offset, inner, fields.count(number), received)
