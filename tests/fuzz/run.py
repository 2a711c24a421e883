"""Reads and explains damaged traces: no crash, both scanners agree, losses are counted, sums close.

    python tests/fuzz/run.py --cases 100000 --seed 1 [--traces FOLDER]

A case is a seed, so every failure can be run again: `--cases 1 --seed N`. Some cases mutate the real
traces of --traces (or of TOKENPATH_REFERENCE_DATA), cut down to their first events.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from mutate import damage, random_trace

from ingest.compare import difference, reasons, rows
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import TokenpathError
from tokenpath.core.report import Funnel
from tokenpath.ingest import read

_REAL_BYTES = 60_000
_MAX_REAL_FILE_BYTES = 300_000
_EXPLAIN_EVERY = 5


def check(path: Path, *, explain: bool) -> str:
    """Read one file both ways and explain it; what became of it. AssertionError if a law is broken."""
    results: list[Capture | str] = []
    for scanner in ("slow", "fast"):
        try:
            results.append(read([path], scanner=scanner))
        except TokenpathError as error:
            results.append(f"{type(error).__name__}: {error.what}")
    slow, fast = results
    if isinstance(slow, str) or isinstance(fast, str):
        assert slow == fast, f"slow: {slow}, fast: {fast}"
        return "refused"
    assert difference(slow, fast) is None, difference(slow, fast)
    validate(slow)
    check_counts(slow)
    if explain:
        explain_it(path)
    return "damaged" if any(rows(slow, "skip", "lost")) else "whole"


def check_counts(capture: Capture) -> None:
    """Every event is in a table or counted; begins and ends, and counters, are several to a row."""
    (num_events,) = rows(capture, "source", "num_events")
    (num_skipped,) = rows(capture, "source", "num_skipped")
    tables = ("op", "frame", "api_call", "range", "kernel", "dependency", "memory_event")
    kept = sum(capture.num_rows(table) for table in tables)
    several = capture.num_rows("counter_sample") + capture.num_rows("kernel_counter")
    assert 0 <= num_skipped <= num_events
    assert kept + num_skipped <= num_events <= 2 * kept + several + num_skipped
    dropped = {"metadata", "flow arrow", "truncated", "malformed event", "not an object"}
    assert sum(n for reason, n in reasons(capture).items() if reason in dropped) <= num_skipped


def explain_it(path: Path) -> None:
    """Explain the file as a user would, and render the report."""
    from tokenpath.api import explain
    from tokenpath.export import json as as_json

    report = explain([path]).report
    as_json.render(report)
    if report.funnel is not None:
        assert_closes(report.funnel)


def assert_closes(funnel: Funnel) -> None:
    """The parts of each row add up to it."""
    for at, row in enumerate(funnel.rows):
        parts = []
        for below in funnel.rows[at + 1 :]:
            if below.depth <= row.depth:
                break
            if below.depth == row.depth + 1 and below.is_part:
                parts.append(below.duration_ns)
        assert not parts or sum(parts) == row.duration_ns, f"{row.key}: {parts}"


def real_heads(folder: Path | None) -> list[bytes]:
    """The first events of real traces, closed again."""
    heads = []
    for path in sorted(folder.rglob("*.json.gz")) if folder is not None else ():
        if path.stat().st_size > _MAX_REAL_FILE_BYTES:
            continue
        data = gzip.decompress(path.read_bytes())[:_REAL_BYTES]
        if b'"traceEvents"' in data and b"highres" not in data:
            heads.append(data[: data.rfind(b"},") + 1] + b"]}")
    return heads


def run(seeds: Sequence[int], folder: Path | None, scratch: Path) -> dict[str, int]:
    """Run a case a seed; how many ended how."""
    heads = real_heads(folder)
    outcomes: dict[str, int] = {}
    path = scratch / "case.json"
    for seed in seeds:
        random_ = random.Random(seed)
        is_real = bool(heads) and random_.random() < 0.1
        data = random_.choice(heads) if is_real else random_trace(random_)
        path.write_bytes(damage(data, random_))
        try:
            outcome = check(path, explain=seed % _EXPLAIN_EVERY == 0)
        except Exception as error:
            error.add_note(f"fuzz case: --cases 1 --seed {seed}, {path.stat().st_size} bytes")
            raise
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--traces", type=Path, default=os.environ.get("TOKENPATH_REFERENCE_DATA"))
    options = parser.parse_args()
    folder = Path(options.traces) if options.traces else None
    with tempfile.TemporaryDirectory() as scratch:
        done: dict[str, int] = {}
        for first in range(options.seed, options.seed + options.cases, 1000):
            last = min(first + 1000, options.seed + options.cases)
            for outcome, count in run(range(first, last), folder, Path(scratch)).items():
                done[outcome] = done.get(outcome, 0) + count
            print(f"{last - options.seed} cases: {done}", flush=True)


if __name__ == "__main__":
    main()
