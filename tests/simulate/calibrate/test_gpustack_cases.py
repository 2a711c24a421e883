"""Launch commands of GPUStack's pages become configurations; repeats are one, other loads are set aside."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from benchmarks.scoreboard.gpustack import choose, fit_effects, page_terms, workload_of
from benchmarks.scoreboard.gpustack_cases import Config, Load, Page, read_pages

_COLUMNS = (
    *("file", "section", "label", "block", "serve", "requests", "in_tokens", "out_tokens"),
    *("max_conc", "out_tps"),
)


def pages(tmp_path: Path, *rows: tuple[object, ...]) -> list[Page]:
    path = tmp_path / "runs.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        writer.writerows(rows)
    return read_pages(path)


def row(section: str, label: str, serve: str, tps: float, **other: object) -> tuple[object, ...]:
    values = {
        "file": "m/h100.md",
        "block": "Benchmark result",
        "requests": 1000,
        "in_tokens": 217_393,
        "out_tokens": 201_000,
        "max_conc": "",
        **other,
    }
    known = {"section": section, "label": label, "serve": serve, "out_tps": tps, **values}
    return tuple(known[name] for name in _COLUMNS)


SGLANG = "python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B"


def test_commands_are_read_and_repeats_are_averaged(tmp_path: Path) -> None:
    (page,) = pages(
        tmp_path,
        row("1. Choosing", "vLLM", "vllm serve Qwen/Qwen3-32B -tp 2 --async-scheduling", 100),
        row("1. Choosing", "SGLang", f"{SGLANG} --tp-size 4 --enable-dp-attention", 120),
        row("3. Tokens in vLLM", "", "vllm serve Qwen/Qwen3-32B --max-num-batched-tokens 8192", 90),
        row("3. Tokens in vLLM", "", "vllm serve Qwen/Qwen3-32B --max-num-batched-tokens 8192", 94),
        row("Other cases", "", "vllm serve Qwen/Qwen3-32B", 5, requests=100),
    )
    choices = page.choices()
    assert choices == {
        Config("vllm", "Qwen/Qwen3-32B", "h100", tp=2, flags=frozenset({"async"})): 100,
        Config("sglang", "Qwen/Qwen3-32B", "h100", dp=4): 120,
        Config("vllm", "Qwen/Qwen3-32B", "h100", max_tokens=8192): 92,
    }


def test_a_misplaced_command_gives_way_to_the_label(tmp_path: Path) -> None:
    (page,) = pages(
        tmp_path,
        row("1. Choosing", "vLLM", "vllm serve Qwen/Qwen3-32B", 100),
        row("2. Quantization in TensorRT-LLM", "FP8", f"{SGLANG}-FP8", 190),
        row("3. Tokens", "", "trtllm-serve Qwen/Qwen3-14B --max_num_tokens=16384", 90),
    )
    assert [(c.engine, c.model, c.max_tokens) for c in page.choices()] == [
        ("vllm", "Qwen/Qwen3-32B", None),
        ("trtllm", "Qwen/Qwen3-32B-FP8", None),
        ("trtllm", "Qwen/Qwen3-32B", 16384),
    ]


def test_sections_of_newer_pages_say_what_changed(tmp_path: Path) -> None:
    final = "vllm serve Qwen/Qwen3.5-9B --performance-mode=throughput --max-num-seqs=512"
    names = ("vLLM", "SGLang", "Prefix Cache", "Max Num Seqs 256", "Batch Token 32k and Seqs 512")
    (page,) = pages(tmp_path, *(row(name, "", final, 10, max_conc=512) for name in names))
    found = list(page.choices())
    assert [c.engine for c in found] == ["vllm", "sglang", "vllm", "vllm", "vllm"]
    assert found[2].flags == {"prefix"}
    assert (found[3].max_seqs, found[4].max_seqs, found[4].max_tokens) == (256, 512, 32768)
    assert page.main()[0].load.concurrency == 512


def test_ties_go_to_the_more_tuned_configuration() -> None:
    plain = Config("vllm", "m", "h100")
    tuned = Config("vllm", "m", "h100", flags=frozenset({"async"}))
    assert choose({plain: 100.0, tuned: 99.0}) is tuned
    assert choose({plain: 100.0, tuned: 90.0}) is plain
    assert choose({plain: None}) is None


def test_what_an_engine_is_worth_is_learned_within_pages(tmp_path: Path) -> None:
    configs = [Config("vllm", "m", "h100"), Config("sglang", "m", "h100")]
    found = pages(
        tmp_path,
        *(
            row("1", label, serve, tps, file=f"m{number}/h100.md")
            for number in range(6)
            for label, serve, tps in (
                ("vLLM", "vllm serve m", 100 * 2**number),
                ("SGLang", "python3 -m sglang.launch_server --model m", 150 * 2**number),
            )
        ),
    )
    physics = {page.name: dict.fromkeys(page.choices(), 100.0) for page in found}
    weights = fit_effects(found, physics)
    logs = page_terms(configs, dict.fromkeys(configs, 100.0)) @ weights
    # Physics sees no difference; the pages do, half as much again, whatever their own level.
    assert logs[1] - logs[0] == pytest.approx(0.405, abs=0.06)


def test_workloads_have_the_means_of_their_row() -> None:
    work = workload_of(Load(1000, 217_393.0, 201_000.0, None), 0)
    assert work.prompt_tokens.mean() == pytest.approx(217.4, rel=0.01)
    assert work.output_tokens.mean() == pytest.approx(201.0, rel=0.01)
    fixed = workload_of(Load(1000, 8_204_000.0, 1_024_000.0, 512), 0)
    assert set(fixed.prompt_tokens.tolist()) == {8204}
    assert (fixed.concurrency, fixed.num_requests) == (512, 1000)
