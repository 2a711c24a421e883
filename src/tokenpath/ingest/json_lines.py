"""Unpacked bytes to lines, and lines to JSON records: bounded, with every bad one counted and placed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenpath.core.errors import LimitExceeded
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.packed import Unpacked, open_unpacked
from tokenpath.ingest.reader import Options

MAX_LINE_BYTES = 2**26
"""A longer line is skipped, not read."""
MAX_DOCUMENT_BYTES = 2**28
"""Bound on a JSON document that is not one record a line: it is held whole."""

_BLOCK_BYTES = 2**19
_JSON_ERRORS = (ValueError, RecursionError)
"""What json raises for text that is none, for numbers of more than 4,300 digits, for deep nesting."""


@dataclass(frozen=True)
class Block:
    """Whole lines that lie one after the other."""

    offset: int
    """Byte offset of the first line in the unpacked file."""
    data: bytes
    """The lines, each with its end of line; only the file's last one may lack it."""


def blocks(unpacked: Unpacked, losses: Losses) -> Iterator[Block]:
    """All lines of a stream in blocks of about half a megabyte; what cannot be unpacked is counted."""
    offset, held = 0, b""
    is_skipping = False
    for piece in _pieces(unpacked):
        if is_skipping:
            end = piece.find(b"\n")
            if end < 0:
                offset += len(piece)
                continue
            offset, piece, is_skipping = offset + end + 1, piece[end + 1 :], False
        data = held + piece
        end = data.rfind(b"\n") + 1
        if end:
            yield Block(offset, data[:end])
        held = data[end:]
        offset += end
        if len(held) > MAX_LINE_BYTES:
            losses.add("line too long", offset=offset)
            offset, held, is_skipping = offset + len(held), b"", True
    if held:
        yield Block(offset, held)
    count_problems(unpacked, losses)


def count_problems(unpacked: Unpacked, losses: Losses) -> None:
    """Count what went wrong while unpacking."""
    for problem in unpacked.problems:
        losses.add("no end of the file", what=problem, offset=0, dropped=False)
    unpacked.report_done()


def lines(unpacked: Unpacked, losses: Losses) -> Iterator[tuple[int, bytes]]:
    """Each line that is not blank, with its byte offset."""
    for block in blocks(unpacked, losses):
        at = block.offset
        for line in block.data.split(b"\n"):
            if line and not line.isspace():
                yield at, line
            at += len(line) + 1


def parse(line: bytes) -> Any:
    """The JSON value of a line; bytes that are no UTF-8 are replaced. None if it is no JSON."""
    try:
        return json.loads(line.decode("utf-8", "replace"))
    except _JSON_ERRORS:
        return None


def records(
    path: Path, options: Options, builder: CaptureBuilder
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a file, each with its byte offset: one a line, a list, or one after the other.

    A line may hold a list of objects, too. Each counts as an event; what is no object is counted as a
    `damaged record`.
    """
    losses = builder.losses
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    stream = lines(unpacked, losses)
    first = next(stream, None)
    if first is None:
        return
    if parse(first[1]) is None and first[1].lstrip()[:1] in (b"{", b"["):
        yield from _of_document(path, first, stream, builder)
        return
    yield from _of_line(*first, builder)
    for offset, line in stream:
        yield from _of_line(offset, line, builder)


def _of_line(
    offset: int, line: bytes, builder: CaptureBuilder
) -> Iterator[tuple[int, dict[str, Any]]]:
    value = parse(line)
    for item in value if isinstance(value, list) else [value]:
        builder.num_events += 1
        if isinstance(item, dict):
            yield offset, item
        else:
            builder.losses.add("damaged record", offset=offset)


def _of_document(
    path: Path, first: tuple[int, bytes], rest: Iterator[tuple[int, bytes]], builder: CaptureBuilder
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects of a document that is spread over lines, up to where it is damaged."""
    held, size = [first[1]], len(first[1])
    for _, line in rest:
        size += len(line) + 1
        if size > MAX_DOCUMENT_BYTES:
            raise LimitExceeded(
                f"one JSON document of more than {MAX_DOCUMENT_BYTES} bytes",
                where=str(path),
                allowed=f"{MAX_DOCUMENT_BYTES} bytes, or any number of records with one on each line",
                next_step="write one record a line, for instance with jq -c '.[]'",
            )
        held.append(line)
    text = b"\n".join(held).decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    at = _skip(text, 0, " \t\r\n[,")
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except _JSON_ERRORS:
            # Lines of a file that is damaged at its start: the others are whole.
            next_line = text.find("\n", at)
            builder.num_events += 1
            builder.losses.add("damaged record", offset=at)
            at = len(text) if next_line < 0 else _skip(text, next_line, " \t\r\n[,")
            continue
        builder.num_events += 1
        if isinstance(value, dict):
            yield at, value
        else:
            builder.losses.add("damaged record", offset=at)
        at = _skip(text, end, " \t\r\n],[")


def _skip(text: str, at: int, characters: str) -> int:
    while at < len(text) and text[at] in characters:
        at += 1
    return at


def _pieces(unpacked: Unpacked) -> Iterator[bytes]:
    done = 0
    for chunk in unpacked.chunks:
        for begin in range(0, len(chunk), _BLOCK_BYTES):
            piece = chunk[begin : begin + _BLOCK_BYTES].tobytes()
            done += len(piece)
            yield piece
            unpacked.report_scanned(done)
