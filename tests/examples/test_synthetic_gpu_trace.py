"""`explain` against the truth of a generator that shares no code with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import pytest

from tokenpath.api.explain import Explained, explain
from tokenpath.core.finding import Status
from tokenpath.explain.causes import CAUSE_NUMBER, CAUSES

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = ROOT / "examples" / "synthetic_gpu_trace.py"
SEEDS = (1, 2, 3)


class Truth(TypedDict):
    """The file beside the trace."""

    first_work_ns: int
    idle_ns_by_injection: dict[str, dict[str, int]]
    gaps: list[tuple[int, int, str, str | None]]


@dataclass(frozen=True)
class Case:
    """One generated trace."""

    trace: Path
    truth: Truth
    totals_ns: dict[str, int]
    explained: Explained

    def found(self) -> dict[tuple[int, int], str]:
        """Cause of every gap that explain found, by its start and end after the first work."""
        gaps, origin = self.explained.analysis.devices[0].gaps, self.truth["first_work_ns"]
        return {
            (int(start) - origin, int(end) - origin): CAUSES[cause].key
            for start, end, cause in zip(gaps.start, gaps.end, gaps.cause, strict=True)
        }


def generate(path: Path, seed: int) -> Path:
    """Run the generator as a user does."""
    command = [sys.executable, str(GENERATOR), str(path), "--seed", str(seed)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.fixture(scope="module", params=SEEDS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    seed = int(request.param)
    trace = generate(tmp_path_factory.mktemp("synthetic") / f"seed{seed}.json.gz", seed)
    truth = json.loads(trace.with_name(f"seed{seed}.truth.json").read_text(encoding="utf-8"))
    totals = {key: value for key, value in truth.items() if key.endswith("_ns")}
    return Case(trace, truth, totals, explain([trace]))


def test_the_report_says_synthetic(case: Case) -> None:
    report = case.explained.report
    assert report.state == "synthetic"
    assert "SYNTHETIC" in report.headline
    assert {finding.status for finding in report.findings} == {Status.SYNTHETIC}


def test_busy_idle_and_exposed_time_are_exact(case: Case) -> None:
    (device,) = case.explained.analysis.devices
    split, truth = device.funnel.split, case.totals_ns
    assert {
        "span_ns": split.wall_ns,
        "busy_ns": split.busy_ns,
        "idle_ns": split.idle_ns,
        "compute_ns": split.compute.total,
        "communication_ns": split.communication_ns,
        "exposed_communication_ns": split.exposed_communication.total,
        "memcpy_ns": split.memcpy_ns,
        "exposed_memcpy_ns": split.exposed_memcpy.total,
    } == {key: truth[key] for key in truth if key != "first_work_ns"}
    assert (device.whole.span_ns, device.whole_busy_ns) == (truth["span_ns"], truth["busy_ns"])


def test_the_case_is_worth_it(case: Case) -> None:
    """Overlap, exposure and idle time are all there, and most idle time was injected."""
    truth = case.totals_ns
    assert 0 < truth["exposed_communication_ns"] < truth["communication_ns"]
    injected = sum(sum(one.values()) for one in case.truth["idle_ns_by_injection"].values())
    assert injected > 0.5 * truth["idle_ns"] > 0.1 * truth["span_ns"]
    kinds = {cause for causes in case.truth["idle_ns_by_injection"].values() for cause in causes}
    assert kinds >= {
        "host_python",
        "host_op",
        "host_wait",
        "host_allocator",
        "host_synchronize",
        "host_memcpy",
        "event_wait",
    }
    assert {gap[2] for gap in case.truth["gaps"]} <= set(CAUSE_NUMBER)


def test_every_gap_is_found_to_the_nanosecond(case: Case) -> None:
    assert set(case.found()) == {(start, end) for start, end, _, _ in case.truth["gaps"]}


@pytest.mark.parametrize("what", ["all gaps", "injected gaps"])
def test_95_percent_of_idle_time_has_the_right_cause(case: Case, what: str) -> None:
    found = case.found()
    by_verdict: Counter[bool] = Counter()
    wrong: Counter[tuple[str, str]] = Counter()
    for start, end, cause, injection in case.truth["gaps"]:
        if injection is None and what == "injected gaps":
            continue
        is_right = found[start, end] == cause
        by_verdict[is_right] += end - start
        if not is_right:
            wrong[cause, found[start, end]] += end - start
    assert by_verdict[True] >= 0.95 * by_verdict.total(), wrong.most_common()


def test_every_injected_fault_gets_its_cause(case: Case) -> None:
    """Each by itself, so that a large one hides no small one."""
    found = case.found()
    for injection, causes in case.truth["idle_ns_by_injection"].items():
        got: Counter[str] = Counter()
        for start, end, _, name in case.truth["gaps"]:
            if name == injection:
                got[found[start, end]] += end - start
        assert got.total() == sum(causes.values())
        agreed = sum(min(got[cause], length) for cause, length in causes.items())
        assert agreed >= 0.95 * got.total(), (injection, causes, got)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, case: Case) -> None:
    seed = int(case.trace.name.removeprefix("seed").removesuffix(".json.gz"))
    again = generate(tmp_path / case.trace.name, seed)
    assert again.read_bytes() == case.trace.read_bytes()
    assert generate(tmp_path / "other.json.gz", seed + 1).read_bytes() != again.read_bytes()


def test_the_package_never_reads_the_truth() -> None:
    sources = list((ROOT / "src").rglob("*.py"))
    assert sources
    assert not [path for path in sources if "truth.json" in path.read_text(encoding="utf-8")]


def test_the_generator_knows_nothing_of_the_package() -> None:
    for path in (ROOT / "examples").glob("synthetic_*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert not [line for line in lines if line.startswith(("import tok", "from tok"))], path
