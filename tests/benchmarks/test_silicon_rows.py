"""Rows of the silicon sample: repeats are left out of training, recipes are what launch scripts say."""

from __future__ import annotations

import csv
from pathlib import Path

from benchmarks.scoreboard.silicon_cases import FILE, is_test, kept_rows, recipe_of

COLUMNS = (
    "id", "silicon_data_source", "backend", "backend_version", "model_path", "system", "precision", "mode", "isl",
    "osl", "batch_size", "decode_batch_size", "silicon_ttft_ms", "silicon_tpot_ms",
)  # fmt: skip


def row(run: str, ttft: str, **other: str) -> dict[str, str]:
    entry = dict.fromkeys(COLUMNS, "") | {
        "id": run, "backend": "vllm", "model_path": "m/Model", "system": "h100_sxm", "mode": "agg", "isl": "1024",
        "osl": "1024", "batch_size": "8", "silicon_ttft_ms": ttft, "silicon_tpot_ms": "7.5",
    }  # fmt: skip
    return entry | other


def test_training_rows_that_repeat_a_measurement_are_left_out(tmp_path: Path) -> None:
    tests = [run for n in range(200) if is_test(run := f"r{n}")]
    trains = [run for n in range(200) if not is_test(run := f"r{n}")]
    rows = [
        row(tests[0], "12.34567891"),
        row(trains[0], "12.34567892"),  # the test row with another last digit
        row(trains[1], "55.1"),
        row(trains[2], "55.10001"),  # a copy within training
        row(trains[3], "55.1", model_path="m/Other"),
        row(trains[4], "99.9", batch_size=""),  # not fully specified
    ]
    path = tmp_path / FILE
    path.parent.mkdir(parents=True)
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    kept, num_twins, num_copies = kept_rows(tmp_path)
    assert [entry["id"] for entry in kept] == [tests[0], trains[1], trains[3]]
    assert (num_twins, num_copies) == (1, 1)


def test_recipes_say_how_long_requests_wait() -> None:
    qwen = row("a", "1", backend="sglang", model_path="Qwen/Qwen3.5-397B-A17B", system="b200_sxm")
    assert recipe_of(qwen | {"precision": "fp8"}, 8, 1, 8).recv_interval == 10
    assert recipe_of(qwen | {"precision": "fp8"}, 8, 1, 16).recv_interval == 30
    assert recipe_of(qwen | {"system": "h200_sxm"}, 8, 1, 16).recv_interval == 1
    llama = row("b", "1", backend="trtllm", model_path="meta-llama/Llama-3.1-70B")
    assert recipe_of(llama, 4, 1, 16).wait_steps == 20
    assert recipe_of(llama, 8, 1, 16).wait_steps == 0
    own_harness = llama | {"silicon_data_source": "aic-auto-gap-analysis"}
    assert recipe_of(own_harness, 4, 1, 16).wait_steps == 0
