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


def is_test(run: str) -> bool:
    """The split: a sixth of the ids."""
    return int(hashlib.sha1(run.encode()).hexdigest(), 16) % 6 == 0


def load_cases(data: Path) -> Iterator[Case]:
    """Every fully specified row."""
    with (data / FILE).open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    measured_in_test = {_measured(row) for row in rows if is_test(row["id"])}
    for row in rows:
        test = is_test(row["id"])
        if not test and _measured(row) in measured_in_test:
            continue
        if row["mode"] == "agg" and row["batch_size"]:
            yield _aggregated(row, test)
        elif row["mode"] == "disagg" and row["decode_batch_size"]:
            yield _disaggregated(row, test)


def _measured(row: dict[str, str]) -> tuple[str, str]:
    return row["silicon_ttft_ms"], row["silicon_tpot_ms"]


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
    if row["backend"] == "trtllm" and quantised:
        return "fp8"
    if row["backend"] == "vllm" and quantised and _is_inferencex(row):
        return "fp8"
    return "bf16"


def _is_inferencex(row: dict[str, str]) -> bool:
    return "gap-analysis" not in row["silicon_data_source"]


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
        engine_version=row["backend_version"] or None,
        tp=tp,
        dp=dp,
        ep=ep,
        kv_dtype=_kv_dtype(row),
    )


def _load(row: dict[str, str], concurrency: int) -> ClosedLoop:
    low, high, steady = 0.8, 1.0, False
    if "auto-gap-analysis" in row["silicon_data_source"]:
        # How that harness drives each engine, as its training rows show: all slots in step with SGLang,
        # lengths that vary with vLLM, a warm-up left out with TensorRT-LLM.
        low, high, steady = _HARNESS[row["backend"]]
    return ClosedLoop(concurrency, int(row["isl"]), int(row["osl"]), low, high, steady)


def _aggregated(row: dict[str, str], test: bool) -> Case:
    tp, dp, ep = _layout(row)
    at = _deploy(row, tp, dp, ep)
    return Case(
        run=row["id"],
        deployment=at,
        load=_load(row, _concurrency(row, dp)),
        max_seqs=2048,
        max_tokens=8192,
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
