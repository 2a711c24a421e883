"""What a reader of one format is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tokenpath.capture.capture import Capture
from tokenpath.ingest.packed import MAX_UNPACKED_BYTES, Progress


@dataclass(frozen=True)
class Options:
    """How to read."""

    keep_hosts: bool = False
    """Whether host names are kept; otherwise they become `host-0`, `host-1`, ..."""
    progress: Progress | None = None
    """Called as bytes are read."""
    max_bytes: int = MAX_UNPACKED_BYTES
    """Bound on what one file may unpack to."""
    num_workers: int | None = None
    """Threads that scan; None chooses by size and cores."""
    scanner: str = "auto"
    """`slow`, `fast` or `auto`: both give the same tables; `auto` chooses by size."""


def options_by_file(paths: Sequence[Path], options: Options) -> Iterator[Options]:
    """Options for each file in turn, whose progress counts the bytes of all files."""
    progress = options.progress
    if progress is None:
        yield from (options for _ in paths)
        return
    sizes = [path.stat().st_size for path in paths]
    for number in range(len(paths)):
        yield replace(options, progress=_shifted(progress, sum(sizes[:number]), sum(sizes)))


def _shifted(progress: Progress, before: int, total: int) -> Progress:
    def report(done: int, _: int | None) -> None:
        progress(before + done, total)

    return report


class Reader(Protocol):
    """Turns files of one format into a capture.

    A reader keeps all that its tables can hold, counts the rest by reason in `skip`, gives times in
    integer nanoseconds, and masks secrets before anything reaches a table.
    """

    name: str
    """Stable short name, as `source.format` gives it."""
    version: int
    """Raised whenever the same file would give other tables."""
    describes: str
    """What the format is, for a person."""

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the first unpacked bytes (at most `SNIFF_BYTES`) are of this format."""

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read files of this format into one capture, each its own row of `source`."""
