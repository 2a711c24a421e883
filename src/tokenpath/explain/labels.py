"""Names of host items as people read them."""

from __future__ import annotations

import re

_FOLDERS = re.compile(r"^[^(]*/(?=[^/(]+\(\d+\): )", re.ASCII)
"""The folders of a Python frame: `a/b/llama.py(343): forward`."""
_ADDRESS = re.compile(r"( object)? at 0x[0-9a-fA-F]+", re.ASCII)
"""Where an object lay in memory: different in every run, and no use to a reader."""


def short_label(name: str) -> str:
    """A name without the folders of a frame and without memory addresses."""
    return _ADDRESS.sub("", _FOLDERS.sub("", name))
