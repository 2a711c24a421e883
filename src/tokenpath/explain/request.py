"""What a caller may ask of `explain`; light to import, as the command line needs it before reading."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WindowRequest:
    """The window that the caller asked for; all None means: choose one."""

    first_step: int | None = None
    """First step, counted from 0."""
    end_step: int | None = None
    """First step that is not in the window."""
    from_ns: int | None = None
    """Start, relative to the first device work of the capture."""
    to_ns: int | None = None
    """End, relative to the first device work of the capture."""
