"""Run the command line: in this process, or as a user does in one of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ingest.traces import Trace
from tokenpath.cli.main import main

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"


@dataclass(frozen=True)
class Ran:
    """What a command left."""

    code: int
    """Exit code."""
    stdout: str
    """What it wrote."""
    stderr: str
    """What it complained about."""


def tokenpath(*arguments: str | Path, cwd: Path | None = None) -> Ran:
    """`tokenpath ARGUMENTS` in this process: what is raised here would be a traceback there."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        contextlib.chdir(cwd or Path.cwd()),
    ):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            # argparse ends by itself for --help and for what it refuses.
            code = end.code if isinstance(end.code, int) else 1
    return Ran(code, stdout.getvalue(), stderr.getvalue())


def process(*arguments: str | Path, cwd: Path | None = None) -> Ran:
    """`tokenpath ARGUMENTS` in a process of its own, nothing on a terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "tokenpath", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=50,
        cwd=cwd,
        check=False,
        env={key: value for key, value in os.environ.items() if key != "COLUMNS"},
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def small(steps: int = 4) -> Trace:
    """Steps of 100 us, each with a kernel from 10 to 80 us after its start."""
    trace = Trace()
    for number in range(steps):
        trace.range(f"ProfilerStep#{number}", 100 * number, 100)
        trace.launched(GEMM, launch_us=100 * number + 1, start_us=100 * number + 10, dur_us=70)
    return trace
