"""Every exception that tokenpath raises on purpose.

TokenpathError
|- InputError            the input cannot be used as it is
|  |- UnknownFormat      no reader knows the file, or more than one does
|  |- DamagedInput       a reader knows the file, but nothing of it can be read
|  |- LimitExceeded      the input is larger than a stated bound (decompression bomb, nesting)
|- CaptureError          tables that break their declaration
|- UsageError            an argument that cannot be used (window, threshold, option)

Each message has four parts: what happened, where, what is allowed, what to do next.
"""

from __future__ import annotations


class TokenpathError(Exception):
    """Base of every error that a user can act on; only `cli` turns it into an exit code."""

    exit_code = 2

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        allowed: str | None = None,
        next_step: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.allowed = allowed
        self.next_step = next_step
        super().__init__(what)

    def __str__(self) -> str:
        lines = [self.what if self.where is None else f"{self.where}: {self.what}"]
        if self.allowed is not None:
            lines.append(f"  allowed: {self.allowed}")
        if self.next_step is not None:
            lines.append(f"  next: {self.next_step}")
        return "\n".join(lines)


class InputError(TokenpathError):
    """The input cannot be used as it is."""


class UnknownFormat(InputError):
    """No reader recognises the file, or more than one does."""


class DamagedInput(InputError):
    """A reader recognises the file, but nothing of it can be read."""


class LimitExceeded(InputError):
    """The input is larger than a stated bound."""


class CaptureError(TokenpathError):
    """Tables that break their declaration."""


class UsageError(TokenpathError):
    """An argument that cannot be used."""
