"""Stored files to unpacked bytes: plain (mapped), gzip, Zstandard and zip."""

from __future__ import annotations

import mmap
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.errors import DamagedInput, InputError, LimitExceeded

Bytes = NDArray[np.uint8]
Progress = Callable[[int, int | None], None]
"""Called with the stored bytes read so far and, if known, the stored bytes in all."""

MAX_UNPACKED_BYTES = 64 * 2**30
"""Default bound on what one file may unpack to."""
MAX_RATIO = 1000
"""A file that unpacks to more than this many times its size ..."""
RATIO_FROM_BYTES = 2**30
"""... and to more than this is a decompression bomb. Traces reach a ratio of about 40."""

_READ_BYTES = 2**20
_ZIP_BYTES = 2**16
"""A damaged member of a zip file loses the read at hand."""
_CHUNK_BYTES = 2**20
_CHUNKS_AHEAD = 2


@dataclass
class Unpacked:
    """A stream of unpacked bytes."""

    chunks: Iterator[Bytes]
    """Arrays of bytes, in order; a plain file is one array over the mapped file."""
    container: str
    """`plain`, `gzip`, `zstd` or `zip`."""
    num_stored_bytes: int
    """Size of the stored file."""
    progress: Progress | None = None
    """Told of the bytes read so far."""
    problems: list[str] = field(default_factory=list)
    """What went wrong while unpacking; filled as the chunks are read."""

    def report_stored(self, done: int) -> None:
        """Say how many of the stored bytes have been read."""
        if self.progress is not None:
            self.progress(done, self.num_stored_bytes)

    def report_scanned(self, done: int) -> None:
        """Say how far the scanner is, which for a plain file are stored bytes."""
        if self.container == "plain":
            self.report_stored(done)

    def report_done(self) -> None:
        """Say that all bytes have been read."""
        self.report_stored(self.num_stored_bytes)


def open_unpacked(
    path: Path,
    *,
    max_bytes: int = MAX_UNPACKED_BYTES,
    progress: Progress | None = None,
    in_thread: bool = False,
) -> Unpacked:
    """Unpack by content, not by suffix. InputError if the file cannot be opened.

    With `in_thread`, a packed file is unpacked in a thread of its own, a few chunks ahead.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if magic[:2] == b"\x1f\x8b":
        kind, inflate = "gzip", _inflate_gzip
    elif magic == b"\x28\xb5\x2f\xfd":
        kind, inflate = "zstd", _inflate_zstd
    elif magic == b"PK\x03\x04":
        kind, inflate = "zip", _inflate_zip
    else:
        return Unpacked(_map_file(path, size, max_bytes), "plain", size, progress)
    result = Unpacked(iter(()), kind, size, progress)
    pieces = inflate(path, result.problems, result.report_stored)
    chunks = _bounded(_gathered(pieces), path, size, max_bytes)
    result.chunks = _ahead(chunks) if in_thread else chunks
    return result


def _map_file(path: Path, size: int, max_bytes: int) -> Iterator[Bytes]:
    if size > max_bytes:
        raise _too_large(path, max_bytes)
    if size == 0:
        return
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Read once, front to back: the kernel may read ahead and drop what is behind.
    if hasattr(mmap, "MADV_SEQUENTIAL"):
        mapped.madvise(mmap.MADV_SEQUENTIAL)
    yield np.frombuffer(mapped, np.uint8)


def _inflate_gzip(
    path: Path, problems: list[str], report: Callable[[int], None]
) -> Iterator[bytes]:
    from isal import isal_zlib

    failures: tuple[Any, ...] = (isal_zlib.error, zlib.error)
    with path.open("rb") as file:
        data = file.read(_READ_BYTES)
        while data:
            inflater = isal_zlib.decompressobj(wbits=31)
            while data:
                try:
                    piece = inflater.decompress(data, _CHUNK_BYTES)
                except failures as error:
                    problems.append(f"damaged gzip: {error}")
                    return
                yield piece
                if inflater.eof:
                    break
                data = inflater.unconsumed_tail
                if not data and len(piece) < _CHUNK_BYTES:
                    data = file.read(_READ_BYTES)
                    report(file.tell())
            if not inflater.eof:
                problems.append("gzip ends early")
                return
            data = inflater.unused_data or file.read(_READ_BYTES)
            if data and not data.startswith(b"\x1f"):
                # Zero padding after the last member is common; other bytes are not ours.
                return


def _inflate_zstd(
    path: Path, problems: list[str], report: Callable[[int], None]
) -> Iterator[bytes]:
    import zstandard

    with path.open("rb") as file:
        source = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        while True:
            try:
                piece = source.read(_CHUNK_BYTES)
            except zstandard.ZstdError as error:
                problems.append(f"damaged zstd: {error}")
                return
            if not piece:
                return
            report(file.tell())
            yield piece


def _inflate_zip(path: Path, problems: list[str], report: Callable[[int], None]) -> Iterator[bytes]:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise DamagedInput(f"not a readable zip archive: {error}", where=str(path)) from None
    with archive:
        members = [
            info
            for info in archive.infolist()
            if not info.is_dir() and not info.filename.startswith("__MACOSX")
        ]
        if len(members) != 1:
            raise InputError(
                f"the archive holds {len(members)} files",
                where=str(path),
                allowed="a zip archive with one trace in it",
                next_step="unpack it and give the folder",
            )
        yield from _inflate_member(archive, members[0], problems, report)


def _inflate_member(
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    problems: list[str],
    report: Callable[[int], None],
) -> Iterator[bytes]:
    try:
        source: IO[bytes] = archive.open(info)
    except (RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DamagedInput(f"cannot be unpacked: {error}", where=info.filename) from None
    with source:
        while True:
            try:
                piece = source.read(_ZIP_BYTES)
            except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
                problems.append(f"damaged zip: {error}")
                return
            if not piece:
                return
            share = source.tell() / max(1, info.file_size)
            report(info.header_offset + int(min(share, 1) * info.compress_size))
            yield piece


def _gathered(pieces: Iterator[bytes]) -> Iterator[Bytes]:
    """Pieces joined to chunks of a useful size."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        if not piece:
            continue
        held.append(piece)
        size += len(piece)
        if size >= _CHUNK_BYTES:
            yield np.frombuffer(b"".join(held), np.uint8)
            held, size = [], 0
    if held:
        yield np.frombuffer(b"".join(held), np.uint8)


def _bounded(chunks: Iterator[Bytes], path: Path, stored: int, max_bytes: int) -> Iterator[Bytes]:
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > max_bytes:
            raise _too_large(path, max_bytes)
        if total > RATIO_FROM_BYTES and total > MAX_RATIO * stored:
            raise LimitExceeded(
                f"it unpacks to more than {MAX_RATIO} times its size",
                where=str(path),
                allowed=f"{MAX_RATIO} times above {RATIO_FROM_BYTES} bytes",
                next_step="unpack it yourself if you trust it",
            )
        yield chunk


def _ahead(chunks: Iterator[Bytes]) -> Iterator[Bytes]:
    """The same chunks, made by a thread that stays at most `_CHUNKS_AHEAD` ahead."""
    with ThreadPoolExecutor(1, "tokenpath-unpack") as pool:
        coming = deque(pool.submit(next, chunks, None) for _ in range(_CHUNKS_AHEAD))
        try:
            while (chunk := coming.popleft().result()) is not None:
                coming.append(pool.submit(next, chunks, None))
                yield chunk
        finally:
            pool.shutdown(cancel_futures=True)


def _too_large(path: Path, max_bytes: int) -> LimitExceeded:
    return LimitExceeded(
        f"it holds more than {max_bytes} bytes",
        where=str(path),
        allowed=f"{max_bytes} bytes",
        next_step="split the trace, or raise the limit",
    )
