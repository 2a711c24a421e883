"""Collectives of thousands of ranks: matching their parts and aligning the clocks of their hosts.

    python benchmarks/collectives.py --ranks 4096 --collectives 250

Prints parts a CPU second, and how far the clocks found are from the true ones. Eight ranks share a host.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from tokenpath.capture.capture import Capture, build_table
from tokenpath.stitch.clocks import host_clocks
from tokenpath.stitch.collectives import match_collectives


def main() -> None:
    """Make the parts, time both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--collectives", type=int, default=250)
    chosen = parser.parse_args()
    ranks, num = chosen.ranks, chosen.collectives
    rng = np.random.default_rng(1)
    source = np.tile(np.arange(ranks, dtype=np.int32), num)
    sequence = np.repeat(np.arange(num), ranks)
    host = np.arange(ranks) // 8
    offset = rng.integers(-(10**7), 10**7, host.max() + 1)
    offset[0] = 0
    end = 10**15 + sequence * 10**7 + rng.integers(0, 1000, ranks * num) + offset[host[source]]
    same = {"path": "f", "format": "x", "clock": "epoch", "state": "synthetic"}
    zeros = ("reader_version", "num_bytes", "clock_offset_ns", "num_events", "num_skipped")
    sources: dict[str, list[object]] = {name: [value] * ranks for name, value in same.items()}
    sources |= {name: [0] * ranks for name in zeros}
    sources["host"] = [f"host-{number}" for number in host]
    parts = {
        "source_id": source,
        "op": ["allreduce"] * (ranks * num),
        "group": ["0"] * (ranks * num),
        "group_size": np.full(ranks * num, ranks, np.int32),
        "sequence": sequence,
        "start_ns": end - 1000,
        "end_ns": end,
    }
    capture = Capture(
        {"source": build_table("source", sources), "collective": build_table("collective", parts)}
    )
    began = time.process_time()
    matched = match_collectives(capture)
    matching = time.process_time() - began
    clocks = host_clocks(matched)
    aligning = time.process_time() - began - matching
    away = max(abs(clock.offset_ns - int(offset[clock.sources[0] // 8])) for clock in clocks)
    print(f"{ranks * num:,} parts of {ranks:,} ranks on {len(clocks)} hosts")
    print(
        f"matching {ranks * num / matching:,.0f} parts/CPU-s, clocks {ranks * num / aligning:,.0f}"
    )
    print(f"largest error of a clock: {away} ns of offsets up to 10 ms")


if __name__ == "__main__":
    main()
