"""JSON documents member by member: bounded, what stands before damage is kept, big members not at once.

`members` decodes one member after the other and goes down only into the containers that it is told of,
so that a list of a million requests is never held as objects. Documents that follow one another (JSON
Lines, results appended to one file) are read in turn; after damage it goes on at the next line that
begins with `{`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Iterator
from pathlib import Path
from typing import Any

from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options

MAX_TEXT_BYTES = 2 * 2**30
"""A document of load results larger than this is refused: it is held as text."""
ANY = "*"
"""In a path: each element of a list."""

Path_ = tuple[str, ...]

_DECODER = json.JSONDecoder(strict=False)
_SPACE = " \t\r\n"


class Begin:
    """What `members` gives where a container begins that it goes down into."""


BEGIN = Begin()


class Members:
    """The members of the documents in a text, in order."""

    def __init__(self, text: str, descend: Collection[Path_], losses: Losses) -> None:
        """`descend` are the paths of the containers to go down into; () is the document."""
        self._text = text
        self._descend = frozenset(descend)
        self._losses = losses
        self.offset = 0
        """Where the member at hand begins, in characters."""

    def __iter__(self) -> Iterator[tuple[Path_, Any]]:
        """(path, value); for a container that is gone into, (path, BEGIN), then its members."""
        at = self._skip(0, _SPACE + "\ufeff")
        while at < len(self._text):
            try:
                at = yield from self._value(at, ())
            except (ValueError, RecursionError, IndexError) as error:
                at = self._after(error)
            at = self._skip(at, _SPACE + ",")

    def _after(self, error: Exception) -> int:
        """Count the damage; where to go on."""
        place = error.pos if isinstance(error, json.JSONDecodeError) else self.offset
        is_end = place >= len(self._text.rstrip(_SPACE + "\0")) - 1
        reason = "no end of the document" if is_end else "damaged JSON"
        self._losses.add(
            reason, offset=place, what=str(error).partition(":")[0][:80], dropped=False
        )
        # From where the member began: what is missing may have made it run on into the next document.
        found = self._text.find("\n{", self.offset)
        return len(self._text) if found < 0 else found + 1

    def _value(self, at: int, path: Path_) -> Generator[tuple[Path_, Any], None, int]:
        opening = self._text[at : at + 1]
        self.offset = at
        if path in self._descend and opening and opening in "{[":
            yield path, BEGIN
            return (yield from self._inside(at + 1, path, opening))
        value, end = _DECODER.raw_decode(self._text, at)
        yield path, value
        return end

    def _inside(
        self, at: int, path: Path_, opening: str
    ) -> Generator[tuple[Path_, Any], None, int]:
        closing = "}" if opening == "{" else "]"
        at = self._skip(at)
        if self._text[at] == closing:
            return at + 1
        while True:
            key = ANY
            self.offset = at
            if opening == "{":
                key, at = _DECODER.raw_decode(self._text, at)
                at = self._skip(at)
                if not isinstance(key, str) or self._text[at] != ":":
                    raise json.JSONDecodeError("a member without a name", self._text, at)
                at = self._skip(at + 1)
            at = yield from self._value(at, (*path, key))
            at = self._skip(at)
            if self._text[at] == closing:
                return at + 1
            if self._text[at] != ",":
                raise json.JSONDecodeError("no comma between members", self._text, at)
            at = self._skip(at + 1)

    def _skip(self, at: int, signs: str = _SPACE) -> int:
        while at < len(self._text) and self._text[at] in signs:
            at += 1
        return at


def read_text(path: Path, options: Options, losses: Losses) -> str:
    """A whole file as text; bytes that are no text are replaced.

    LimitExceeded beyond `MAX_TEXT_BYTES`; DamagedInput for a file without content.
    """
    unpacked = open_unpacked(
        path, max_bytes=min(options.max_bytes, MAX_TEXT_BYTES), progress=options.progress
    )
    data = b"".join(chunk.tobytes() for chunk in unpacked.chunks)
    for problem in unpacked.problems:
        losses.add(problem.partition(":")[0], offset=len(data), what=problem, dropped=False)
    unpacked.report_done()
    if not data.strip(b" \t\r\n\0"):
        raise DamagedInput("nothing of it could be unpacked", where=str(path))
    return data.decode("utf-8", "replace")
