"""Which reader a file is for, by its content."""

from __future__ import annotations

from pathlib import Path

from tokenpath.core.errors import InputError, UnknownFormat
from tokenpath.ingest.kineto.reader import KinetoReader
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Reader

SNIFF_BYTES = 2**18
"""How much of a file a reader sees to recognise it."""

READERS: tuple[Reader, ...] = (KinetoReader(),)
"""All readers; a new format is one more entry."""

_KNOWN = "; ".join(f"{reader.name} ({reader.describes})" for reader in READERS)
_OTHERS: tuple[tuple[bytes, str], ...] = (
    (b"SQLite format 3\0", "a SQLite database"),
    (b"PAR1", "a Parquet file"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x02", "a pickle"),
    (b"\x7fELF", "a program"),
)


def sniff(path: Path) -> Reader:
    """The one reader for a file. UnknownFormat, naming the known ones, when none or two fit."""
    head = read_head(path)
    fitting = [reader for reader in READERS if reader.sniff(head, path)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = " and ".join(reader.name for reader in fitting)
        raise UnknownFormat(f"it fits several formats: {names}", where=str(path))
    raise UnknownFormat(
        _describe(head, path), where=str(path), allowed=_KNOWN, next_step=_next_step(path)
    )


def read_head(path: Path) -> bytes:
    """The first unpacked bytes of a file. InputError when it is a folder or cannot be read."""
    if path.is_dir():
        raise InputError("is a folder", where=str(path), next_step="give the files in it")
    head = b""
    for chunk in open_unpacked(path).chunks:
        head += chunk[:SNIFF_BYTES].tobytes()
        if len(head) >= SNIFF_BYTES:
            break
    return head[:SNIFF_BYTES]


def _describe(head: bytes, path: Path) -> str:
    if path.suffix == ".nsys-rep":
        return "a raw Nsight Systems report needs nsys export first"
    if not head.strip(b" \t\r\n\0"):
        return "the file is empty"
    for magic, words in _OTHERS:
        if head.startswith(magic):
            return f"unknown format: {words}"
    if head.lstrip()[:1] in (b"{", b"["):
        return "unknown format: JSON, but not a trace that a reader knows"
    return "unknown format: not JSON"


def _next_step(path: Path) -> str:
    if path.suffix == ".nsys-rep":
        return f"nsys export --type sqlite {path.name}"
    return "give the .json or .json.gz file that torch.profiler wrote"
