"""Reads damaged inputs of every format: tables that keep their promises or one clear error, never a crash.

    python tests/fuzz/formats.py --cases 100000 --seed 1

A case is a seed, so every failure can be run again: `--cases 1 --seed N`.
"""

from __future__ import annotations

import argparse
import gzip
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ingest.compare import rows
from ingest.samples import Sample, all_samples
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import TokenpathError
from tokenpath.ingest import read
from tokenpath.stitch import link

_LINK_EVERY = 7
_PIECES = (
    b"",
    b"\0",
    b"\xff" * 9,
    b'"',
    b"}",
    b"]",
    b",",
    b"-",
    b"1e999",
    b"NaN",
    b"9" * 25,
    b"\\u",
)


def damage(data: bytes, random_: random.Random) -> bytes:
    """Cut, changed, doubled, moved or extended bytes; of packed data sometimes what is inside."""
    if data[:2] == b"\x1f\x8b" and random_.random() < 0.7:
        return gzip.compress(damage(gzip.decompress(data), random_), 1)
    wounded = bytearray(data)
    for _ in range(random_.randrange(1, 5)):
        if not wounded:
            break
        at = random_.randrange(len(wounded))
        size = random_.choice((0, 1, 2, 8, 64, 1024))
        match random_.randrange(6):
            case 0:
                del wounded[at:]
            case 1:
                wounded[at : at + size] = random_.randbytes(random_.choice((0, 1, 4, 16)))
            case 2:
                wounded[at:at] = wounded[at : at + size]
            case 3:
                other = random_.randrange(len(wounded))
                wounded[at : at + size] = wounded[other : other + size]
            case 4:
                wounded[at : at + random_.randrange(3)] = random_.choice(_PIECES)
            case _:
                wounded[at] ^= 1 << random_.randrange(8)
    return bytes(wounded)


def check(capture: Capture) -> None:
    """What holds of every capture, whatever the input was."""
    validate(capture)
    for num_events, num_skipped in rows(capture, "source", "num_events", "num_skipped"):
        assert num_skipped >= 0
        assert num_events >= 0
    assert all(count > 0 for count in rows(capture, "skip", "num_events"))


def run_case(seed: int, samples: Sequence[Sample]) -> str:
    """One damaged input; what became of it. AssertionError when a law is broken."""
    random_ = random.Random(seed)
    sample = random_.choice(samples)
    with tempfile.TemporaryDirectory() as folder:
        path = sample.build(Path(folder))
        files = (
            sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        )
        victim = random_.choice(files)
        victim.write_bytes(damage(victim.read_bytes(), random_))
        paths = [path]
        if random_.random() < 0.1 and not path.is_dir():
            # Beside a whole input of the same kind.
            other = path.with_name("other-" + path.name)
            shutil.copy(path, other)
            paths.append(other)
        try:
            capture = read(paths)
        except TokenpathError:
            return "refused"
        check(capture)
        if seed % _LINK_EVERY == 0:
            validate(link(capture))
        return "damaged" if any(rows(capture, "skip", "lost")) else "whole"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases; exit code 1 and the seed when one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    samples, outcomes = all_samples(), Counter[str]()
    for seed in range(chosen.seed, chosen.seed + chosen.cases):
        try:
            outcomes[run_case(seed, samples)] += 1
        except BaseException:
            print(f"failed: --cases 1 --seed {seed}", file=sys.stderr)
            raise
    print(", ".join(f"{count:,} {name}" for name, count in outcomes.most_common()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
