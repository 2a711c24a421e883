"""What reading does not load: small traces never pay for the compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ingest.traces import Trace

_READ = """
import sys
from pathlib import Path
from tokenpath.ingest import read
read([Path(sys.argv[1])], scanner=sys.argv[2])
heavy = ("numba", "llvmlite", "pyarrow.compute", "pyarrow.parquet", "pandas", "isal", "zstandard")
print(" ".join(name for name in heavy if name in sys.modules))
"""


def loaded(path: Path, scanner: str) -> set[str]:
    command = [sys.executable, "-c", _READ, str(path), scanner]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_a_small_trace_loads_no_compiler(tmp_path: Path) -> None:
    path = Trace(rank=0).launched("k", launch_us=1, start_us=2, dur_us=3).write(tmp_path / "t.json")
    assert loaded(path, "auto") == set()


def test_the_compiled_scanner_needs_no_numba_once_it_is_kept(tmp_path: Path) -> None:
    path = Trace(rank=0).launched("k", launch_us=1, start_us=2, dur_us=3).write(tmp_path / "t.json")
    loaded(path, "fast")
    assert loaded(path, "fast") == {"llvmlite"}
