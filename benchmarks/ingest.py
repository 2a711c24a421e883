"""What reading and explaining a large trace costs, beside its peers and beside the least possible.

    python benchmarks/ingest.py [--trace TRACE] [--cache FOLDER] [--sizes 300 1500] [--runs 3] [--no-peers]

One trace is repeated to each size (`replicate.py`). Peers run in environments of their own under the
cache folder, on the same file, in turn with ours. CPU seconds are user and system time of the whole
process, imports included; memory is anonymous memory (RssAnon), imports included. Machines are noisy:
quote the ratios, and the spread beside them.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from measure import Figures, in_turn, run
from replicate import replicate

HERE = Path(__file__).resolve().parent
DRIVERS = HERE / "drivers"
PEERS = {
    "HolisticTraceAnalysis": ("HolisticTraceAnalysis==0.5.0", "run_hta.py"),
    "msgspec, typed decode": ("msgspec==0.20.0", "typed_msgspec.py"),
}
MB = 1_000_000


def main() -> None:
    options = arguments()
    cache: Path = options.cache
    cache.mkdir(parents=True, exist_ok=True)
    trace = options.trace or default_trace(cache)
    print(f"trace: {trace.name}\n")
    figures = {}
    for size in options.sizes:
        path = big_trace(trace, cache, size * MB)
        figures[size] = compare(path, options, with_peers=not options.no_peers and size <= 400)
    if len(options.sizes) > 1:
        linearity(figures, cache, options.sizes)
    workers(big_trace(trace, cache, max(options.sizes) * MB), options.runs)
    packed(big_trace(trace, cache, options.sizes[0] * MB), options.runs)
    cold_start(trace, cache)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, help="the trace to repeat")
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "tokenpath-bench"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[300], metavar="MB")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-peers", action="store_true")
    return parser.parse_args()


def default_trace(cache: Path) -> Path:
    """A real trace of the reference data, else the generated one of the demo."""
    if folder := os.environ.get("TOKENPATH_REFERENCE_DATA"):
        found = sorted((Path(folder) / "traces" / "vllm_tracemap").glob("*.json.gz"))
        if found:
            return found[0]
    path = cache / "synthetic.json"
    generator = HERE.parent / "examples" / "synthetic_gpu_trace.py"
    subprocess.run([sys.executable, str(generator), str(path)], check=True)
    return path


def big_trace(trace: Path, cache: Path, num_bytes: int) -> Path:
    """The trace repeated to about this size, made once."""
    path = cache / f"{trace.name.split('.')[0]}-{num_bytes // MB}MB.json"
    if not path.exists():
        once = len(gzip.decompress(trace.read_bytes())) if trace.suffix == ".gz" else 0
        once = once or trace.stat().st_size
        scratch = path.with_suffix(".part")
        replicate(trace, scratch, max(round(num_bytes / once), 1))
        scratch.rename(path)
    return path


def compare(path: Path, options: argparse.Namespace, *, with_peers: bool) -> Figures:
    """Print one table; the figures of ours."""
    commands = {
        "tokenpath explain --json": [
            sys.executable,
            "-m",
            "tokenpath",
            "explain",
            str(path),
            "--json",
        ],
        "tokenpath, reading alone": [sys.executable, str(DRIVERS / "ours_read.py"), str(path)],
        "every byte looked at once": [sys.executable, str(DRIVERS / "floor.py"), str(path)],
    }
    if with_peers:
        for name, (package, driver) in PEERS.items():
            python = environment(options.cache, package)
            commands[name] = [str(python), str(DRIVERS / driver), str(path)]
        commands["json.loads"] = [sys.executable, str(DRIVERS / "plain_json.py"), str(path)]
    size = path.stat().st_size
    run(commands["tokenpath explain --json"])
    found = in_turn(commands, options.runs)
    ours = found["tokenpath explain --json"]
    print(f"\n{size / MB:,.0f} MB of JSON, {options.runs} runs each")
    print(
        f"{'':28}{'CPU-s':>8}{'min..max':>16}{'wall s':>8}{'anon MB':>9}{'/ JSON':>8}{'CPU / ours':>12}"
    )
    for name, figure in found.items():
        cpu, low, high = figure.spread("cpu_s")
        memory = figure.median("peak_anonymous_bytes")
        print(
            f"{name:28}{cpu:8.2f}{f'{low:.2f}..{high:.2f}':>16}{figure.median('wall_s'):8.2f}"
            f"{memory / MB:9.0f}{memory / size:8.2f}{cpu / ours.median('cpu_s'):12.2f}"
        )
    print(flush=True)
    return ours


def linearity(figures: dict[int, Figures], cache: Path, sizes: list[int]) -> None:
    """CPU per byte of the largest over that of the smallest size, start-up taken off both."""
    idle = in_turn(
        {"start-up": [sys.executable, "-c", "import tokenpath.api, tokenpath.export.json"]}, 3
    )
    start = idle["start-up"].median("cpu_s")
    rates = {}
    for size in (min(sizes), max(sizes)):
        path = next(cache.glob(f"*-{size}MB.json"))
        rates[size] = (figures[size].median("cpu_s") - start) / path.stat().st_size
    ratio = rates[max(sizes)] / rates[min(sizes)]
    print(
        f"\ntime per byte at {max(sizes)} MB over {min(sizes)} MB: {ratio:.2f} (start-up {start:.2f} s taken off)\n"
    )


def workers(path: Path, runs: int) -> None:
    """Wall on two cores over wall on one, whole processes."""
    command = [sys.executable, "-m", "tokenpath", "explain", str(path), "--json"]
    found = in_turn({"one core": ["taskset", "-c", "0", *command], "two cores": command}, runs)
    one, two = (found[name].median("wall_s") for name in ("one core", "two cores"))
    print(f"\nwall on two cores over one: {two / one:.2f} ({two:.2f} s over {one:.2f} s)\n")


def packed(path: Path, runs: int) -> None:
    """Reading a .gz over inflating it."""
    zipped = path.with_suffix(".json.gz")
    if not zipped.exists():
        with path.open("rb") as source, gzip.open(zipped, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target, 1 << 22)
    found = in_turn(
        {
            "inflate": [sys.executable, str(DRIVERS / "floor.py"), str(zipped)],
            "read": [sys.executable, str(DRIVERS / "ours_read.py"), str(zipped)],
        },
        runs,
    )
    inflate, read = (found[name].median("wall_s") for name in ("inflate", "read"))
    print(
        f"\nfrom .gz: read-to-capture wall over inflating it: {read / inflate:.2f} ({read:.2f} s over {inflate:.2f} s)\n"
    )


def cold_start(trace: Path, cache: Path) -> None:
    """A first run on a small trace with nothing compiled yet."""
    small = cache / "small.json"
    data = gzip.decompress(trace.read_bytes()) if trace.suffix == ".gz" else trace.read_bytes()
    # Cut off after 1 MB: a truncated file, which is read as far as it goes.
    small.write_bytes(data[:MB])
    with tempfile.TemporaryDirectory() as empty:
        environment = {"TOKENPATH_CACHE_DIR": empty, "NUMBA_CACHE_DIR": empty}
        found = run(
            [sys.executable, "-m", "tokenpath", "explain", str(small), "--json"], environment
        )
    print(
        f"first run on 1 MB with an empty cache: {found.wall_s:.2f} s wall, {found.cpu_s:.2f} CPU-s"
    )


def environment(cache: Path, package: str) -> Path:
    """The Python of an environment that holds one peer, made once."""
    folder = cache / package.split("=")[0].lower()
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"  installing {package}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)
        (folder / "ready").touch()
    return python


if __name__ == "__main__":
    main()
