"""How many scheduler steps a second are read from a step log and from forward-pass metrics.

    python benchmarks/steps.py [--steps 200000] [--runs 5] [--requests 1 2 4 8 16]

Inputs are generated: decode steps of so many requests, one of which ends and is replaced every 100 steps.
Rates are CPU seconds of this process (wall beside them: machines are noisy), imports left out; the first
run, which loads the compiled code, is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.fpm.reader import FpmReader
from tokenpath.ingest.reader import Options
from tokenpath.ingest.vllm_steps.reader import VllmStepsReader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for requests in options.requests:
            path = Path(folder) / "b.steps.jsonl"
            with path.open("w") as file:
                file.writelines(step_log(options.steps, requests))
            measure(f"step log, {requests} requests a step", path, options.runs, read_steps)
        path = Path(folder) / "b.fpm.msgpack"
        path.write_bytes(b"".join(metrics(number) for number in range(options.steps)))
        measure("forward-pass metrics", path, options.runs, read_metrics)


def step_log(num_steps: int, num_requests: int) -> Iterator[str]:
    yield '{"ev":"config","vllm":"0.32.0","num_blocks":1024,"run":"b"}\n'
    first, computed = 0, [64] * num_requests
    for number in range(num_requests):
        yield f'{{"ev":"add","t_us":{number},"req":"b-{number:05}","prompt":64,"max_tokens":900}}\n'
    for step in range(num_steps):
        at = 100 + 8_000 * step
        if step % 100 == 99:
            new = first + num_requests
            yield f'{{"ev":"add","t_us":{at - 9},"req":"b-{new:05}","prompt":64,"max_tokens":900}}\n'
            first, computed = first + 1, [*computed[1:], 0]
        shares = [
            f'["b-{first + number:05}","{"run" if done else "new"}",{done},{1 if done else 64},1]'
            for number, done in enumerate(computed)
        ]
        yield (
            f'{{"ev":"step","step":{step},"t_us":{at},"sched_us":117,"exec_t_us":{at + 328},'
            f'"exec_us":6646,"exec_cpu_us":6631,"exec_rqwait_us":184,"sample_us":330,'
            f'"out_t_us":{at + 7000},"update_us":48,"tokens":{num_requests},"reqs":[{",".join(shares)}],'
            f'"running":{num_requests},"waiting":0,"free_blocks":152,"kv_usage":0.044025}}\n'
        )
        computed = [done + 1 if done else 64 for done in computed]


def metrics(number: int) -> bytes:
    """A message as msgspec writes it: maps, names of keys in full."""
    scheduled = {
        "num_prefill_requests": 1, "sum_prefill_tokens": 500, "var_prefill_length": 0.5,
        "sum_prefill_kv_tokens": 70, "num_decode_requests": 90, "sum_decode_kv_tokens": 100_000,
        "var_decode_kv_tokens": 0.5,
    }  # fmt: skip
    queued = {key: value for key, value in scheduled.items() if key != "sum_prefill_kv_tokens"}
    message = {
        "version": 1, "worker_id": "worker-1", "dp_rank": 0, "counter_id": number, "wall_time": 0.01,
        "scheduled_requests": scheduled, "queued_requests": queued,
    }  # fmt: skip
    return pack(message)


def pack(value: object) -> bytes:
    """MessagePack of what a message holds."""
    if isinstance(value, dict):
        items = b"".join(pack(key) + pack(item) for key, item in value.items())
        return bytes([0x80 + len(value)]) + items
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, int):
        return bytes([value]) if value < 128 else b"\xce" + struct.pack(">I", value)
    text = str(value).encode()
    return bytes([0xA0 + len(text)]) + text


def read_metrics(path: Path) -> Capture:
    return FpmReader().read([path], Options())


def read_steps(path: Path) -> Capture:
    return VllmStepsReader().read([path], Options())


def measure(what: str, path: Path, runs: int, read: Callable[[Path], Capture]) -> None:
    """Print the rate of steps: median and range."""
    cpu, wall, num_steps = [], [], 0
    for number in range(runs + 1):
        cpu_before, before = time.process_time(), time.perf_counter()
        num_steps = read(path).num_rows("step")
        if number:
            cpu.append(num_steps / (time.process_time() - cpu_before))
            wall.append(num_steps / (time.perf_counter() - before))
    size = path.stat().st_size / num_steps
    print(
        f"{what} ({size:.0f} bytes a step): {statistics.median(cpu):,.0f} steps a CPU second"
        f" ({min(cpu):,.0f} to {max(cpu):,.0f}); wall {statistics.median(wall):,.0f}"
        f" ({min(wall):,.0f} to {max(wall):,.0f})",
        flush=True,
    )


if __name__ == "__main__":
    main()
