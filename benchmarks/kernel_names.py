"""CPU time of classifying 10,000 distinct kernel names, about 340 characters each, best of five.

    python benchmarks/kernel_names.py

The names are those of the answer keys with made-up template arguments, so that no memo knows them.
"""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

from tokenpath.core.kernel_names import classify_many

KEYS = sorted((Path(__file__).parent.parent / "tests" / "core").glob("kernel_names_exam*.toml"))
NUM_NAMES, LENGTH = 10_000, 340
FILLER = ", ".join(["cute::tuple<cute::C<128>, cute::C<64> >"] * 8)


def main() -> None:
    known = [
        case["name"]
        for path in KEYS
        for case in tomllib.loads(path.read_text(encoding="utf-8"))["cases"]
        if "<" in case["name"]
    ]
    classify_many(["warm"])
    runs = []
    for number in range(5):
        names = []
        for index in range(NUM_NAMES):
            front, _, back = known[index % len(known)].partition("<")
            name = f"{front}<{back[:150].rstrip('>()')}, (Step){index}{number}, {FILLER}"
            names.append(name[:LENGTH])
        start = time.process_time()
        classify_many(names)
        runs.append(time.process_time() - start)
    print(f"{NUM_NAMES:,} names: {min(runs):.3f} CPU-s at best, {max(runs):.3f} at worst")


if __name__ == "__main__":
    main()
