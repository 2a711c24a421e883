"""Make a large trace of a real one: repeat its events, each copy later and with ids of its own.

    python benchmarks/replicate.py TRACE OUT --copies 7

Metadata events are kept once. `ts` is shifted by the span of the trace plus 1 ms a copy; `correlation`,
`External id`, `Python id`, `Python parent id` and the `id` of flow arrows are offset, so that copies
stay distinct. The text is changed in place: the copies look as the profiler wrote them.
"""

from __future__ import annotations

import argparse
import gzip
import re
from decimal import Decimal
from pathlib import Path

_TS = re.compile(rb'("ts":\s*)(-?\d+(?:\.\d+)?)')
_IDS = re.compile(
    rb'("(?:correlation|External id|external id|Python id|Python parent id)":\s*)(\d+)'
)
_FLOW_ID = re.compile(rb'("id":\s*)(\d+)')
_PHASE = re.compile(rb'"ph":\s*"(.)"')
_DUR = re.compile(rb'"dur":\s*(\d+(?:\.\d+)?)')


def replicate(trace: Path, out: Path, copies: int) -> int:
    """Write the large trace; the number of bytes written."""
    data = trace.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    start = data.index(b"[", data.index(b'"traceEvents"')) + 1
    events, end = _split_events(data, start)
    kept = [e for e in events if _phase(e) != b"M"]
    times = [Decimal(_TS.search(e)[2].decode()) for e in kept if _phase(e) == b"X"]  # type: ignore[index]
    longest = max(Decimal(m[1].decode()) for e in kept if (m := _DUR.search(e)))
    span = max(times) - min(times) + longest + 1000
    top = 1 + max(int(m[2]) for e in kept for m in _IDS.finditer(e))
    with out.open("wb") as file:
        file.write(data[:start])
        for number, event in enumerate(events):
            file.write((b"," if number else b"") + event)
        for copy in range(1, copies):
            for event in kept:
                file.write(b"," + _shifted(event, span * copy, top * copy))
        file.write(data[end:])
        return file.tell()


def _shifted(event: bytes, by_us: Decimal, by_id: int) -> bytes:
    event = _TS.sub(lambda m: m[1] + str(Decimal(m[2].decode()) + by_us).encode(), event)
    event = _IDS.sub(lambda m: m[1] + str(int(m[2]) + by_id).encode(), event)
    if _phase(event) in (b"s", b"t", b"f"):
        event = _FLOW_ID.sub(lambda m: m[1] + str(int(m[2]) + by_id).encode(), event)
    return event


def _phase(event: bytes) -> bytes:
    match = _PHASE.search(event)
    return match[1] if match else b""


def _split_events(data: bytes, at: int) -> tuple[list[bytes], int]:
    """The text of each event with the white space before it, and where the list's bracket is."""
    tokens = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}]')
    events, depth, start = [], 0, at
    for match in tokens.finditer(data, at):
        char = match[0][:1]
        if char in b"{[":
            depth += 1
        elif char in b"}]":
            if depth == 0:
                return events, match.start()
            depth -= 1
            if depth == 0:
                events.append(data[start : match.end()].lstrip(b","))
                start = match.end()
    raise SystemExit("the list of events has no end")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--copies", type=int, default=7)
    options = parser.parse_args()
    print(replicate(options.trace, options.out, options.copies), "bytes")


if __name__ == "__main__":
    main()
