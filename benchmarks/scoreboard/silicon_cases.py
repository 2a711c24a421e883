"""The silicon sample as cases: the layouts of its rows made consistent, and the fixed split.

Rows of InferenceX carry its `tp` and `ep` in three encodings, told apart by their products; a replica is
never wider than a node there. Rows whose layout is a whole rack (GB200, tp of 12 to 72, disaggregated in
truth) are kept as what they say.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scoreboard.cases import Case, ClosedLoop, family_of

from tokenpath.core.hardware import load_catalogue
from tokenpath.core.model_catalogue import Model, find_model
from tokenpath.simulate.physics.classes import keys_of
from tokenpath.simulate.physics.deployment import Deployment

FILE = "serving/aic_silicon/silicon_sample.csv"
SYSTEMS = {
    "h100_sxm": "h100-sxm5-80gb",
    "h200_sxm": "h200-sxm-141gb",
    "b200_sxm": "b200-180gb",
    "b300_sxm": "b300-288gb",
    "gb200": "gb200-186gb",
    "gb300": "gb300-288gb",
}
_SCHEMES = {
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "int4_wo": "int4_experts",
    "": "bf16",
}
_HARNESS = {"sglang": (1.0, 1.0, False), "vllm": (0.9, 1.1, False), "trtllm": (1.0, 1.0, True)}


_UNNAMED = {"vllm": "0.10"}
"""Rows without a version are InferenceX's first, of late 2025."""
_SAME_DIGITS = 4
"""Two rows of a model, part and engine whose measurements agree in so many digits are one measurement."""


def is_test(run: str) -> bool:
    """The split: a sixth of the ids."""
    return int(hashlib.sha1(run.encode()).hexdigest(), 16) % 6 == 0


def load_cases(data: Path) -> Iterator[Case]:
    """Every fully specified row, but training rows that repeat another: one of the test split, or one before."""
    for row in kept_rows(data)[0]:
        make = _aggregated if row["mode"] == "agg" else _disaggregated
        yield make(row, is_test(row["id"]))


def kept_rows(data: Path) -> tuple[list[dict[str, str]], int, int]:
    """Fully specified rows; how many training rows were left out as twins of test rows, and of other training rows."""
    with (data / FILE).open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    in_test = {_measured(row) for row in rows if is_test(row["id"])}
    seen: set[tuple[str, ...]] = set()
    kept, num_twins, num_copies = [], 0, 0
    for row in rows:
        size = row["batch_size"] if row["mode"] == "agg" else row["decode_batch_size"]
        if not size:
            continue
        key = _measured(row)
        if not is_test(row["id"]):
            if key in in_test:
                num_twins += 1
                continue
            if key in seen:
                num_copies += 1
                continue
            seen.add(key)
        kept.append(row)
    return kept, num_twins, num_copies


def _measured(row: dict[str, str]) -> tuple[str, ...]:
    """What was measured, in digits that survive export: of the same numbers in two exports the last digits differ.

    DeepSeek's R1 and V3 are one model under two names there, and stand for each other.
    """
    model = row["model_path"].replace("DeepSeek-R1", "DeepSeek-V3")
    numbers = (f"{float(row[name]):.{_SAME_DIGITS}g}" for name in _NUMBERS)
    return (model, row["backend"], row["system"], row["isl"], row["osl"], *numbers)


_NUMBERS = ("silicon_ttft_ms", "silicon_tpot_ms")


def _model(row: dict[str, str]) -> Model:
    model = find_model(row["model_path"])
    scheme = _SCHEMES[row["gemm_quant_mode"]]
    if row["precision"] == "bf16":
        scheme = "bf16"
    if "gpt-oss" in row["model_path"]:
        scheme = "mxfp4_experts"
    elif scheme == "nvfp4" and model.shape.moe:
        scheme = "nvfp4_experts"
    return model.quantised(scheme)


def _int(text: str) -> int:
    return int(text) if text else 0


def _layout(row: dict[str, str]) -> tuple[int, int, int]:
    """tp, dp, ep of the replica."""
    tp, dp = max(1, _int(row["tp_size"])), max(1, _int(row["attention_dp_size"]))
    moe_tp, ep = max(1, _int(row["moe_tp_size"])), max(1, _int(row["moe_ep_size"]))
    if "gap-analysis" in row["silicon_data_source"]:
        # Where the experts span more ranks than attention, attention spans them too.
        return max(tp, moe_tp * ep // dp), dp, ep
    if moe_tp > 1 and ep > 1 and moe_tp * ep == tp * dp:
        # Source tp is moe_tp, source ep is ep; a dp above 1 says attention is data parallel.
        return (1, moe_tp, ep) if dp > 1 else (moe_tp, 1, ep)
    if dp > 1 and tp > 1:
        return 1, tp, min(tp, ep)
    return tp, dp, ep


def _concurrency(row: dict[str, str], dp: int) -> int:
    found = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"])
    total = int(found[1]) if found else _int(row["batch_size"]) * dp
    return max(1, round(total / dp))


def _kv_dtype(row: dict[str, str]) -> str:
    quantised = row["precision"] in ("fp8", "fp4")
    if quantised and (row["backend"] == "trtllm" or _is_inferencex(row)):
        # Recipes of InferenceX say `--kv-cache-dtype fp8` (vLLM) or fp8_e4m3 (SGLang) with such weights.
        return "fp8"
    return "bf16"


def _is_inferencex(row: dict[str, str]) -> bool:
    """Not the harness of gap-analysis; a file of that name with InferenceX's concurrency is an export of the latter."""
    return "auto-gap-analysis" not in row["silicon_data_source"]


@dataclass(frozen=True)
class Recipe:
    """What the launch command of a row says beside the layout."""

    max_seqs: int = 2048
    max_tokens: int = 8192
    recv_interval: int = 1
    wait_steps: int = 0


def recipe_of(row: dict[str, str], tp: int, dp: int, concurrency: int) -> Recipe:
    """Public launch scripts of InferenceX for one node (benchmarks/*.sh there); other rows: defaults.

    Limits, and waits that are settings: how often SGLang's scheduler looks for new requests, how long TensorRT-LLM
    holds them back for a fuller batch, or for data-parallel ranks to have one each.
    """
    if not _is_inferencex(row) or row["mode"] != "agg":
        return Recipe()
    if row["backend"] == "sglang":
        return _sglang_recipe(row, tp, concurrency)
    if row["backend"] == "trtllm":
        return _trtllm_recipe(row, tp, dp, concurrency)
    return Recipe()


def _sglang_recipe(row: dict[str, str], tp: int, concurrency: int) -> Recipe:
    model, system, is_fp4 = row["model_path"], row["system"], row["precision"] == "fp4"
    often = 30 if concurrency >= 16 else 10
    if system == "h200_sxm":
        return Recipe(128, 16384)
    if system not in ("b200_sxm", "b300_sxm"):
        return Recipe()
    if "GLM-5" in model:
        return Recipe(max_tokens=32768, recv_interval=10 if is_fp4 else 1)
    if "Qwen3.5" in model:
        return Recipe(2048, 32768, 30) if is_fp4 else Recipe(128, 32768, often)
    if is_fp4:
        return Recipe(256, 16384, often)
    return Recipe(128, 32768, often) if tp == 8 else Recipe(32, 8192, 10)


def _trtllm_recipe(row: dict[str, str], tp: int, dp: int, concurrency: int) -> Recipe:
    model = row["model_path"]
    if "Llama" in model:
        is_held = row["isl"] == row["osl"] == "1024" and tp < 8
        return Recipe(max_tokens=16384, wait_steps=20 if is_held else 0)
    if "gpt-oss" in model:
        # `enable_balance`: without a new request on every rank none starts before the timeout (50 unless set).
        return Recipe(512, 20000, 50 if dp > 1 else 1)
    if "DeepSeek" in model and row["system"] == "h200_sxm":
        return Recipe(2048, concurrency + int(row["isl"]) + 96, 60 if dp > 1 else 1)
    return Recipe()


def _deploy(row: dict[str, str], tp: int, dp: int, ep: int) -> Deployment:
    model = _model(row)
    ranks = tp * dp
    while ep > 1 and (ranks % ep or model.shape.moe is None):
        ep -= 1
    while model.shape.num_heads % tp:
        # Racks: the part that decodes is the largest that divides the heads.
        tp -= 1
    while ep > 1 and (tp * dp) % ep:
        ep -= 1
    return Deployment(
        model=model,
        hardware=load_catalogue()[SYSTEMS[row["system"]]],
        engine=row["backend"],
        engine_version=row["backend_version"] or _UNNAMED.get(row["backend"]),
        tp=tp,
        dp=dp,
        ep=ep,
        kv_dtype=_kv_dtype(row),
    )


def _load(row: dict[str, str], concurrency: int) -> ClosedLoop:
    low, high, steady = 0.8, 1.0, False
    if "auto-gap-analysis" in row["silicon_data_source"]:
        # How that harness drives each engine, as its training rows show: all slots in step with SGLang and
        # TensorRT-LLM, a warm-up left out with the latter, lengths that vary with vLLM.
        low, high, steady = _HARNESS[row["backend"]]
    # Of that harness's TensorRT-LLM sets one waits, at any length, for about one completion among its slots (time
    # to first token grows by output x time per token / slots in its training rows): a client with one more.
    queued = int(steady and "Llama-3.1-8B" in row["model_path"])
    return ClosedLoop(concurrency, int(row["isl"]), int(row["osl"]), low, high, steady, queued)


def _aggregated(row: dict[str, str], test: bool) -> Case:
    tp, dp, ep = _layout(row)
    at = _deploy(row, tp, dp, ep)
    concurrency = _concurrency(row, dp)
    recipe = recipe_of(row, tp, dp, concurrency * dp)
    load = _load(row, concurrency)
    return Case(
        run=row["id"],
        deployment=at,
        load=load,
        max_seqs=concurrency if load.num_queued else recipe.max_seqs,
        max_tokens=recipe.max_tokens,
        recv_interval=recipe.recv_interval,
        wait_steps=recipe.wait_steps,
        kv_tokens=None,
        measured={
            "ttft_mean_ms": float(row["silicon_ttft_ms"]),
            "tpot_mean_ms": float(row["silicon_tpot_ms"]),
        },
        family=family_of(row["model_path"]),
        classes=keys_of(at),
        split="test" if test else "train",
        tags={"mode": "agg", "tp": str(tp), "dp": str(dp), "system": row["system"]},
    )


def _disaggregated(row: dict[str, str], test: bool) -> Case:
    sides = []
    for side in ("prefill", "decode"):
        tp = max(1, _int(row[f"{side}_tp_size"]))
        dp = max(1, _int(row[f"{side}_attention_dp_size"]))
        ep = max(1, _int(row[f"{side}_moe_ep_size"]))
        sides.append(_deploy(row, tp, dp, ep))
    found = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"])
    workers = (_int(row["prefill_num_workers"]), _int(row["decode_num_workers"]))
    decode_batch = _int(row["decode_batch_size"])
    total = int(found[1]) if found else decode_batch * workers[1] * sides[1].dp
    return Case(
        run=row["id"],
        deployment=sides[0],
        decode=sides[1],
        workers=workers,
        load=_load(row, total),
        max_seqs=2048,
        max_tokens=8192,
        kv_tokens=None,
        measured={
            "ttft_mean_ms": float(row["silicon_ttft_ms"]),
            "tpot_mean_ms": float(row["silicon_tpot_ms"]),
        },
        family=family_of(row["model_path"]),
        classes=keys_of(sides[1]),
        split="test" if test else "train",
        tags={"mode": "disagg", "system": row["system"]},
    )
