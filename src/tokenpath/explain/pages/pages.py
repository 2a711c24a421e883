"""The pages of finding and note codes."""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path

from tokenpath.core.errors import UsageError

_FOLDER = Path(__file__).parent


@cache
def codes() -> tuple[str, ...]:
    """Every code that has a page, in alphabetical order."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.md")))


def about(code: str) -> str:
    """The page of a code; UsageError with near matches when there is none."""
    if code not in codes():
        near = difflib.get_close_matches(code, codes(), n=3)
        raise UsageError(
            f"no finding is called {code!r}",
            where="--about",
            allowed=", ".join(codes()),
            next_step=f"did you mean {' or '.join(near)}?" if near else None,
        )
    return (_FOLDER / f"{code}.md").read_text(encoding="utf-8")
