"""What `make demo` runs: explain a recorded, a synthetic and, where there is one, a real GPU trace.

    .venv/bin/python examples/demo.py [--out FOLDER]

Every part is one call of the command line; the command is printed before its output.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

import synthetic_gpu_trace

from tokenpath.cli.main import main as tokenpath

REPOSITORY = Path(__file__).resolve().parent.parent
RECORDED = REPOSITORY / "examples" / "data" / "cpu_transformer.json.gz"
SEED = 1


def explain(trace: Path, page: Path, *options: str) -> Path:
    """Run `tokenpath explain` on a trace; the page that it wrote. Ends the demo if that fails."""
    arguments = ["explain", os.path.relpath(trace), *options, "--html", os.path.relpath(page)]
    print(f"$ tokenpath {shlex.join(arguments)}\n", flush=True)
    if code := tokenpath(arguments):
        sys.exit(code)
    print(flush=True)
    return page


def heading(number: int, text: str) -> None:
    """The title of a part."""
    print(f"=== {number}. {text}\n", flush=True)


def real_trace() -> Path | None:
    """A trace of vLLM on a real H100, from the reference data, where that is present."""
    named = os.environ.get("TOKENPATH_REFERENCE_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    found = sorted((folder / "traces" / "vllm_tracemap").glob("*.json.gz"))
    return found[0] if found else None


def main() -> None:
    """All parts, then where the pages are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=REPOSITORY / "demo", help="for the pages; default: demo/"
    )
    out: Path = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    heading(1, "recorded: prefill and decode of a small transformer, torch.profiler on a CPU")
    print("No device in it, so nothing is claimed about one; the host table is what it supports.\n")
    pages = [explain(RECORDED, out / "cpu_transformer.html", "--details")]

    heading(2, "synthetic: an LLM server on an H100-like device, with faults put in on purpose")
    made = out / "synthetic_gpu.json.gz"
    truth = synthetic_gpu_trace.write(made, SEED)
    print(f"What was put in, and how much idle time it caused: {truth}\n")
    pages.append(explain(made, out / "synthetic_gpu.html"))

    real = real_trace()
    if real is None:
        heading(3, "real: left out, for there is no reference data (TOKENPATH_REFERENCE_DATA)")
    else:
        heading(3, "real: vLLM on an H100, one of four tensor-parallel ranks")
        print("The first file of this size on a machine compiles the reader: once, some seconds.\n")
        pages.append(explain(real, out / "vllm_h100.html"))

    print("Pages, each one self-contained file:")
    for page in pages:
        print(f"  {page}")
    print("\nNow your own:  .venv/bin/tokenpath explain TRACE.json.gz --html report.html")


if __name__ == "__main__":
    main()
