"""Run a command and account for it as the operating system does: CPU seconds, wall, anonymous memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_S = 0.01
"""How often the memory of a running command is looked at."""


@dataclass(frozen=True)
class Run:
    """One finished run."""

    cpu_s: float
    """User and system time of the process and its children."""
    wall_s: float
    """From start to end."""
    peak_anonymous_bytes: int
    """Highest RssAnon seen: memory that no file backs, imports included."""


@dataclass(frozen=True)
class Figures:
    """Several runs of one command."""

    runs: Sequence[Run]
    """In the order in which they ran."""

    def spread(self, name: str) -> tuple[float, float, float]:
        """Median, minimum and maximum of a field."""
        values = [getattr(run, name) for run in self.runs]
        return statistics.median(values), min(values), max(values)

    def median(self, name: str) -> float:
        """Median of a field."""
        return self.spread(name)[0]


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Run:
    """Run a command whose output does not matter; SystemExit with its error output if it fails."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # An installed package comes with its bytecode; so may this one, wherever it is run from.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **(environment or {})},
    )
    peak = [0]
    watcher = threading.Thread(target=_watch, args=(process.pid, peak))
    watcher.start()
    errors = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{errors.decode(errors='replace')[-2000:]}")
    return Run(usage.ru_utime + usage.ru_stime, wall, peak[0])


def _watch(pid: int, peak: list[int]) -> None:
    status = Path(f"/proc/{pid}/status")
    while True:
        try:
            text = status.read_text()
        except OSError:
            return
        line = next((line for line in text.splitlines() if line.startswith("RssAnon")), None)
        if line is None:
            return
        peak[0] = max(peak[0], int(line.split()[1]) * 1024)
        time.sleep(SAMPLE_S)


def in_turn(commands: Mapping[str, Sequence[str]], runs: int) -> dict[str, Figures]:
    """Run all commands in turn, several rounds, so that a slow phase of the machine hits all alike."""
    done: dict[str, list[Run]] = {name: [] for name in commands}
    for number in range(runs):
        for name, command in commands.items():
            print(f"  round {number + 1} of {runs}: {name}", flush=True)
            done[name].append(run(command))
    return {name: Figures(found) for name, found in done.items()}
