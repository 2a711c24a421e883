"""Decode attention with too few blocks or one long request; healthy, short and prefill attention is left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from explain.analyses.kernel_cases import ATTENTION, GEMM, Run, costs, report_of

CODES = ("attention-underfilled", "attention-imbalance", "slow-kernel")
FLASH = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>, true>(Flash_fwd_params)"
HEADS, KV_HEADS, DIM, LAYERS = 32, 8, 128, 8


def label(requests: int, tokens: int) -> str:
    decode = f"sq{requests}sk{tokens}sqsq{requests}sqsk{tokens}"
    return f"execute_{requests}_context_0(sq0sk0sqsq0sqsk0)_generation_{requests}({decode})"


def healthy_us(tokens: int) -> float:
    """Keys and values of a layer at 0.5 of an H100's memory rate, and a start."""
    return 6.0 + tokens * KV_HEADS * DIM * 4 / (0.5 * 3.35e12) * 1e6


def decode(
    steps: list[tuple[int, int, float]], grid: list[int], *, with_shapes: bool = True
) -> Run:
    """Steps of (requests, summed context, time of attention in us)."""
    run = Run()
    for requests, tokens, attention_us in steps:
        run.step(label(requests, tokens))
        for _ in range(LAYERS):
            run.kernel(GEMM, 60.0, grid=[132, 1, 1])
            dims = [[requests, HEADS, DIM], [requests, KV_HEADS, DIM], [requests, KV_HEADS, DIM]]
            named = (
                {"op": "vllm::unified_attention_with_output", "dims": dims} if with_shapes else {}
            )
            run.kernel(ATTENTION, attention_us, grid=grid, **named)
    return run


def growing(factor: float, requests: int = 4, num: int = 12) -> list[tuple[int, int, float]]:
    return [
        (requests, tokens, factor * healthy_us(tokens))
        for tokens in (80_000 + 3_000 * number for number in range(num))
    ]


def test_attention_at_its_rate_is_no_finding(tmp_path: Path) -> None:
    report = report_of(decode(growing(1.0), [32, 4, 2]), tmp_path)
    assert costs(report, *CODES) == []


@pytest.mark.parametrize("with_shapes", [True, False])
def test_few_blocks_over_long_contexts(with_shapes: bool, tmp_path: Path) -> None:
    # 8 KV heads x 4 requests: 32 blocks on 132 multiprocessors.
    run = decode(growing(3.0), [8, 4, 1], with_shapes=with_shapes)
    (finding,) = costs(report_of(run, tmp_path), *CODES)
    assert finding.code == "attention-underfilled"
    assert finding.place["family"] == "attention_decode"
    lost = sum(2 * healthy_us(tokens) * 1000 for _, tokens, _ in growing(1.0)) * LAYERS
    # Without shapes only the blocks tell what splitting would bring.
    assert finding.duration_ns == pytest.approx(lost, rel=0.15 if with_shapes else 0.4)


def test_few_blocks_over_short_contexts_are_right(tmp_path: Path) -> None:
    steps = [(4, 800 + 4 * number, 16.0) for number in range(12)]
    assert costs(report_of(decode(steps, [8, 4, 1]), tmp_path), *CODES) == []


@pytest.mark.parametrize("with_shapes", [True, False])
def test_time_that_follows_the_longest(with_shapes: bool, tmp_path: Path) -> None:
    """Requests come and go beside one of 60,000 tokens whose blocks alone decide the time."""
    steps = [(16, 70_000 + 8_000 * (number % 8), 330.0) for number in range(16)]
    run = decode(steps, [32, 16, 1], with_shapes=with_shapes)
    (finding,) = costs(report_of(run, tmp_path), *CODES)
    assert finding.code == "attention-imbalance"


def joined(label_of: Callable[[int, int], str], others: float = 1.0) -> Run:
    """One long request takes a place from step 6 on: 3 % more tokens, twice the time."""
    run = Run()
    for number in range(16):
        is_late = number >= 6
        run.step(label_of(16, 160_000 + 16 * number + (5_000 if is_late else 0)))
        for _ in range(LAYERS):
            run.kernel(GEMM, 60.0 * (others if is_late else 1.0), grid=[132, 1, 1])
            run.kernel(ATTENTION, 900.0 if is_late else 450.0, grid=[1, 16, 8])
    return run


LABELS: dict[str, Callable[[int, int], str]] = {
    "sums": label,
    "decode keys": lambda bs, keys: f"step[DECODE bs={bs} g_sq={bs} g_sk={keys}]",
    "requests alone": lambda bs, _: f"execute_context_0(0)_generation_{bs}({bs})",
}


@pytest.mark.parametrize("kind", LABELS)
def test_attention_that_jumps_when_one_request_joins(kind: str, tmp_path: Path) -> None:
    (finding,) = costs(report_of(joined(LABELS[kind]), tmp_path), *CODES)
    assert finding.code == "attention-imbalance"
    assert finding.duration_ns == pytest.approx(10 * LAYERS * 450_000, rel=0.05)


def test_a_jump_of_all_kernels_is_not_attention(tmp_path: Path) -> None:
    assert costs(report_of(joined(label, others=2.0), tmp_path), "attention-imbalance") == []


def test_slow_attention_that_follows_the_sum_is_a_slow_kernel(tmp_path: Path) -> None:
    (finding,) = costs(report_of(decode(growing(3.0), [32, 4, 2]), tmp_path), *CODES)
    assert finding.code == "slow-kernel"


def test_the_order_of_steps_does_not_matter(tmp_path: Path) -> None:
    """Law: time and context of a step belong together, whatever their order."""
    steps = [(16, 70_000 + 8_000 * (number % 8), 330.0) for number in range(16)]
    (one,) = costs(report_of(decode(steps, [32, 16, 1]), tmp_path), *CODES)
    (tmp_path / "turned").mkdir()
    (other,) = costs(report_of(decode(steps[::-1], [32, 16, 1]), tmp_path / "turned"), *CODES)
    assert (one.code, one.duration_ns) == (other.code, other.duration_ns)


@pytest.mark.parametrize(
    ("lengths", "code"),
    [([14000] + [300] * 7, "attention-imbalance"), ([2000] * 8, "slow-kernel")],
    ids=["one long prompt", "equal prompts"],
)
def test_prompts_of_unequal_length(lengths: list[int], code: str, tmp_path: Path) -> None:
    tokens, squares = sum(lengths), sum(length**2 for length in lengths)
    sums = f"sq{tokens}sk{tokens}sqsq{squares}sqsk{squares}"
    run = Run().step(
        f"execute_{tokens}_context_{len(lengths)}({sums})_generation_0(sq0sk0sqsq0sqsk0)"
    )
    ideal = 4 * HEADS * DIM * squares / 2 / (0.5 * 989e12) * 1e6
    for _ in range(LAYERS):
        run.kernel(GEMM, 300.0, grid=[132, 1, 1])
        dims = [[tokens, HEADS, DIM], [tokens, KV_HEADS, DIM], [tokens, KV_HEADS, DIM]]
        run.kernel(FLASH, 4 * ideal, op="vllm::unified_attention", dims=dims, grid=[200, 32, 1])
    (finding,) = costs(report_of(run, tmp_path), *CODES)
    assert finding.code == code


def test_damaged_labels_and_shapes_are_no_error(tmp_path: Path) -> None:
    """Numbers that no engine writes, shapes that no memory holds, blocks of nothing."""
    run = Run()
    big = "9" * 18
    run.step(f"execute_{big}_context_0(sq0sk0sqsq0sqsk0)_generation_1(sq1sk{big}sqsq1sqsk1)")
    run.kernel(ATTENTION, 50.0, op="vllm::unified_attention", dims=[[0, 0, 0], [0, 0, 0]])
    run.step("decode[bs=0/128 tok=0]")
    run.kernel(GEMM, 50.0, op="aten::mm", dims=[[10**30, 4], [4, 10**30]], grid=[0, 0, 0])
    run.kernel(GEMM, 50.0, op="aten::mm", dims=[[0, 4], [4, 0]], grid=[1, 1, 1], block=[0, 1, 1])
    run.kernel(GEMM, 50.0, op="aten::mm", dims=[[1] * 40, [1] * 40], grid=[1, 1, 1])
    run.kernel(
        ATTENTION, 50.0, op="aten::_flash_attention_forward", dims=[[1, 0, 2, 0]] * 3, grid=[1, 1, 1]
    )  # fmt: skip
    report = report_of(run, tmp_path)
    assert {"kernel_roofline", "utilisation"} <= {table.key for table in report.tables}
