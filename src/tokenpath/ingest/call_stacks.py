"""Call stacks of PyTorch's dumps as texts."""

from __future__ import annotations

from typing import Any

from tokenpath.ingest.losses import Losses

MAX_FRAMES = 256
"""Deeper stacks are cut at their outermost frames."""
MAX_FRAME_CHARS = 400
"""Longer names are cut; C++ templates reach a few hundred characters."""

MAX_CHARS = 2**29
"""Bound on all stacks of a file together: shared frames make long texts of few bytes."""


class CallStacks:
    """Texts of stacks: frames innermost first, separated by `;`, each as `file.py(12): function`.

    Dumps share frames and stacks between events, so each list is written out once.
    """

    def __init__(self, losses: Losses) -> None:
        """Cut stacks are counted in `losses`. The lists given must live as long as this object."""
        self._losses = losses
        self._by_list: dict[int, str | None] = {}
        self._by_frame: dict[int, str | None] = {}
        self._num_chars = 0

    def text(self, frames: Any) -> str | None:
        """The text of a list of frames (`filename`, `line`, `name`); None for none."""
        if not isinstance(frames, list) or not frames:
            return None
        key = id(frames)
        if key not in self._by_list:
            self._by_list[key] = self._write(frames)
        return self._by_list[key]

    def _write(self, frames: list[Any]) -> str | None:
        if len(frames) > MAX_FRAMES:
            self._losses.add("call stack cut", dropped=False)
        texts = [self._frame(frame) for frame in frames[:MAX_FRAMES]]
        whole = ";".join(text for text in texts if text is not None)
        self._num_chars += len(whole)
        if self._num_chars > MAX_CHARS:
            self._losses.add("call stack beyond the bound", dropped=False)
            return None
        return whole or None

    def _frame(self, frame: Any) -> str | None:
        if not isinstance(frame, dict):
            return None
        key = id(frame)
        if key not in self._by_frame:
            self._by_frame[key] = _frame_text(frame)
        return self._by_frame[key]


def _frame_text(frame: dict[Any, Any]) -> str | None:
    name, file, line = (frame.get(key) for key in ("name", "filename", "line"))
    if not isinstance(name, str):
        return None
    name = name[:MAX_FRAME_CHARS].replace(";", ",")
    # C++ frames without debug information have the file `??`, or none.
    if not isinstance(file, str) or file in ("", "??"):
        return name
    file = file[-MAX_FRAME_CHARS:].replace(";", ",")
    return (
        f"{file}({line}): {name}" if type(line) is int and 0 < line < 2**31 else f"{file}: {name}"
    )
