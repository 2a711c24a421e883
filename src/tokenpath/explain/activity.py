"""What being in an API call, an operator or a frame of a given name means for a host thread."""

from __future__ import annotations

import re

ACTIVITIES = (
    "host_untraced",
    "host_op",
    "host_api",
    "host_python",
    "host_wait",
    "host_allocator",
    "host_synchronize",
    "host_memcpy",
)
"""What a host thread can be doing; the keys are those of the causes."""
UNTRACED, OP, API, PYTHON, WAIT, ALLOCATOR, SYNCHRONIZE, COPY = range(8)

_SYNCHRONIZE = re.compile(r"synchron", re.IGNORECASE)
_COPY = re.compile(r"memcpy", re.IGNORECASE)
_ALLOCATOR = re.compile(
    r"malloc|(?:cuda|hip|cu)(?:mem|array)?(?:free|alloc)|hostalloc|hostfree|hostregister|hostunregister"
    r"|mem(?:alloc|create|map$|unmap|release|setaccess|addressreserve)",
    re.IGNORECASE,
)
_WAIT_FRAME = re.compile(
    r"threading\.py\(\d+\): (?:wait|acquire|join|_wait_for_tstate_lock)"
    r"|queues?\.py\(\d+\): (?:get|put|join)"
    r"|selectors\.py\(\d+\): select"
    r"|connection\.py\(\d+\): (?:wait|_?poll|recv\w*)"
    r"|zmq\S*\(\d+\): (?:recv\w*|poll)"
    r"|built-in method (?:acquire|poll|select|epoll_wait|recv\w*|accept|sleep|wait)\b"
    r"|lock_acquire|epoll",
    re.ASCII,
)


def is_synchronizing(name: str) -> bool:
    """Whether an API call of this name waits for the device."""
    return _SYNCHRONIZE.search(name) is not None


def activity_of_call(name: str) -> int:
    """The activity of being in an API call of this name."""
    if _SYNCHRONIZE.search(name):
        return SYNCHRONIZE
    if _COPY.search(name):
        return COPY
    return ALLOCATOR if _ALLOCATOR.search(name) else API


def activity_of_frame(name: str) -> int:
    """The activity of being in a Python frame of this name."""
    return WAIT if _WAIT_FRAME.search(name) else PYTHON


def activity_of(table: str, name: str) -> int:
    """The activity of being in an item of this table and name."""
    if table == "op":
        return OP
    return activity_of_call(name) if table == "api_call" else activity_of_frame(name)
