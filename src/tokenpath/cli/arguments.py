"""Arguments and output that commands share."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tokenpath.core.errors import UsageError

DEFAULT_WIDTH = 80


def add_input(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """The files to read, and what is kept of hosts."""
    parser.add_argument(
        "paths",
        nargs="*" if optional else "+",
        metavar="FILE",
        help="trace files (.json .gz .zst .zip), a folder or glob of ranks, or a capture folder",
    )
    parser.add_argument(
        "--keep-hosts", action="store_true", help="keep host names; they are masked by default"
    )
    parser.add_argument(
        "--columns",
        action="append",
        default=[],
        metavar="OURS=THEIRS",
        help="what the columns of a plain CSV file are: arrival_s=start_time,output_tokens=n_out",
    )


def parse_columns(texts: Sequence[str]) -> dict[str, str]:
    """`arrival_s=start,output_tokens=out` to a map; UsageError for anything else, or a name given twice."""
    columns: dict[str, str] = {}
    for pair in (pair for text in texts for pair in text.split(",")):
        ours, equals, theirs = (part.strip() for part in pair.partition("="))
        if not (ours and equals and theirs) or ours in columns:
            raise UsageError(
                f"{pair!r} is given twice" if ours in columns else f"{pair!r} is no pair",
                where="--columns",
                allowed="OURS=THEIRS pairs such as arrival_s=start_time, separated by commas",
            )
        columns[ours] = theirs
    return columns


def parse_range(text: str | None) -> tuple[int | None, int | None]:
    """`10:20`, `10:`, `:20` or `7` to a half-open range; UsageError for anything else."""
    if text is None:
        return None, None
    first, colon, end = text.partition(":")
    try:
        low = int(first) if first else 0
        high = (int(end) if end else None) if colon else low + 1
    except ValueError:
        low, high = -1, None
    if low < 0 or (high is not None and high <= low) or not text.strip(": "):
        raise UsageError(
            f"{text!r} is not a range", where="--steps", allowed="10:20, 10:, :20 or 7"
        )
    return low, high


def terminal_width() -> int:
    """Columns of the terminal; 80 when the output is not one."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    return DEFAULT_WIDTH


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[int, int | None], None] | None]:
    """A bar with bytes and rate on a terminal's stderr; nothing where there is none."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("reading"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("read", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def write_text(path: str, content: str) -> None:
    """Write a file whole or not at all; UsageError when the place cannot be written."""
    write_pieces(path, (content,))


def write_pieces(path: str, pieces: Iterable[str]) -> None:
    """The same for a file that is made piece by piece."""
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=".tokenpath-", dir=target.parent)
        scratch = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                out.writelines(pieces)
            scratch.chmod(0o644)
            scratch.replace(target)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(
            f"cannot write: {error.strerror}", where=path, next_step="name another file"
        ) from None
