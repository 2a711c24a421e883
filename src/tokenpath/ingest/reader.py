"""What a reader of one format is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tokenpath.capture.capture import Capture
from tokenpath.core.redact import Redactor
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
    columns: Mapping[str, str] = field(default_factory=dict)
    """For plain CSV: the file's column by our name, such as `arrival_s` -> `start_time`."""
    redactor: Redactor | None = None
    """Masks texts; one for all files read together, so that a host has one pseudonym."""

    def masks(self) -> Redactor:
        """The redactor, a new one if none was set."""
        return self.redactor or Redactor(keep_hosts=self.keep_hosts)


def options_by_file(paths: Sequence[Path], options: Options) -> Iterator[Options]:
    """Options for each file in turn, whose progress counts the bytes of all files."""
    return options_by_group([[path] for path in paths], options)


def options_by_group(groups: Sequence[Sequence[Path]], options: Options) -> Iterator[Options]:
    """Options for each group of files in turn, whose progress counts the bytes of all groups."""
    progress = options.progress
    if progress is None:
        yield from (options for _ in groups)
        return
    sizes = [sum(stored_bytes(path) for path in paths) for paths in groups]
    for number in range(len(groups)):
        yield replace(options, progress=_shifted(progress, sum(sizes[:number]), sum(sizes)))


def stored_bytes(path: Path) -> int:
    """Size of a file, or of all files in a folder that is one input."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    return path.stat().st_size


def _shifted(progress: Progress, before: int, total: int) -> Progress:
    def report(done: int, _: int | None) -> None:
        progress(before + done, total)

    return report


class Reader(Protocol):
    """Turns files of one format into a capture.

    A reader keeps all that its tables can hold, counts the rest by reason in `skip`, gives times in
    integer nanoseconds, and masks secrets before anything reaches a table. Each lives in a package of
    its own under `ingest`, whose module `reader` names it in `READERS`; importing that module must be
    quick, so it imports what reading needs only in `read`.
    """

    name: str
    """Stable short name, as `source.format` gives it."""
    version: int
    """Raised whenever the same file would give other tables."""
    describes: str
    """What the format is, for a person: with the suffixes that its files have."""
    is_generic: bool
    """Whether it takes what no other reader knows; it is asked only then."""

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the first unpacked bytes (at most `SNIFF_BYTES`) are of this format.

        For a folder `head` is empty and `path.is_dir()`; True means that the folder as a whole is one
        input of this format (an Nsight Systems Parquet export), not a folder of files.
        """

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read files of this format into one capture, each its own row of `source`."""
