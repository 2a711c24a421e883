"""Lines of a fixed number of terminal cells (a Chinese character takes two, a combining mark none)."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from tokenpath.export.escape import visible

MAX_PROSE_CHARS = 1_000
"""Longer sentences, which only a name in them can make, are cut and say so."""

_RULER = Console(file=io.StringIO(), width=80, color_system=None, legacy_windows=False, _environ={})
"""Text.wrap wants a console; it reads nothing of it but the tab size."""


def wrapped(
    text: str, width: int, first: str = "", rest: str = "", style: str = ""
) -> Iterator[Text]:
    """`text` in lines of at most `width` cells; the first begins with `first`, the others with `rest`.

    `first` and `rest` are of one width. Made visible (see `escape`) on the way. No text, no line.
    """
    if not text:
        return
    room = max(width - cell_len(first), 8)
    body = Text(visible(text, MAX_PROSE_CHARS), style)
    for index, line in enumerate(body.wrap(_RULER, room)):
        line.rstrip()
        yield Text.assemble(first if index == 0 else rest, line)


def fit(text: str, width: int) -> str:
    """The text in exactly `width` cells, cut with an ellipsis where it is longer."""
    if cell_len(text) > width:
        return set_cell_size(set_cell_size(text, width - 1).rstrip() + "…", width)
    return set_cell_size(text, width)
