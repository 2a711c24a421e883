"""The measured run of an analysis, ready to be timed again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.explain.analysis import Analysis
from tokenpath.replay.replay import DeviceWindow, Replay
from tokenpath.stitch.clocks import host_clocks


def replay_of(analysis: Analysis) -> Replay:
    """A replay of the capture in the windows of its devices; the graph is built when it is first asked for."""
    windows = []
    for device in analysis.devices:
        low, high = device.work.window_start_ns, device.work.window_end_ns
        starts = device.spans.start
        windows.append(
            DeviceWindow(
                device.work.device_id, low, high, starts[(starts >= low) & (starts < high)]
            )
        )
    capture = analysis.capture

    def shift_ns() -> NDArray[np.int64]:
        shift = np.zeros(max(capture.num_rows("source"), 1), np.int64)
        for clock in host_clocks(capture):
            shift[list(clock.sources)] = clock.offset_ns
        return shift

    return Replay(capture, windows, shift_ns)
