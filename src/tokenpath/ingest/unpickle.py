"""Plain data out of a pickle, without Python's own loader: nothing is imported, called or built.

A pickle is a program for a small stack machine. The machine here (`pickle_machine`) knows only the
opcodes that make plain values: None, truth values, numbers, texts, bytes, lists, tuples, dicts, sets.
Those that name a class or function, call it, or fill an object are refused by name.

What comes back is finite: no value holds itself, none is deeper than `MAX_DEPTH`, keys are plain. It may
share parts: one list can be in a million places, so readers bound what they make of it.

Snapshots that PyTorch writes need no class. Sets of protocol 0 to 3, bytes of protocol 0 to 2 and byte
arrays of protocol 0 to 4 are calls of classes in a pickle, so they are refused like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenpath.core.errors import DamagedInput, LimitExceeded
from tokenpath.ingest.pickle_machine import MAX_DEPTH, Cut, Machine

MAX_BYTES = 2 * 2**30
"""Bound on the length of a pickle."""

_HOLDERS = (list, tuple, dict)


@dataclass(frozen=True)
class Unpickled:
    """What a pickle holds."""

    value: Any
    """The value; of a pickle that is cut off, as much of it as had been put together."""
    num_bytes: int
    """Length of the pickle; what follows in the file is not part of it."""
    cut_at: int | None
    """Where the data ends too early; None for a whole pickle."""


def unpickle(data: bytes, *, where: str, keep_partial: bool = False) -> Unpickled:
    """The plain value that a pickle of protocol 0 to 5 holds.

    `where` names the file in errors. InputError when it asks for anything but plain data; DamagedInput,
    with the byte, when it is no pickle or is cut off (with `keep_partial` a cut one gives what is there);
    LimitExceeded for one that is larger or deeper than the stated bounds.
    """
    if len(data) > MAX_BYTES:
        raise LimitExceeded(
            f"a pickle of {len(data)} bytes", where=where, allowed=f"{MAX_BYTES} bytes"
        )
    machine = Machine(data, where)
    cut_at = None
    try:
        value = machine.run()
    except Cut:
        if not keep_partial:
            raise machine.damaged(f"the pickle is cut off after {len(data)} bytes") from None
        value, cut_at = machine.fold(), len(data)
    _check_shape(value, where)
    return Unpickled(value, machine.pos, cut_at)


def _check_shape(root: Any, where: str) -> None:
    """Refuse a value that holds itself or is too deep. Each container is walked once."""
    depths: dict[int, int] = {}
    path: list[tuple[int, list[Any]]] = []
    depth_below: list[int] = []
    on_path: set[int] = set()
    coming: list[Any] = [root] if isinstance(root, _HOLDERS) else []
    while coming or path:
        if not coming:
            key, coming = path.pop()
            on_path.discard(key)
            depths[key] = depth_below.pop() + 1
            if depth_below:
                depth_below[-1] = max(depth_below[-1], depths[key])
            continue
        value = coming.pop()
        key = id(value)
        if key in on_path:
            raise DamagedInput("the pickle holds a value that holds itself", where=where)
        known = depths.get(key, 0)
        if key in depths:
            if depth_below:
                depth_below[-1] = max(depth_below[-1], known)
        else:
            path.append((key, coming))
            depth_below.append(0)
            on_path.add(key)
            held = value.values() if isinstance(value, dict) else value
            coming = [item for item in held if isinstance(item, _HOLDERS)]
        if len(path) + known > MAX_DEPTH:
            raise LimitExceeded(
                f"the pickle is nested deeper than {MAX_DEPTH}",
                where=where,
                allowed=f"{MAX_DEPTH} levels",
            )
