"""Fit the noise and the host times of the lab's serving world to recorded step logs and print noise.toml.

Usage: ``TOKENPATH_REFERENCE_DATA=... python tools/fit_lab_step_noise.py > src/tokenpath/lab/serving/noise.toml``.

Noise: quantiles of log(measured / fitted), less their median, of the worker's time of a step, with the fit of
constant, prefill tokens, decode requests, context and pairs that is least in relative error. Host: medians of the
parts of a step, those that grow with its requests as straight lines.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RUNS = ("p25", "p25b")
PROBABILITIES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
FASTEST, SLOWEST = -0.25, 0.5
"""Farther ones are stalls of the recording machine, or steps that it cut short."""
F64 = NDArray[np.float64]


def main() -> int:
    """Read the logs, print the table."""
    root = os.environ.get("TOKENPATH_REFERENCE_DATA")
    if not root:
        print("set TOKENPATH_REFERENCE_DATA to the folder of reference data", file=sys.stderr)
        return 2
    decode, prefill, host = [], [], []
    for run in RUNS:
        features, worker_us, parts = _read(
            Path(root, "engine/vllm-cpu/load", f"{run}.steps.jsonl.gz")
        )
        residual = _residuals(features, worker_us)
        is_prefill = features[:, 1] > 0
        decode.append(residual[~is_prefill] - np.median(residual[~is_prefill]))
        prefill.append(residual[is_prefill] - np.median(residual[is_prefill]))
        host.append(parts)
    print("# How far recorded steps of a real vLLM are from the line fitted to them: quantiles of")
    print("# log(measured / fitted), and the time its host needs around a step.")
    print("# Written by tools/fit_lab_step_noise.py.")
    print(f"probabilities = {list(PROBABILITIES)}")
    for name, values in (("decode", decode), ("prefill", prefill)):
        kept = np.clip(np.concatenate(values), FASTEST, SLOWEST)
        print(f"{name} = {[round(float(q), 3) for q in np.quantile(kept, PROBABILITIES)]}")
    parts = np.concatenate(host)
    requests = parts[:, 5]
    print("\n[host_us]")
    for name, column in (("schedule", 0), ("update", 3)):
        slope, constant = np.polyfit(requests, parts[:, column], 1)
        print(f"{name} = {constant:.1f}\n{name}_request = {slope:.1f}")
    for name, column in (("hand_over", 1), ("hand_back", 2), ("gap", 4)):
        print(f"{name} = {np.median(parts[:, column]):.1f}")
    return 0


def _read(path: Path) -> tuple[F64, F64, F64]:
    """Features, worker time and host times of each step, in us."""
    prompt: dict[str, int] = {}
    outputs: dict[str, int] = {}
    features, worker, parts, last = [], [], [], None
    with gzip.open(path, "rt") as file:
        records = [json.loads(line) for line in file]
    for record in records:
        if record["ev"] == "add":
            prompt[record["req"]], outputs[record["req"]] = record["prompt"], 0
        if record["ev"] != "step" or "exec_us" not in record:
            continue
        tokens = rows = context = pairs = 0
        for name, _, before, count, *emitted in record["reqs"]:
            if outputs[name] >= 1 and before == prompt[name] + outputs[name] - 1:
                rows, context = rows + 1, context + before + count
            else:
                tokens, pairs = tokens + count, pairs + count * before + count * (count + 1) / 2
            outputs[name] += sum(emitted)
        features.append([1, tokens, rows, context, pairs])
        worker.append(record["exec_us"])
        executed = record["exec_t_us"] + record["exec_us"] + record.get("sample_us", 0)
        decided = record["t_us"] + record["sched_us"]
        gap = 0 if last is None else record["t_us"] - last
        parts.append(
            [
                *(record["sched_us"], record["exec_t_us"] - decided, record["out_t_us"] - executed),
                *(record["update_us"], gap, len(record["reqs"])),
            ]
        )
        last = record["out_t_us"] + record["update_us"]
    return np.array(features, float), np.array(worker, float), np.array(parts, float)


def _residuals(features: F64, measured: F64) -> F64:
    """log(measured / fitted), the fit drawn towards the median by weights."""
    weight = 1 / measured
    fitted = measured
    for _ in range(5):
        solution = np.linalg.lstsq(features * weight[:, None], measured * weight, rcond=None)[0]
        fitted = np.maximum(features @ solution, 1.0)
        weight = 1 / fitted / np.sqrt(1 + 10 * np.abs(measured / fitted - 1))
    result: F64 = np.log(measured / fitted)
    return result


if __name__ == "__main__":
    sys.exit(main())
