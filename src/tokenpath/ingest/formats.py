"""Which reader a file is for, by its content."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path

import tokenpath.ingest
from tokenpath.core.errors import InputError, UnknownFormat
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Reader

SNIFF_BYTES = 2**18
"""How much of a file a reader sees to recognise it."""

_OTHERS: tuple[tuple[bytes, str], ...] = (
    (b"SQLite format 3\0", "a SQLite database"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x02", "a pickle"),
    (b"\x7fELF", "a program"),
)


_TABLE_SUFFIXES = (".csv", ".tsv", ".csv.gz")


@functools.cache
def readers() -> tuple[Reader, ...]:
    """All readers: those that the packages beside this module name in `reader.READERS`, by name."""
    found: list[Reader] = []
    for module in pkgutil.iter_modules(tokenpath.ingest.__path__):
        if module.ispkg:
            found += importlib.import_module(f"tokenpath.ingest.{module.name}.reader").READERS
    return tuple(sorted(found, key=lambda reader: reader.name))


def sniff(path: Path, columns: Mapping[str, str] | None = None) -> Reader:
    """The one reader for a file. UnknownFormat, naming the known ones, when none or two fit.

    `columns`, a map of columns, makes a table known that has all of them and that no reader knows itself.
    """
    head = read_head(path)
    for is_generic in (False, True):
        fitting = [
            reader
            for reader in readers()
            if reader.is_generic == is_generic and reader.sniff(head, path)
        ]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            names = " and ".join(reader.name for reader in fitting)
            raise UnknownFormat(f"it fits several formats: {names}", where=str(path))
    for reader in readers():
        takes = getattr(reader, "sniff_columns", None)
        if columns and takes is not None and takes(head, columns):
            return reader
    known = f"{', '.join(reader.name for reader in readers())} (docs/formats.md)"
    step = _unpack_step(path) if _is_tar(head) else _next_step(path)
    raise UnknownFormat(_describe(head, path), where=str(path), allowed=known, next_step=step)


def sniff_folder(path: Path) -> Reader | None:
    """The reader for which a folder as a whole is one input; None for a folder of files."""
    fitting = [reader for reader in readers() if reader.sniff(b"", path)]
    return fitting[0] if len(fitting) == 1 else None


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
    if path.suffix == ".ncu-rep":
        return "a raw Nsight Compute report needs ncu --import first"
    if not head.strip(b" \t\r\n\0"):
        return "the file is empty"
    if _is_tar(head):
        return "a tar archive of files needs unpacking first"
    for magic, words in _OTHERS:
        if head.startswith(magic):
            return f"unknown format: {words}"
    if head.lstrip()[:1] in (b"{", b"["):
        return "unknown format: JSON, but not a trace that a reader knows"
    if path.name.endswith(_TABLE_SUFFIXES):
        names = head.split(b"\n", 1)[0].decode("utf-8", "replace").strip()[:200]
        return f"a table whose columns no reader knows: {names}"
    return "unknown format: not JSON"


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _unpack_step(path: Path) -> str:
    """Archives are not read: their members may be many, of several runs, and name any path."""
    return f"mkdir unpacked && tar -xf {path.name} -C unpacked, then give the files in it"


def _next_step(path: Path) -> str:
    if path.suffix == ".nsys-rep":
        return f"nsys export --type sqlite {path.name}"
    if path.suffix == ".ncu-rep":
        return f"ncu --import {path.name} --csv --page raw > {path.stem}.csv"
    if path.name.endswith(_TABLE_SUFFIXES):
        return "say which column is what: --columns arrival_s=THEIR_NAME,output_tokens=THEIR_NAME"
    return "give a whole file as its tool wrote it; docs/formats.md says how each tool writes one"
