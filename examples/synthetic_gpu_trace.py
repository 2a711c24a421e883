"""Write a trace like those of torch.profiler on a GPU server - made up, and it says so - and the truth.

    python examples/synthetic_gpu_trace.py out/trace.json.gz            # and out/trace.truth.json

The trace shows an LLM server on one of two H100-like devices: decode steps from a graph, a prefill with
collectives on a stream of their own, and idle time that was injected for known reasons. It is marked as
synthetic, so every report about it is, too. The truth beside it says where the time went according
to the generator; the package never reads it, its tests compare the two. The same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from pathlib import Path

from synthetic_machine import COMMUNICATION_STREAM, COMPUTE_STREAM, COPY_STREAM, HostItem, Machine
from synthetic_server import NUM_RANKS, Server
from synthetic_truth import truth

BASE_TIME_NS = 1_767_225_600_000_000_000
"""`baseTimeNanoseconds`: times in the file count from here, as libkineto writes them."""
START_NS = 2_000_000
PID = 4242
CATEGORIES = {
    "compute": "kernel",
    "communication": "kernel",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
}


def header(seed: int) -> dict[str, object]:
    """What stands before the events."""
    return {
        "schemaVersion": 1,
        "tokenpath": {"state": "synthetic", "generator": "synthetic_gpu_trace.py", "seed": seed},
        "deviceProperties": [
            {
                "id": 0,
                "name": "NVIDIA H100 80GB HBM3",
                "totalGlobalMem": 85_018_279_936,
                "computeMajor": 9,
                "computeMinor": 0,
                "numSms": 132,
            }
        ],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": NUM_RANKS},
        "with_stack": 1,
        "trace_id": f"{seed:032X}",
    }


def microseconds(time_ns: int) -> str:
    """Decimal text, exact to the nanosecond."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def complete(
    category: str, name: str, pid: int, tid: int, item: tuple[int, int], args: object
) -> str:
    """A complete event (phase X); `item` is its start and end."""
    start, end = item[0] + START_NS, item[1] + START_NS
    return (
        f'{{"ph": "X", "cat": "{category}", "name": {json.dumps(name)}, "pid": {pid}, "tid": {tid}, '
        f'"ts": {microseconds(start)}, "dur": {microseconds(end - start)}, "args": {json.dumps(args)}}}'
    )


def arrow(phase: str, number: int, pid: int, tid: int, at_ns: int) -> str:
    """One end of the arrow from a launch to its kernel."""
    end = ', "bp": "e"' if phase == "f" else ""
    return (
        f'{{"ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, '
        f'"ts": {microseconds(at_ns + START_NS)}, "cat": "ac2g", "name": "ac2g"{end}}}'
    )


def metadata(kind: str, pid: int, tid: int, text: str) -> str:
    """The name of a process or thread."""
    key = "labels" if kind == "process_labels" else "name"
    fields = {"name": kind, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": {key: text}}
    return json.dumps(fields)


def host_event(item: HostItem) -> str:
    """An event of the host thread, or the device's view of an annotation or wait."""
    pid, tid = PID, PID
    args = item.args
    if item.category == "gpu_user_annotation":
        pid, tid = 0, COMPUTE_STREAM
    elif item.category == "cuda_sync":
        pid, tid = 0, int(str(args["stream"]))
    return complete(item.category, item.name, pid, tid, (item.start_ns, item.end_ns), args)


def events(machine: Machine) -> list[str]:
    """All events, in the order in which libkineto writes them: host, device, metadata."""
    lines = [host_event(item) for item in (*machine.items, *machine.waits)]
    calls = {
        item.args["correlation"]: item for item in machine.items if item.category == "cuda_runtime"
    }
    arrows_begun: set[int] = set()
    for work in machine.works:
        place: dict[str, object] = {"device": 0, "context": 1, "stream": work.stream}
        place["correlation"] = work.correlation
        if work.external is not None:
            place["External id"] = work.external
        span = (work.start_ns, work.end_ns)
        lines.append(
            complete(CATEGORIES[work.kind], work.name, 0, work.stream, span, place | work.args)
        )
        if work.correlation not in arrows_begun:
            arrows_begun.add(work.correlation)
            launch = calls[work.correlation].start_ns
            lines.append(arrow("s", work.correlation, PID, PID, launch))
        lines.append(arrow("f", work.correlation, 0, work.stream, work.start_ns))
    lines.append(metadata("process_name", PID, 0, "python3"))
    lines.append(metadata("process_labels", PID, 0, "CPU"))
    lines.append(metadata("thread_name", PID, PID, "EngineCore"))
    lines.append(metadata("process_name", 0, 0, "python3"))
    lines.append(metadata("process_labels", 0, 0, "GPU 0"))
    streams = (COMPUTE_STREAM, COMMUNICATION_STREAM, COPY_STREAM)
    return lines + [metadata("thread_name", 0, one, f"stream {one} ") for one in streams]


def simulate(seed: int) -> Machine:
    """Run the server on the machine."""
    machine = Machine(random.Random(seed))
    Server(machine).run()
    return machine


def trace_json(machine: Machine, seed: int) -> str:
    """The trace file."""
    head = "".join(f'\n  "{key}": {json.dumps(value)},' for key, value in header(seed).items())
    body = ",\n  ".join(events(machine))
    tail = (
        f'"traceName": "synthetic", "displayTimeUnit": "ms", "baseTimeNanoseconds": {BASE_TIME_NS}'
    )
    return f'{{{head}\n  "traceEvents": [\n  {body}\n  ],\n  {tail}\n}}\n'


def write(path: Path, seed: int) -> Path:
    """Write the trace and, beside it, the truth; the truth's path comes back."""
    machine = simulate(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = trace_json(machine, seed).encode()
    path.write_bytes(gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data)
    beside = path.with_name(path.name.removesuffix(".gz").removesuffix(".json") + ".truth.json")
    known = truth(machine, seed, BASE_TIME_NS + START_NS)
    beside.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return beside


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", type=Path, help="trace to write: NAME.json or NAME.json.gz")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    arguments = parser.parse_args()
    beside = write(arguments.path, arguments.seed)
    print(f"{arguments.path}\n{beside}")


if __name__ == "__main__":
    main()
