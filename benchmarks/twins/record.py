"""Record the real pairs with torch.profiler: `python benchmarks/twins/record.py --to FOLDER [--only NAME]`.

Needs PyTorch (CPU), which is no dependency of the package. One process a recording, so that no recording sees
another's caches; paths and the host's name are cut out before a file is kept.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
NUM_WARM_UP, NUM_STEPS = 3, 12
WITHOUT_STACKS = {"recompilation"}
"""Twins whose Python frames would be megabytes: the compiler's own."""
FIRST_COUNTS = {"warm-up"}
"""Twins whose first steps belong to the recording."""


def record_one(name: str, is_faulty: bool, to: Path) -> None:
    """Record this process's part of a run into `to`, and the wall time of the same steps unprofiled."""
    import torch
    import torch.distributed as dist
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, profile, record_function
    from twins.programs import PROGRAMS
    from twins.ranks import RANK_PROGRAMS

    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(1)
    if size > 1:
        dist.init_process_group("gloo", rank=rank, world_size=size)
    program = (PROGRAMS | RANK_PROGRAMS)[name](is_faulty)
    step = next(program)
    if name not in FIRST_COUNTS:
        for number in range(NUM_WARM_UP):
            step(number)
    begin = time.perf_counter_ns()
    if name not in FIRST_COUNTS:
        for number in range(NUM_WARM_UP, NUM_WARM_UP + NUM_STEPS):
            step(number)
    unprofiled_ns = time.perf_counter_ns() - begin
    if size > 1:
        dist.barrier()
    options = _ExperimentalConfig(record_python_gc_info=True)
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        with_stack=size == 1 and name not in WITHOUT_STACKS,
        experimental_config=options,
    ) as profiler:
        for number in range(NUM_STEPS):
            with record_function(f"ProfilerStep#{number}"):
                step(number + NUM_WARM_UP + NUM_STEPS)
    next(program, None)
    profiler.export_chrome_trace(str(to))
    to.with_suffix(".ns").write_text(str(unprofiled_ns), encoding="utf-8")
    if size > 1:
        dist.destroy_process_group()


def scrubbed(text: str) -> str:
    """The trace without folders, host name and process environment."""
    text = text.replace(socket.gethostname(), "host-1")
    text = re.sub(r"/(?:[\w.+-]+/)+(?=[\w.+-]+\.py)", "", text)
    events = json.loads(text)
    for key in ("traceName", "hostName"):
        events.pop(key, None)
    return json.dumps(events, separators=(",", ":"))


def record_pair(name: str, num_ranks: int, to: Path) -> dict[str, object]:
    """Record both sides; the unprofiled wall times, ns."""
    walls: dict[str, object] = {}
    for state in ("healthy", "faulty"):
        with tempfile.TemporaryDirectory() as folder:
            port = str(20_000 + os.getpid() % 20_000)
            children = []
            for rank in range(num_ranks):
                environment = os.environ | {
                    "PYTHONPATH": str(HERE.parent), "RANK": str(rank), "WORLD_SIZE": str(num_ranks),
                    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1",
                }  # fmt: skip
                path = Path(folder, f"{rank}.json")
                command = [sys.executable, __file__, "--child", name, state, str(path)]
                children.append(subprocess.Popen(command, env=environment))
            if any(child.wait(timeout=600) for child in children):
                raise SystemExit(f"recording {name} ({state}) failed")
            walls[state] = int(Path(folder, "0.ns").read_text(encoding="utf-8"))
            for rank in range(num_ranks):
                text = scrubbed(Path(folder, f"{rank}.json").read_text(encoding="utf-8"))
                suffix = "" if num_ranks == 1 else f"-rank{rank}"
                out = to / f"{name}-{state}{suffix}.json.gz"
                with gzip.GzipFile(out, "wb", compresslevel=9, mtime=0) as file:
                    file.write(text.encode())
    return walls


def main() -> None:
    """Record the pairs that the command line names, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--child", nargs=3)
    arguments = parser.parse_args()
    if arguments.child:
        name, state, path = arguments.child
        record_one(name, state == "faulty", Path(path))
        return
    twins = tomllib.loads((HERE / "twins.toml").read_text(encoding="utf-8"))
    arguments.to.mkdir(parents=True, exist_ok=True)
    for name, twin in twins.items():
        if arguments.only and name not in arguments.only:
            continue
        walls = record_pair(name, twin.get("num_ranks", 1), arguments.to)
        print(
            f"{name:20} unprofiled healthy {walls['healthy']} ns, faulty {walls['faulty']} ns",
            flush=True,
        )
        path = arguments.to / "walls.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(kept | {name: walls}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
