"""Slow kernels are named with their cause; healthy, short and unknown ones are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from explain.analyses.kernel_cases import ADD, GEMM, NORM, SGEMM, Run, columns, costs, report_of
from tokenpath.core.costs import matmul
from tokenpath.explain.analyses.kernel_roofline_launch import limits_of, residency, waves
from tokenpath.explain.analyses.kernel_roofline_shapes import op_cost
from tokenpath.explain.analyses.precision_names import dtype_of_name

CODES = ("slow-kernel", "tail-wave", "low-occupancy", "wrong-precision")
PEAK, RATE = 989.4e12, 3.35e12
"""Of an H100 SXM: dense BF16 FLOP/s (rounded) and bytes/s."""
M, N, K = 4096, 6144, 4096
SIZE = 8192 * 4096


def layers(
    num: int = 12,
    *,
    gemm_us: float = 340.0,
    norm_us: float = 70.0,
    add_us: float = 85.0,
    **gemm: object,
) -> Run:
    """A model of products, norms and additions with healthy times: 0.61, 0.57 and 0.71 of the peaks."""
    run = Run()
    for _ in range(num):
        for part in range(2):
            run.kernel(
                f"{GEMM}_{part}", gemm_us, op="aten::mm", dims=[[M, K], [K, N]],
                grid=[132, 1, 1], block=[384, 1, 1], registers=168, shared=231424, **gemm,
            )  # fmt: skip
        run.kernel(
            NORM, norm_us, op="_C::rms_norm", dims=[[8192, 4096], [8192, 4096], [4096], []],
            grid=[8192, 1, 1], block=[512, 1, 1], registers=32,
        )  # fmt: skip
        run.kernel(
            ADD, add_us, op="aten::add", dims=[[8192, 4096], [8192, 4096], []],
            grid=[SIZE // 512, 1, 1], block=[128, 1, 1], registers=32,
        )  # fmt: skip
    return run


def test_a_healthy_model_has_no_slow_kernel(tmp_path: Path) -> None:
    report = report_of(layers(), tmp_path)
    assert costs(report, *CODES) == []
    gemm = next(row for row in columns(report, "kernel_roofline") if row["family"] == "gemm")
    assert gemm["limiter"] == "compute"
    assert gemm["compute_share"] == pytest.approx(2 * M * N * K / 340e-6 / PEAK, rel=1e-3)
    assert gemm["shape"] == f"1 x {M} x {N} x {K}"


@pytest.mark.parametrize(
    ("slow", "family"), [(layers(norm_us=210.0), "norm"), (layers(gemm_us=1000.0), "gemm")]
)
def test_a_slow_family_is_named_with_what_it_loses(slow: Run, family: str, tmp_path: Path) -> None:
    report = report_of(slow, tmp_path)
    (finding,) = costs(report, *CODES)
    assert finding.code == "slow-kernel"
    assert finding.place["family"] == family
    lost = 12 * (140_000 if family == "norm" else 2 * 660_000)
    assert finding.duration_ns == pytest.approx(lost, rel=0.15)
    assert finding.effort == "kernel"
    assert finding.confidence


def test_short_kernels_are_held_by_latency(tmp_path: Path) -> None:
    run = Run()
    for _ in range(200):
        run.kernel(ADD, 7.0, op="aten::add", dims=[[64, 128], [64, 128], []])
    assert costs(report_of(run, tmp_path), *CODES) == []


def test_kernels_without_shapes_are_not_judged(tmp_path: Path) -> None:
    run = Run()
    for _ in range(50):
        run.kernel(GEMM, 4000.0, grid=[132, 1, 1])
    assert costs(report_of(run, tmp_path), *CODES) == []


def test_a_nearly_empty_last_wave(tmp_path: Path) -> None:
    run = layers(4)
    for _ in range(8):
        # 140 blocks: two rounds on 132 multiprocessors where one would nearly do.
        run.kernel(
            f"{GEMM}_tail", 185.0, op="aten::mm", dims=[[1280, K], [K, 14 * 128 * 4]],
            grid=[14, 10, 1], block=[384, 1, 1], registers=168, shared=231424,
        )  # fmt: skip
    (finding,) = costs(report_of(run, tmp_path), *CODES)
    assert finding.code == "tail-wave"
    assert finding.place["family"] == "gemm"


@pytest.mark.parametrize(("tokens", "whole"), [(64, 1.5), (4096, 2.0)])
def test_tails_of_unknown_products(tokens: int, whole: float, tmp_path: Path) -> None:
    """In decode memory may be the limit: of an empty last wave only half is claimed."""
    run = Run()
    sums = f"sq{tokens}sk{tokens}sqsq{tokens}sqsk{tokens}"
    for _ in range(4):
        run.step(f"execute_{tokens}_context_1({sums})_generation_0(sq0sk0sqsq0sqsk0)")
        for _ in range(6):
            run.kernel(
                GEMM, 185.0, grid=[140, 1, 1], block=[384, 1, 1], registers=168, shared=231424
            )
    (finding,) = costs(report_of(run, tmp_path), *CODES)
    assert finding.code == "tail-wave"
    lost = 24 * 185_000 * (1 - 140 / 132 / whole)
    assert finding.duration_ns == pytest.approx(lost, rel=0.01)


def test_a_slow_product_is_not_excused_by_its_waves(tmp_path: Path) -> None:
    run = layers(4)
    for _ in range(8):
        run.kernel(
            f"{GEMM}_tail", 900.0, op="aten::mm", dims=[[1280, K], [K, 14 * 128 * 4]],
            grid=[14, 10, 1], block=[384, 1, 1], registers=168, shared=231424,
        )  # fmt: skip
    (finding,) = costs(report_of(run, tmp_path), *CODES)
    assert finding.code == "slow-kernel"


def test_few_warps_and_slow(tmp_path: Path) -> None:
    run = layers(6)
    for _ in range(12):
        run.kernel(
            NORM, 200.0, op="_C::rms_norm", dims=[[8192, 4096], [8192, 4096], [4096], []],
            grid=[8192, 1, 1], block=[128, 1, 1], registers=255, shared=100_000,
        )  # fmt: skip
    (finding,) = costs(report_of(run, tmp_path), *CODES)
    assert finding.code == "low-occupancy"
    assert finding.place["family"] == "norm"


def test_wide_products_in_a_half_model(tmp_path: Path) -> None:
    run = layers(4)
    for _ in range(8):
        run.kernel(
            SGEMM, 3600.0, op="aten::mm", dims=[[M, K], [K, N]], types=["float", "float"],
            grid=[96, 32, 1], block=[256, 1, 1], registers=128, shared=33_000,
        )  # fmt: skip
    (finding,) = costs(report_of(run, tmp_path), *CODES)
    assert finding.code == "wrong-precision"
    assert finding.duration_ns == pytest.approx(8 * (3_600_000 - 340_000), rel=0.1)


def test_a_model_of_32_bits_has_the_right_precision(tmp_path: Path) -> None:
    run = Run()
    for _ in range(20):
        run.kernel(SGEMM, 3600.0, op="aten::mm", dims=[[M, K], [K, N]], types=["float", "float"])
    assert costs(report_of(run, tmp_path), *CODES) == []


def test_names_do_not_matter(tmp_path: Path) -> None:
    """Law: kernels of a family with other names, and streams with other numbers, lose the same."""
    plain = costs(report_of(layers(norm_us=210.0), tmp_path), *CODES)
    run = layers(norm_us=210.0)
    for event in run.trace.events:
        if isinstance(event, dict) and event.get("cat") == "kernel":
            event["name"] = str(event["name"]).replace(
                "vllm::rms_norm_kernel", "flashinfer::rmsnorm"
            )
            event["args"]["stream"] = 23
    (tmp_path / "other").mkdir()
    renamed = costs(report_of(run, tmp_path / "other"), *CODES)
    assert [f.code for f in plain] == [f.code for f in renamed]
    assert [f.duration_ns for f in plain] == [f.duration_ns for f in renamed]


def test_neither_order_nor_rank_nor_thread_matters(tmp_path: Path) -> None:
    """Law: the same run as another rank, on another thread, written in another order."""
    plain = costs(report_of(layers(norm_us=210.0), tmp_path), *CODES)
    run = layers(norm_us=210.0)
    run.trace.head["distributedInfo"] = {"backend": "nccl", "rank": 3, "world_size": 8}
    for event in run.trace.events:
        if isinstance(event, dict) and event.get("tid") == run.trace.tid:
            event["tid"] = 777
    run.trace.events.reverse()
    (tmp_path / "other").mkdir()
    other = costs(report_of(run, tmp_path / "other"), *CODES)
    assert [(f.code, f.duration_ns, f.place) for f in plain] == [
        (f.code, f.duration_ns, f.place) for f in other
    ]
    assert len(plain) == 1


def test_costs_of_operators() -> None:
    found = op_cost(
        "aten::addmm", "[[64],[32,128],[128,64],[],[]]", '["c10::Half","c10::Half","c10::Half"]'
    )
    assert found is not None
    expected = matmul(32, 64, 128, "fp16")
    assert found.cost.flops == expected.flops
    assert found.cost.bytes_total == expected.bytes_total + 64 * 2
    batched = op_cost("aten::bmm", "[[4,8,16],[4,16,2]]", '["float","float"]')
    assert batched is not None
    assert batched.cost.flops == 2 * 4 * 8 * 16 * 2
    assert op_cost("aten::mm", "[[32,128],[64,64]]", None) is None
    assert op_cost("aten::conv2d", "[[1,2,3,4],[5,2,3,3]]", None) is None
    assert op_cost("aten::mm", "not json", None) is None
    copied = op_cost("aten::copy_", "[[16,16],[16,16],[]]", '["float","c10::BFloat16","Scalar"]')
    assert copied is not None
    assert (copied.cost.bytes_read, copied.cost.bytes_written) == (512, 1024)
    attended = op_cost("aten::_flash_attention_forward", "[[2,7,4,8],[2,9,4,8],[2,9,4,8]]", None)
    assert attended is not None
    assert attended.cost.flops == 4 * 2 * 4 * 7 * 9 * 8


def test_blocks_that_fit() -> None:
    hopper = limits_of("h100-sxm5-80gb")
    assert hopper is not None
    room = residency(hopper, 384, 168, 231424)
    assert room is not None
    assert (room.blocks, room.occupancy) == (1, 12 / 64)
    light = residency(hopper, 128, 32, 0)
    assert light is not None
    assert (light.blocks, light.limited_by) == (16, "warps")
    assert residency(hopper, 1024, 255, 0) is None
    assert limits_of("mi300x") is None
    assert limits_of("rtx-4090") is not None
    rounds = waves(133, 132, 1)
    assert rounds.efficiency == pytest.approx(133 / 264)
    assert rounds.last_fill == pytest.approx(1 / 132)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("ampere_sgemm_128x64_tn", "fp32"),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "bf16"),
        ("nvjet_hsh_128x64_64x6_1x1_h_bz_TNT", "fp16"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8", "fp32"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", "tf32"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x4_nn_align4>", "tf32"),
        ("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64", "bf16"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256", "bf16"),
        ("Cijk_Ailk_Bljk_SB_MT64x64x16_SN_1LDSB0", "fp32"),
        ("fused_moe_kernel", None),
    ],
)
def test_types_in_names(name: str, dtype: str | None) -> None:
    assert dtype_of_name(name) == dtype


@pytest.mark.parametrize("gemm", [0.42, 0.6, 0.8])
@pytest.mark.parametrize("streaming", [0.5, 0.8])
def test_healthy_efficiencies_are_no_finding(gemm: float, streaming: float, tmp_path: Path) -> None:
    """Well made kernels differ: products of 0.4 to 0.8 of the peak, streams of 0.5 to 0.8 of the rate."""
    run = layers(
        6,
        gemm_us=6 + 2 * M * N * K / (gemm * PEAK) * 1e6,
        norm_us=3 + 2 * SIZE * 2 / (streaming * RATE) * 1e6,
        add_us=3 + 3 * SIZE * 2 / ((1.3 - streaming) * RATE) * 1e6,
    )
    assert costs(report_of(run, tmp_path), *CODES) == []
