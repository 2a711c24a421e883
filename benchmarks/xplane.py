"""How many megabytes and events of an XLA profile are read a second.

    python benchmarks/xplane.py [PROFILE.xplane.pb ...] [--megabytes 200] [--runs 5]

The events of each profile are repeated, each time later by the length of their timeline, until the file has
the size; without a profile one GPU with kernels and their launches is made up. Rates are CPU seconds of this
process (wall beside them: machines are noisy), imports left out; the first run, which loads the compiled
code, is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tokenpath.ingest.reader import Options
from tokenpath.ingest.wire import BYTES, fields
from tokenpath.ingest.xla.reader import XplaneReader

MB = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profiles", type=Path, nargs="*")
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    inputs = [(path.name, path.read_bytes()) for path in options.profiles] or [
        ("made up", made_up())
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, data in inputs:
            path = Path(folder) / "big.xplane.pb"
            path.write_bytes(grown(data, options.megabytes * MB))
            measure(name, path, options.runs)


def measure(name: str, path: Path, runs: int) -> None:
    reader, size = XplaneReader(), path.stat().st_size
    rates, events, walls = [], [], []
    for run in range(runs + 1):
        cpu, wall = time.process_time(), time.perf_counter()
        capture = reader.read([path], Options())
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        if run:
            rates.append(size / MB / cpu)
            events.append(capture["source"]["num_events"][0].as_py() / 1e6 / cpu)
            walls.append(size / MB / wall)
    print(
        f"{name}: {size / MB:.0f} MB, {spread(rates)} MB/s and {spread(events)} M events/s of CPU, "
        f"{spread(walls)} MB/s of wall"
    )


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def varint(value: int) -> bytes:
    out = bytearray()
    value &= 2**64 - 1
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def put(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def grown(data: bytes, num_bytes: int) -> bytes:
    """The profile with the events of each line repeated."""
    times = max(1, num_bytes // sum(len(event) for event in events_of(data)))
    out = bytearray()
    for number, kind, value in fields(data):
        if kind != BYTES:
            out += put(number, value)
        elif number == 1:
            plane = bytearray()
            for inner, inner_kind, part in fields(data, value):
                raw = data[part] if inner_kind == BYTES else part
                plane += put(inner, repeated(raw, times) if inner == 3 else raw)
            out += put(1, bytes(plane))
        else:
            out += put(number, data[value])
    return bytes(out)


def events_of(data: bytes) -> list[bytes]:
    lines = [
        data[part]
        for number, kind, value in fields(data)
        if number == 1 and kind == BYTES
        for inner, _, part in fields(data, value)
        if inner == 3
    ]
    return [line[value] for line in lines for number, _, value in fields(line) if number == 4]


def repeated(line: bytes, times: int) -> bytes:
    head, events = bytearray(), []
    for number, kind, value in fields(line):
        if number == 4:
            numbers = {key: part for key, what, part in fields(line, value) if what != BYTES}
            stats = b"".join(
                put(key, line[part]) for key, what, part in fields(line, value) if what == BYTES
            )
            events.append((numbers.get(1, 0), numbers.get(2, 0), numbers.get(3, 0), stats))
        else:
            head += put(number, line[value] if kind == BYTES else value)
    length = max((start + duration for _, start, duration, _ in events), default=0)
    out = [bytes(head)]
    for copy in range(times):
        for name, start, duration, stats in events:
            event = put(1, name) + put(2, start + copy * length) + put(3, duration) + stats
            out.append(put(4, event))
    return b"".join(out)


def made_up(num_kernels: int = 2_000) -> bytes:
    names = [
        "kernel_details",
        "correlation_id",
        "regs:32 grid:4,2,1 block:128,1,1",
        "hlo_op",
        "dot.1",
    ]
    stats = b"".join(
        put(5, put(1, number) + put(2, put(1, number) + put(2, name.encode())))
        for number, name in enumerate(names, 1)
    )
    kinds = b"".join(
        put(4, put(1, number) + put(2, put(1, number) + put(2, f"kernel_{number}".encode())))
        for number in range(1, 101)
    )
    kernels, calls = [], []
    for number in range(num_kernels):
        own = put(4, put(1, 2) + put(3, number)) + put(4, put(1, 1) + put(7, 3))
        own += put(4, put(1, 4) + put(7, 5))
        kernels.append(
            put(1, number % 100 + 1) + put(2, number * 9_000_000) + put(3, 7_500_000) + own
        )
        call = put(1, 1) + put(2, number * 9_000_000) + put(3, 2_500_000)
        calls.append(call + put(4, put(1, 2) + put(3, number)))
    planes = []
    for plane, line, events in (
        ("/device:GPU:0", "Stream #7(Compute)", kernels),
        ("/host:CPU", "python", calls),
    ):
        body = put(1, 7) + put(2, line.encode()) + b"".join(put(4, event) for event in events)
        planes.append(put(1, put(2, plane.encode()) + put(3, body) + kinds + stats))
    return b"".join(planes)


if __name__ == "__main__":
    main()
