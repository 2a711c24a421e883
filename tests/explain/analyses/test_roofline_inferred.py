"""Graph replays carry no shapes: the same kernels and layers with shapes elsewhere in the capture tell their work."""

from __future__ import annotations

from pathlib import Path

import pytest

from explain.analyses.kernel_cases import ADD, GEMM, NORM, Run, columns, costs, report_of

HIDDEN = 4096
PRODUCTS = ((4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096))
LAYERS = 6


def prefill(tokens: int) -> str:
    sums = f"sq{tokens}sk{tokens}sqsq{tokens**2}sqsk{tokens**2}"
    return f"execute_{tokens}_context_1({sums})_generation_0(sq0sk0sqsq0sqsk0)"


def decode(requests: int) -> str:
    sums = f"sq{requests}sk{requests * 2000}sqsq{requests}sqsk{requests * 2000}"
    return f"execute_{requests}_context_0(sq0sk0sqsq0sqsk0)_generation_{requests}({sums})"


def served(*, gemm: float = 1.0, norm: float = 1.0, with_prefill: bool = True) -> Run:
    """A prompt with shapes, then decode steps without; factors on the time of decode kernels."""
    run = Run()
    tokens = 4096
    if with_prefill:
        run.step(prefill(tokens))
        for _ in range(LAYERS):
            for k, n in PRODUCTS:
                dims = [[tokens, k], [k, n]]
                run.kernel(GEMM, 8 + 2 * tokens * k * n / 0.6e15 * 1e6, op="aten::mm", dims=dims)
            dims = [[tokens, HIDDEN], [tokens, HIDDEN], [HIDDEN], []]
            run.kernel(NORM, 40.0, op="_C::rms_norm", dims=dims, grid=[tokens, 1, 1])
            run.kernel(ADD, 45.0, op="aten::add", dims=[[tokens, HIDDEN]] * 2, grid=[32768, 1, 1])
    for _ in range(8):
        run.step(decode(1024))
        for _ in range(LAYERS):
            for k, n in PRODUCTS:
                run.kernel(f"{GEMM}_d", gemm * (8 + 2 * 1024 * k * n / 0.6e15 * 1e6))
            run.kernel(NORM, norm * 13.0, grid=[1024, 1, 1])
    return run


def test_decode_at_its_rate_is_no_finding(tmp_path: Path) -> None:
    report = report_of(served(), tmp_path)
    assert costs(report, "slow-kernel") == []
    (known,) = [row["known_share"] for row in columns(report, "utilisation")]
    assert known == pytest.approx(1.0)


def test_slow_kernels_of_a_graph(tmp_path: Path) -> None:
    for trace, family in ((served(gemm=2.2), "gemm"), (served(norm=5.0), "norm")):
        (finding,) = costs(report_of(trace, tmp_path), "slow-kernel")
        assert finding.place["family"] == family


def test_without_a_step_with_shapes_nothing_is_known(tmp_path: Path) -> None:
    report = report_of(served(gemm=2.2, with_prefill=False), tmp_path)
    assert costs(report, "slow-kernel") == []
    (row,) = columns(report, "utilisation")
    assert (row["mfu_share"], row["known_share"]) == (None, 0.0)


def replayed(norm_us: float, silu_us: float) -> Run:
    """Graph replays of 128 requests without shapes; only the output head outside of the graph has them."""
    run = Run()
    for _ in range(8):
        run.step(decode(128))
        for _ in range(LAYERS):
            run.kernel(f"{GEMM}_d", 60.0)
            fused = "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0"
            run.kernel(fused, norm_us, grid=[128, 1, 1], block=[512, 1, 1])
            pointwise = "triton_poi_fused_mul_silu_1"
            run.kernel(pointwise, silu_us, grid=[1792, 1, 1], block=[128, 1, 1])
        run.kernel(GEMM, 700.0, op="aten::mm", dims=[[128, HIDDEN], [HIDDEN, 128256]])
    return run


def test_streaming_kernels_of_a_graph_by_their_grids(tmp_path: Path) -> None:
    """At most 4 x 128 x 4,096 x 2 bytes of a norm; 1,792 blocks of 1,024 elements of 4 tensors."""
    assert costs(report_of(replayed(5.5, 8.0), tmp_path), "slow-kernel") == []
    for times, family in (((30.0, 8.0), "norm"), ((5.5, 40.0), "elementwise")):
        (finding,) = costs(report_of(replayed(*times), tmp_path), "slow-kernel")
        assert finding.place["family"] == family
