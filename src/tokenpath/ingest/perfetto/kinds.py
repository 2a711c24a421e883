"""Packets that hold no track event, by the number of their field in TracePacket."""

from __future__ import annotations

DESCRIPTIONS = frozenset({33, 34, 35, 36, 45, 48, 51, 67, 68, 69, 72, 89, 107, 124, 126, 128, 130})
"""Configuration, statistics and marks of the recorder, and what it says of the machine."""

KINDS = {
    1: "ftrace event bundle",
    2: "process tree",
    4: "inode file map",
    5: "Chrome event bundle",
    7: "system statistics",
    9: "process statistics",
    37: "profile",
    38: "battery counters",
    39: "Android log",
    40: "power rails",
    46: "trigger",
    52: "GPU counter event",
    53: "GPU render stage event",
    54: "profile",
    56: "heap graph",
    62: "Vulkan memory event",
    65: "Vulkan API event",
    66: "sample of a call stack",
    71: "GPU memory total",
    74: "allocation",
    75: "free",
    76: "frame timeline event",
    88: "network packet",
    90: "range of interest",
    95: "Windows event bundle",
    117: "task state of the kernel",
    118: "CPU frequency",
    120: "task rename",
    122: "process tree",
    129: "GPU frequency",
    132: "journal entry",
    135: "sample of a call stack",
}
"""Words of the loss for packets with data that no table holds."""
