"""Decode batches padded to a captured size: by label, by grid, and not where they fit or nobody can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from explain.analyses.kernel_cases import ADD, ATTENTION, GEMM, NORM, Run, costs, report_of


def vllm(requests: int) -> str:
    decode = f"sq{requests}sk{requests * 900}sqsq{requests}sqsk{requests * 900}"
    return f"execute_{requests}_context_0(sq0sk0sqsq0sqsk0)_generation_{requests}({decode})"


def steps(label: str, grid: int | None, *, num: int = 10, gemm_us: float = 20.0) -> Run:
    run = Run()
    for _ in range(num):
        run.step(label)
        for _ in range(6):
            run.kernel(GEMM, gemm_us, grid=[132, 1, 1])
            run.kernel(ATTENTION, 10.0, grid=[264, 1, 1])
            run.kernel(NORM, 12.0, grid=None if grid is None else [grid, 1, 1])
            run.kernel(ADD, 12.0, grid=None if grid is None else [grid, 1, 1])
    return run


@pytest.mark.parametrize(
    ("label", "grid"), [("decode[bs=32/128 tok=32]", None), (vllm(32), 128)], ids=["label", "grid"]
)
def test_rows_without_a_request_cost_time(label: str, grid: int | None, tmp_path: Path) -> None:
    (finding,) = costs(report_of(steps(label, grid), tmp_path), "graph-padding")
    assert finding.value == 4.0
    # Norm and addition shrink to a quarter beyond their start; products and attention stay.
    assert finding.duration_ns == pytest.approx(10 * 6 * 2 * 10_000 * 0.75, rel=0.01)
    assert finding.effort == "setting"


def test_cache_writes_of_the_real_batch_do_not_hide_the_padding(tmp_path: Path) -> None:
    """Piecewise graphs: attention and cache writes run beside them, unpadded."""
    run = Run()
    for _ in range(10):
        run.step(vllm(32))
        for _ in range(6):
            run.kernel(NORM, 12.0, grid=[128, 1, 1])
            run.kernel("void vllm::reshape_and_cache_flash_kernel<bf16>", 6.0, grid=[32, 1, 1])
    (finding,) = costs(report_of(run, tmp_path), "graph-padding")
    assert finding.value == 4.0
    assert finding.duration_ns == pytest.approx(10 * 6 * 10_000 * 0.75, rel=0.01)


def test_large_products_shrink_as_well(tmp_path: Path) -> None:
    run = steps("decode[bs=128/1024 tok=128]", None, gemm_us=200.0)
    (finding,) = costs(report_of(run, tmp_path), "graph-padding")
    products = 10 * 6 * 198_000 * (1 - 295 / 1024)
    others = 10 * 6 * 2 * 10_000 * (1 - 128 / 1024)
    assert finding.duration_ns == pytest.approx(products + others, rel=0.01)


@pytest.mark.parametrize(
    ("label", "grid"),
    [
        ("decode[bs=117/128 tok=117]", None),
        (vllm(128), 128),
        (vllm(32), None),
        ("ProfilerStep#1", 128),
    ],
)
def test_batches_that_fit_or_are_not_told(label: str, grid: int | None, tmp_path: Path) -> None:
    assert costs(report_of(steps(label, grid), tmp_path), "graph-padding") == []
