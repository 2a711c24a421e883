"""Chains that one kernel would replace, and copies of layout; not fused models, not single kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from explain.analyses.kernel_cases import ADD, COPY, GEMM, MUL, SILU, Run, costs, report_of

CODES = ("unfused-elementwise", "layout-copies")
TOKENS = [4096, 4096]


def layers(chain: int, copies: int = 0, num: int = 10, size: list[int] | None = None) -> Run:
    run = Run()
    shape = size or TOKENS
    for _ in range(num):
        run.kernel(GEMM, 300.0, op="aten::mm", dims=[TOKENS, TOKENS], grid=[132, 1, 1])
        for number in range(chain):
            name, op = ((ADD, "aten::add"), (MUL, "aten::mul"), (SILU, "aten::silu"))[number % 3]
            dims = [shape, shape, []] if name is not SILU else [shape]
            run.kernel(name, 45.0 if name is not SILU else 31.0, op=op, dims=dims, gap_us=1.0)
        for _ in range(copies):
            run.kernel(COPY, 30.0, op="aten::copy_", dims=[shape, shape, []])
    return run


@pytest.mark.parametrize("chain", [3, 6])
def test_a_chain_is_worth_its_intermediates(chain: int, tmp_path: Path) -> None:
    (finding,) = costs(report_of(layers(chain), tmp_path), *CODES)
    assert finding.code == "unfused-elementwise"
    assert finding.details["longest_chain"] == chain
    # Of 8 tensors a triple, one kernel touches 4 (two more inputs, one input, one output); of 16, 6.
    moved, left = (8, 4) if chain == 3 else (16, 6)
    total = (121_000 if chain == 3 else 242_000) - 2_000 * chain
    assert finding.duration_ns == pytest.approx(
        10 * (total * (1 - left / moved) + 2_000 * (chain - 1)), rel=0.02
    )


def test_two_in_a_row_are_no_chain(tmp_path: Path) -> None:
    assert costs(report_of(layers(2), tmp_path), *CODES) == []


def test_other_sizes_break_a_chain(tmp_path: Path) -> None:
    run = Run()
    for _ in range(10):
        for rows in (1024, 2048, 4096):
            run.kernel(ADD, 40.0, op="aten::add", dims=[[rows, 4096], [rows, 4096], []])
    assert costs(report_of(run, tmp_path), *CODES) == []


def test_without_shapes_the_launch_tells(tmp_path: Path) -> None:
    run = Run()
    for _ in range(10):
        run.kernel(GEMM, 300.0)
        for name in (ADD, MUL, SILU, ADD):
            run.kernel(name, 40.0, grid=[32768, 1, 1])
    (finding,) = costs(report_of(run, tmp_path), *CODES)
    assert finding.code == "unfused-elementwise"


def test_copies_between_operators(tmp_path: Path) -> None:
    (finding,) = costs(report_of(layers(0, copies=2), tmp_path), *CODES)
    assert finding.code == "layout-copies"
    assert finding.duration_ns == 10 * 2 * 30_000
    assert finding.place["op"] == "aten::copy_"


def test_few_copies_are_no_pattern(tmp_path: Path) -> None:
    assert costs(report_of(layers(0, copies=1, num=3), tmp_path), *CODES) == []


def test_order_of_the_file_does_not_matter(tmp_path: Path) -> None:
    """Law: the same events in another order give the same findings."""
    plain = costs(report_of(layers(4, copies=1), tmp_path), *CODES)
    run = layers(4, copies=1)
    run.trace.events.reverse()
    (tmp_path / "other").mkdir()
    turned = costs(report_of(run, tmp_path / "other"), *CODES)
    assert [(f.code, f.duration_ns) for f in plain] == [(f.code, f.duration_ns) for f in turned]
    assert len(plain) == 2
