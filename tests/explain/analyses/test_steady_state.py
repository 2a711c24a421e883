"""Warm-up, a falling clock, a slow link, steps that recur or drift; not steady, mixed or short captures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from explain.analyses.kernel_cases import ADD, ATTENTION, GEMM, NORM, Run, columns, costs, report_of
from explain.analyses.rank_programs import Rows, capture
from tokenpath.core.finding import Finding, Kind
from tokenpath.explain.report import explain

CODES = ("warm-up-included", "clock-throttling", "slow-copy")


def steps(
    num: int = 24,
    *,
    gemm: Callable[[int], float] = lambda step: 1.0,
    norm: Callable[[int], float] = lambda step: 1.0,
    extra_us: Callable[[int], float] = lambda step: 0.0,
    label: Callable[[int], str] = lambda step: f"ProfilerStep#{step}",
) -> Run:
    """Steps of three products and a norm; factors on their time and idle time by step."""
    run = Run()
    for step in range(num):
        run.step(label(step))
        for layer in range(2):
            for part, length in enumerate((60.0, 90.0, 120.0)):
                idle = extra_us(step) if (layer, part) == (1, 0) else 0.0
                run.kernel(
                    f"{GEMM}_{part}", length * gemm(step), grid=[100 + part, 1, 1], gap_us=idle
                )
            run.kernel(NORM, 20.0 * norm(step), grid=[64, 1, 1])
            run.kernel(ADD, 20.0 * norm(step), grid=[32, 1, 1])
    return run


def found(run: Run, folder: Path, *codes: str) -> list[Finding]:
    folder.mkdir(exist_ok=True)
    return costs(report_of(run, folder), *(codes or CODES))


def test_a_steady_run_has_no_finding(tmp_path: Path) -> None:
    assert found(steps(), tmp_path) == []


@pytest.mark.parametrize("factor", [1.15, 1.5])
def test_all_kernels_slower_from_a_moment_on(factor: float, tmp_path: Path) -> None:
    run = steps(
        gemm=lambda step: factor if step >= 12 else 1.0,
        norm=lambda step: 1.02 if step >= 12 else 1.0,
    )
    (finding,) = found(run, tmp_path)
    assert finding.code == "clock-throttling"
    assert finding.place["rank"] == "0"
    lost = 12 * 2 * (270_000 * (factor - 1) + 40_000 * 0.02)
    assert finding.duration_ns == pytest.approx(lost, rel=0.1)


def test_a_clock_that_recovers(tmp_path: Path) -> None:
    run = steps(30, gemm=lambda step: 1.4 if 8 <= step < 20 else 1.0)
    (finding,) = found(run, tmp_path)
    assert finding.code == "clock-throttling"
    assert finding.duration_ns == pytest.approx(12 * 2 * 270_000 * 0.4, rel=0.1)


def test_a_clock_on_its_way_up_is_not_throttled(tmp_path: Path) -> None:
    assert found(steps(gemm=lambda step: 1.2 if step < 8 else 1.0), tmp_path) == []


def test_one_kernel_that_slows_is_no_clock(tmp_path: Path) -> None:
    run = Run()
    for step in range(24):
        run.step(f"ProfilerStep#{step}")
        for part, length in enumerate((60.0, 90.0, 120.0)):
            factor = 1.5 if part == 0 and step >= 12 else 1.0
            run.kernel(f"{GEMM}_{part}", length * factor, grid=[100 + part, 1, 1])
    assert found(run, tmp_path) == []


def test_larger_batches_are_no_clock(tmp_path: Path) -> None:
    """The same grids (persistent kernels) with more prompt tokens in the second half."""

    def label(step: int) -> str:
        tokens = 1024 if step < 12 else 2048
        sums = f"sq{tokens}sk{tokens}sqsq{tokens}sqsk{tokens}"
        return f"execute_{tokens}_context_1({sums})_generation_0(sq0sk0sqsq0sqsk0)"

    run = steps(gemm=lambda step: 1.9 if step >= 12 else 1.0, label=label)
    assert found(run, tmp_path) == []


def test_attention_grows_with_its_context(tmp_path: Path) -> None:
    run = Run()
    for step in range(30):
        run.step(f"ProfilerStep#{step}")
        for part in range(4):
            run.kernel(ATTENTION, 40.0 + 2 * step, grid=[part + 64, 1, 1])
    assert found(run, tmp_path) == []


def test_slow_first_steps(tmp_path: Path) -> None:
    run = steps(extra_us=lambda step: (900.0, 400.0)[step] if step < 2 else 0.0)
    (finding,) = found(run, tmp_path, "warm-up-included")
    assert finding.details["num_steps"] == 2
    assert finding.duration_ns == pytest.approx(1_300_000, rel=0.02)
    assert finding.details["is_in_window"] is False
    assert "this window leaves them out" in finding.sentence


def test_what_a_cold_engine_does_after_its_first_step_is_warm_up(tmp_path: Path) -> None:
    """The first kernel of the second step is late: the time lies in no step."""
    run = Run()
    for step in range(20):
        run.step(f"ProfilerStep#{step}")
        for part in range(4):
            run.kernel(
                GEMM, 100.0, grid=[100 + part, 1, 1], gap_us=3000.0 * (step == 1 and not part)
            )
    (finding,) = found(run, tmp_path, "warm-up-included")
    assert finding.duration_ns == pytest.approx(3_000_000, rel=0.05)


def test_pauses_between_steps_that_come_later_too_are_no_warm_up(tmp_path: Path) -> None:
    run = Run()
    for step in range(20):
        run.step(f"ProfilerStep#{step}")
        for part in range(4):
            pause = 3000.0 * (step in (1, 9) and not part)
            run.kernel(GEMM, 100.0, grid=[100 + part, 1, 1], gap_us=pause)
    assert found(run, tmp_path, "warm-up-included") == []


def test_a_long_first_prompt_is_no_warm_up(tmp_path: Path) -> None:
    def label(step: int) -> str:
        if step:
            return f"execute_context_0(0)_generation_8(8)#{step}"[:38]
        return "execute_context_1(4096)_generation_0(0)"

    run = steps(gemm=lambda step: 6.0 if step == 0 else 1.0, label=label)
    assert found(run, tmp_path, "warm-up-included") == []


def test_slow_steps_that_recur_are_told_and_cost_nothing(tmp_path: Path) -> None:
    run = steps(40, extra_us=lambda step: 900.0 if step % 8 == 5 else 0.0)
    report = report_of(run, tmp_path)
    (finding,) = [f for f in report.findings if f.code == "slow-steps-recur"]
    assert "every 8 steps" in finding.sentence
    assert "garbage collection" in finding.sentence
    assert finding.gain_ns is None


def test_drift_is_told(tmp_path: Path) -> None:
    run = steps(40, gemm=lambda step: 1 + 0.01 * step)
    report = report_of(run, tmp_path)
    assert "step-drift" in {finding.code for finding in report.findings}
    steady = report_of(steps(40, gemm=lambda step: 1 + 0.01 * (step % 2)), tmp_path)
    assert "step-drift" not in {finding.code for finding in steady.findings}


@pytest.mark.parametrize(
    ("kind", "rate", "is_slow"),
    [
        ("Memcpy HtoD (Pinned -> Device)", 50e9, False),
        ("Memcpy HtoD (Pinned -> Device)", 8e9, True),
        ("Memcpy DtoH (Device -> Pinned)", 8e9, True),
        ("Memcpy HtoD (Pageable -> Device)", 5e9, False),
        ("Memcpy HtoD (Pageable -> Device)", 1e9, True),
        ("Memcpy DtoD (Device -> Device)", 8e9, False),
    ],
)
def test_copies_against_their_link(kind: str, rate: float, is_slow: bool, tmp_path: Path) -> None:
    run = Run()
    num_bytes = 32 << 20
    length = num_bytes / rate * 1e6
    for number in range(6):
        run.kernel(GEMM, 500.0)
        run.host_us += 0.4
        run.trace.call("cudaMemcpyAsync", run.host_us, 0.1, correlation=90 + number)
        run.trace.memcpy(run.at_us, length, name=kind, correlation=90 + number, num_bytes=num_bytes)
        run.at_us += length
    report = report_of(run, tmp_path)
    (row,) = columns(report, "copies")
    assert row["bytes_per_s"] == pytest.approx(rate, rel=0.01)
    assert [f.code for f in costs(report, *CODES)] == (["slow-copy"] if is_slow else [])
    if is_slow:
        (finding,) = costs(report, "slow-copy")
        attainable = 6e9 if "Pageable" in kind else 0.75 * 63e9
        lost = 6 * (length * 1000 - num_bytes / attainable * 1e9)
        assert finding.duration_ns == pytest.approx(lost, rel=0.01)
        assert finding.part_of_ns == {"exposed-copy": finding.duration_ns}


def test_one_slow_rank_holds_up_the_others(tmp_path: Path) -> None:
    """Four ranks in step: from the middle on one takes 1.4 times as long, and all lose that."""
    rows = Rows()
    at, lost = 0, 0
    for step in range(40):
        factor = 1.4 if step >= 20 else 1.0
        ends = []
        for rank in range(4):
            begin = at
            for part in range(3):
                length = int(50_000 * (part + 1) * (factor if rank == 2 else 1.0))
                rows.work(rank, begin, length, "gemm", name=f"{GEMM}_{part}")
                begin += length + 500
            ends.append(begin)
        end = max(ends) + 20_000
        lost += int(300_000 * (factor - 1)) * 4
        for rank, begin in enumerate(ends):
            row = rows.work(
                rank, begin, end - begin, "communication", name="ncclDevKernel_AllReduce"
            )
            rows.collect(rank, row, step)
        at = end + 2_000
    found = [f for f in explain(capture(rows))[0].findings if f.kind is Kind.COST]
    (finding,) = [f for f in found if f.code == "clock-throttling"]
    assert finding.place["rank"] == "2"
    assert finding.duration_ns == pytest.approx(lost, rel=0.05)
    assert [f for f in found if f.code in ("slow-device", "rank-imbalance")] == []


def test_products_of_several_shapes_in_one_launch_shape(tmp_path: Path) -> None:
    """Persistent kernels of one name and grid, short and long ones in turn."""
    run = Run()
    for step in range(30):
        factor = 1.3 if step >= 15 else 1.0
        run.step(f"ProfilerStep#{step}")
        for name in (GEMM, f"{GEMM}_2"):
            for length in (40.0, 80.0, 160.0, 320.0):
                run.kernel(name, length * factor, grid=[132, 1, 1])
    (finding,) = found(run, tmp_path)
    assert finding.code == "clock-throttling"
    assert finding.duration_ns == pytest.approx(15 * 2 * 600_000 * 0.3, rel=0.1)
