"""Rows of workload files: bounded reading, every bad row counted with its reason and first line."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from tokenpath.core.errors import DamagedInput, InputError, LimitExceeded
from tokenpath.simulate.workload.content import GRANULE_TOKENS, MAX_IDS, Content
from tokenpath.simulate.workload.generate import MAX_REQUESTS, of_columns
from tokenpath.simulate.workload.lengths import MAX_TOKENS, Pairs
from tokenpath.simulate.workload.workload import Int64s, Workload

MAX_LINE_BYTES = 2**24
"""A longer line is skipped, not held."""
MAX_UNPACKED_BYTES = 2**34
HEAD_BYTES = 2**16
MAX_TIME_NS = 2**62
"""Moments beyond are refused: differences of two must fit an int64."""

NO_IDS: array[int] = array("q")
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Skip:
    """Rows that were left out for one reason."""

    reason: str
    """Why."""
    num_rows: int
    """How many."""
    first_line: int
    """Line of the first, from 1 on."""


@dataclass(frozen=True, slots=True)
class ReadWorkload:
    """A workload with what is known of its file."""

    workload: Workload
    """The requests."""
    format: str
    """Which format the file has."""
    skips: tuple[Skip, ...] = ()
    """What was left out."""
    notes: tuple[str, ...] = ()
    """What the reader had to assume."""


@dataclass
class Skips:
    """Counter of rows left out."""

    path: Path
    """The file, for messages."""
    reasons: dict[str, list[int]] = field(default_factory=dict)
    """Number and first line by reason."""

    def add(self, reason: str, line: int) -> None:
        """Count a row."""
        self.reasons.setdefault(reason, [0, line])[0] += 1

    def listed(self) -> tuple[Skip, ...]:
        """By reason, most rows first."""
        skips = [Skip(reason, count, line) for reason, (count, line) in self.reasons.items()]
        return tuple(sorted(skips, key=lambda skip: (-skip.num_rows, skip.first_line)))

    def error(self) -> DamagedInput:
        """That nothing could be read, with the first reason and where it is."""
        first = min(self.listed(), key=lambda skip: skip.first_line, default=None)
        if first is None:
            return DamagedInput(
                "no request in it", where=str(self.path), next_step="name another file"
            )
        return DamagedInput(
            f"no row can be used; the first: {first.reason}",
            where=f"{self.path}:{first.first_line}",
            next_step="see docs/workload.md for the formats",
        )


def read_head(path: Path) -> bytes:
    """The first bytes of a file, unpacked. InputError where it cannot be read."""
    with _open(path) as (stream, packed):
        head = stream.read(HEAD_BYTES)
        if not head and packed is not None and packed.problem is not None:
            raise InputError(packed.problem, where=str(path), next_step="pack it again")
        return head


def lines(path: Path, skips: Skips) -> Iterator[tuple[int, bytes]]:
    """Lines with their number from 1 on; blank and overlong ones are not among them."""
    num_bytes = number = 0
    with _open(path) as (stream, packed):
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            num_bytes += len(line)
            if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                skips.add(f"line above {MAX_LINE_BYTES:,} bytes", number)
                while (rest := stream.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                    num_bytes += len(rest)
                line = b""
            if num_bytes > MAX_UNPACKED_BYTES:
                raise LimitExceeded(
                    f"unpacks to more than {MAX_UNPACKED_BYTES:,} bytes",
                    where=str(path),
                    next_step="split it",
                )
            line = line.strip()
            if line:
                yield number, line
        if packed is not None and packed.problem is not None:
            skips.add(packed.problem, number)


class _Unpacked(io.RawIOBase):
    """A gzip stream that ends where it is damaged, and says so, instead of losing what came before."""

    def __init__(self, packed: gzip.GzipFile) -> None:
        self.packed = packed
        self.problem: str | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self.packed.read1(len(buffer))
        except EOFError:
            self.problem, data = "file is cut off", b""
        except (OSError, zlib.error):
            self.problem, data = "packed data is damaged", b""
        buffer[: len(data)] = data
        return len(data)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[tuple[IO[bytes], _Unpacked | None]]:
    try:
        stream = path.open("rb")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    with stream:
        magic = stream.read(2)
        stream.seek(0)
        if magic != _GZIP_MAGIC:
            yield stream, None
            return
        with gzip.GzipFile(fileobj=stream) as packed:
            unpacked = _Unpacked(packed)
            yield io.BufferedReader(unpacked), unpacked


class RequestRows:
    """Requests as they are read, a row each, in columns of 8 bytes."""

    def __init__(self, skips: Skips, granule_tokens: int = GRANULE_TOKENS) -> None:
        self.skips = skips
        self.granule_tokens = granule_tokens
        self.arrival_ns = array("q")
        self.prompt_tokens = array("q")
        self.output_tokens = array("q")
        self.num_ids = array("q")
        self.ids = array("q")

    def add(
        self,
        line: int,
        arrival_ns: int | None,
        prompt_tokens: int | None,
        output_tokens: int | None,
        ids: array[int] = NO_IDS,
    ) -> bool:
        """Append a row, or count why it cannot be used."""
        if arrival_ns is None or prompt_tokens is None or output_tokens is None:
            self.skips.add("a value is missing or no number", line)
            return False
        reason = _refusal(arrival_ns, prompt_tokens, output_tokens)
        if reason is not None:
            self.skips.add(reason, line)
            return False
        # Granules may go over the output, never beyond it.
        most = -(-(prompt_tokens + output_tokens) // self.granule_tokens)
        self.ids.extend(ids if len(ids) <= most else ids[:most])
        self.num_ids.append(min(len(ids), most))
        self.arrival_ns.append(arrival_ns)
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)
        if len(self.arrival_ns) > MAX_REQUESTS or len(self.ids) > MAX_IDS:
            raise LimitExceeded(
                f"more than {MAX_REQUESTS:,} requests or {MAX_IDS:,} content ids",
                where=f"{self.skips.path}:{line}",
                next_step="split it",
            )
        return True

    def take(
        self,
        arrival: Int64s,
        unit_ns: int,
        prompt_tokens: Int64s,
        output_tokens: Int64s,
        num_ids: Int64s,
        ids: Int64s,
    ) -> bool:
        """Take whole columns; False, and nothing taken, where a row would be left out or cut."""
        tokens = np.concatenate((prompt_tokens, output_tokens))
        most = -(-(prompt_tokens + output_tokens) // self.granule_tokens)
        is_usual = (
            0 < len(arrival) <= MAX_REQUESTS
            and len(ids) <= MAX_IDS
            and tokens.min() >= 1
            and tokens.max() <= MAX_TOKENS
            and abs(int(arrival.max())) <= MAX_TIME_NS // unit_ns
            and abs(int(arrival.min())) <= MAX_TIME_NS // unit_ns
            and bool((num_ids <= most).all())
        )
        if is_usual:
            self.arrival_ns = array("q", (arrival * unit_ns).tobytes())
            self.prompt_tokens = array("q", prompt_tokens.tobytes())
            self.output_tokens = array("q", output_tokens.tobytes())
            self.num_ids = array("q", num_ids.tobytes())
            self.ids = array("q", ids.tobytes())
        return is_usual

    def workload(self, name: str, state: str = "measured") -> Workload:
        """The rows in order of arrival, from 0 on. DamagedInput if there is none."""
        if not self.arrival_ns:
            raise self.skips.error()
        arrival = np.array(self.arrival_ns, np.int64)
        order = np.argsort(arrival, kind="stable")
        counts = np.array(self.num_ids, np.int64)
        pairs = Pairs(
            np.array(self.prompt_tokens, np.int64)[order],
            np.array(self.output_tokens, np.int64)[order],
        )
        content = reorder_ids(counts, np.array(self.ids, np.int64), order, self.granule_tokens)
        arrival = arrival[order]
        return of_columns(name, state, arrival - arrival[0], pairs, content)


def _refusal(arrival_ns: int, prompt_tokens: int, output_tokens: int) -> str | None:
    if abs(arrival_ns) > MAX_TIME_NS:
        return "time out of range"
    if prompt_tokens < 1:
        return "prompt without tokens"
    if output_tokens < 1:
        return "output without tokens"
    if prompt_tokens > MAX_TOKENS or output_tokens > MAX_TOKENS:
        return f"length above {MAX_TOKENS:,} tokens"
    return None


def reorder_ids(counts: Int64s, ids: Int64s, order: Int64s, granule_tokens: int) -> Content:
    """Content with its requests in another order."""
    start = np.cumsum(counts) - counts
    kept = counts[order]
    ends = np.cumsum(kept)
    place = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(
        start[order] - (ends - kept), kept
    )
    return Content(np.concatenate(([0], ends)), ids[place], granule_tokens)


def whole(value: object) -> int | None:
    """A JSON or CSV number as a whole number; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        text = value.strip()
        if len(text) <= 20 and text.lstrip("+-").isdecimal():
            return int(text)
        try:
            value = float(text)
        except ValueError:
            return None
    if isinstance(value, float) and abs(value) < 2**62:
        return round(value)
    return None


def nanoseconds(value: object, unit_ns: int) -> int | None:
    """A JSON or CSV number of some unit as nanoseconds; None for anything else."""
    if isinstance(value, str):
        number = whole(value) if value.strip().lstrip("+-").isdecimal() else None
        try:
            value = float(value) if number is None else number
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value * unit_ns if abs(value) < 2**62 else None
    return round(value * unit_ns) if abs(value) * unit_ns < 2**62 else None
