"""Fit the noise of the lab's device world to real traces and print noise.toml.

Usage: ``TOKENPATH_REFERENCE_DATA=... python tools/fit_lab_noise.py > src/tokenpath/lab/machine/noise.toml``.

Spread: of kernels that occur 20 times or more with one name and grid, half the distance from the 16th to the
84th percentile over the median, as the median over kernels of like length; kernels whose lengths have
several modes (other shapes under one name) are left out. Gaps: next start minus previous end on one stream,
where the launching call had ended 5 us before. Latency: kernel start minus call start, where the call began
after the stream was empty (beyond 50 us it waited for an event). Call tail: share of launching calls that took over twice the median.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

FILES = (
    "traces/vllm_tracemap/1_h100_1000isl_10osl_32con.pt.trace.json.gz",
    "traces/tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
)
QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
LENGTHS_US = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 512.0)


def main() -> int:
    """Read the files, print the table."""
    root = os.environ.get("TOKENPATH_REFERENCE_DATA")
    if not root:
        print("set TOKENPATH_REFERENCE_DATA to the folder of reference traces", file=sys.stderr)
        return 2
    spreads: list[tuple[float, float]] = []
    gaps: list[float] = []
    inner: list[float] = []
    latencies: list[float] = []
    long_calls = calls = 0
    for name in FILES:
        with gzip.open(Path(root) / name) as file:
            events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
        launches = {
            e["args"]["correlation"]: e
            for e in events
            if e.get("cat") in ("cuda_runtime", "cuda_driver")
        }
        kernels = sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"])
        spreads += _spreads(kernels)
        by_call: dict[str, list[float]] = defaultdict(list)
        for launch in launches.values():
            by_call[launch["name"]].append(launch["dur"])
        for lengths in by_call.values():
            if len(lengths) > 100 and np.median(lengths) > 2:
                calls += len(lengths)
                long_calls += int((np.array(lengths) > 2 * np.median(lengths)).sum())
        before: dict[int, Any] = {}
        for kernel in kernels:
            stream = kernel["args"]["stream"]
            last, before[stream] = before.get(stream), kernel
            launch = launches.get(kernel["args"]["correlation"])
            if last is None or launch is None:
                continue
            end = last["ts"] + last["dur"]
            gap = kernel["ts"] - end
            if last["args"]["correlation"] == kernel["args"]["correlation"]:
                inner.append(gap)
            elif launch["ts"] + launch["dur"] + 5 < end:
                gaps.append(gap)
            elif launch["ts"] > end and kernel["ts"] - launch["ts"] < 50:
                latencies.append(kernel["ts"] - launch["ts"])
    print("# Written by tools/fit_lab_noise.py from traces of H100 GPUs; lengths in ns.")
    print(f"quantiles = {list(QUANTILES)}")
    # Beyond the 99th percentile stands what is no gap: waits for events, the profiler's own flushes.
    for title, values in (("gap_ns", gaps), ("graph_gap_ns", inner), ("latency_ns", latencies)):
        kept = np.clip(values, 0.0, np.quantile(values, 0.99))
        print(f"{title} = {[int(1000 * v) for v in np.quantile(kept, QUANTILES)]}")
    print(f"call_tail = {long_calls / calls:.4f}")
    print("\n[kernel]")
    rows = []
    for low, high in zip((0.0, *LENGTHS_US[:-1]), LENGTHS_US, strict=True):
        near = [spread for length, spread in spreads if low < length <= high]
        if near:
            rows.append((int(1000 * high * 0.75), round(float(np.median(near)), 4)))
    print(f"ns = {[row[0] for row in rows]}")
    print(f"spread = {[row[1] for row in rows]}")
    return 0


def _spreads(kernels: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """(median length in us, relative spread) of each kernel and grid that occurs often enough."""
    by_kind: dict[tuple[str, str], list[float]] = defaultdict(list)
    for kernel in kernels:
        by_kind[kernel["name"], str(kernel["args"].get("grid"))].append(kernel["dur"])
    found = []
    for lengths in by_kind.values():
        if len(lengths) < 20:
            continue
        low, middle, high = np.quantile(lengths, (0.16, 0.5, 0.84))
        spread = (high - low) / 2 / middle
        if spread < 0.15:
            found.append((float(middle), float(spread)))
    return found


if __name__ == "__main__":
    raise SystemExit(main())
