"""`make demo`: runs without reference data, says what is real and what is not, writes its pages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
ROOT = Path(__file__).resolve().parents[2]


def demo(out: Path, reference_data: Path) -> str:
    """What the demo prints."""
    environment = os.environ | {"TOKENPATH_REFERENCE_DATA": str(reference_data)}
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--out", str(out)]
    done = subprocess.run(
        command, env=environment, cwd=out.parent, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_without_reference_data(tmp_path: Path) -> None:
    out, nothing = tmp_path / "demo", tmp_path / "nothing"
    nothing.mkdir()
    printed = demo(out, nothing)
    assert len(re.findall(r"^\$ tokenpath explain ", printed, re.MULTILINE)) == 2
    assert "SYNTHETIC: the input was generated" in printed
    assert "3. real: left out" in printed
    pages = [Path(line.strip()) for line in printed.splitlines() if line.startswith("  /")]
    assert pages == [out / "cpu_transformer.html", out / "synthetic_gpu.html"]
    for page in pages:
        assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "synthetic" in pages[1].read_text(encoding="utf-8").lower()


def test_with_reference_data(tmp_path: Path, reference_data: Path) -> None:
    printed = demo(tmp_path / "demo", reference_data)
    assert len(re.findall(r"^\$ tokenpath explain ", printed, re.MULTILINE)) == 3
    assert "NVIDIA H100 80GB HBM3 · 261.90 ms" in printed
    assert (tmp_path / "demo" / "vllm_h100.html").stat().st_size > 10_000
