"""Names as the tool writes them, and the settings of the tool that are kept."""

from __future__ import annotations

from collections.abc import Mapping

SETTINGS = (
    "kernel_rename",
    "group_by_queue",
    "perfetto_backend",
    "perfetto_buffer_size",
    "perfetto_buffer_fill_policy",
)
"""Entries of `metadata.config`; the others are paths."""


def kernel_name(symbol: Mapping[str, object]) -> str:
    """The best name of a kernel symbol, without the suffix of its descriptor."""
    for key in ("formatted_kernel_name", "demangled_kernel_name", "display_name", "kernel_name"):
        name = symbol.get(key)
        if isinstance(name, str) and name and name != "0":
            return strip_descriptor(name)
    return "unknown kernel"


def strip_descriptor(name: str) -> str:
    """`f(int) [clone .kd]` and `f.kd` are the kernel `f`."""
    return name.removesuffix(" [clone .kd]").removesuffix(".kd")
