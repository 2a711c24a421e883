"""Generated GPU captures stripped of their annotations: the steps that structure shows are the true ones.

The generator was written before the rules and shares no code with them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tokenpath.ingest import read
from tokenpath.stitch import link
from tokenpath.stitch.inferred_steps import infer_steps
from tokenpath.stitch.steps import find_steps

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_steps_without_annotations(tmp_path: Path, seed: int) -> None:
    trace = tmp_path / "t.json.gz"
    generator = ROOT / "examples" / "synthetic_gpu_trace.py"
    subprocess.run([sys.executable, generator, trace, "--seed", str(seed)], check=True)
    capture = link(read([trace]))
    steps, found = find_steps(capture), infer_steps(capture, 0)
    assert found is not None
    begin = np.array(steps["start_ns"].to_pylist())
    assert len(found.start) == len(begin)
    calls = np.sort(capture.int64("op", "start_ns")[capture.ids("op", "parent_op_id") < 0])
    true, inferred = (np.searchsorted(start, calls, "right") for start in (begin, found.start))
    assert (true == inferred).mean() >= 0.98
