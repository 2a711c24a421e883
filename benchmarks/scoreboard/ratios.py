"""Does the fit carry over to a generation that it never saw? A100 over H100, engine and release being equal.

    python -m benchmarks.scoreboard.ratios --data FOLDER

LLM-Inference-Bench (BSD-3) ran engines of 2024, whose absolute times are not those of today; what an A100
(its are those of Polaris, 40 GB) takes over what an H100 takes for the same static batch is.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from tokenpath.core.errors import InputError
from tokenpath.core.hardware import load_catalogue
from tokenpath.core.model_catalogue import find_model
from tokenpath.simulate.physics.curve import build_curve
from tokenpath.simulate.physics.deployment import Deployment
from tokenpath.simulate.physics.efficiency import generation, resolve
from tokenpath.simulate.physics.model import load_fitted
from tokenpath.simulate.physics.terms import Terms, terms_of

FILE = "serving/llm_inference_bench/all_results.csv"
_GPUS = {"Nvidia A100 GPU": "a100-sxm4-40gb", "Nvidia H100 GPU": "h100-sxm5-80gb"}
_ENGINES = {"vLLM": "vllm", "TensorRT-LLM": "trtllm"}


class Pair:
    """A batch measured on both parts."""

    def __init__(self, engine: str, model: str, tp: int, tokens: int, batch: int) -> None:
        """Work on both parts."""
        self.engine, self.tokens, self.batch = engine, tokens, batch
        self.terms: list[tuple[Terms, str | None]] = []
        for key in _GPUS.values():
            hardware = load_catalogue()[key]
            at = Deployment(find_model(model), hardware, engine, tp=tp)
            self.terms.append((terms_of(at), generation(hardware)))

    def log_ratio(self, logs: Mapping[str, float]) -> float:
        """Logarithm of A100 over H100: one prefill of the batch, then its decode steps."""
        b, n = self.batch, self.tokens
        steps = np.array(
            [[b, b * n, 0, b * n * (n + 1) / 2, 0, 0, 0], [0, 0, 0, 0, b, b, b * 1.5 * n]]
        )
        times = []
        for terms, gen in self.terms:
            prefill, decode = build_curve(terms, resolve(logs, self.engine, gen)).step_ns(steps)
            times.append(prefill + n * decode)
        return float(np.log(times[0] / times[1]))


def read_pairs(data: Path) -> tuple[list[Pair], np.ndarray]:
    """Pairs, and the measured logarithms of their ratios."""
    times: dict[tuple[str, str, int, int, int], dict[str, float]] = {}
    with (data / FILE).open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["Hardware"] in _GPUS and row["Framework"] in _ENGINES:
                key = (
                    _ENGINES[row["Framework"]],
                    row["Model"],
                    int(row["Num of Hardware"]),
                    int(row["Input Output Length"]),
                    int(row["Batch Size"]),
                )
                times.setdefault(key, {})[row["Hardware"]] = float(row["Latency"])
    pairs, ratios = [], []
    for key, found in times.items():
        if len(found) < len(_GPUS):
            continue
        try:
            pairs.append(Pair(*key))
        except InputError:
            continue  # a model that is not in the catalogue
        ratios.append(np.log(found["Nvidia A100 GPU"] / found["Nvidia H100 GPU"]))
    return pairs, np.array(ratios)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    logs = load_fitted().logs
    pairs, measured = read_pairs(args.data)
    errors = np.array([pair.log_ratio(logs) for pair in pairs]) - measured
    print(
        f"{len(pairs)} pairs: predicted over measured ratio, median {np.exp(np.median(errors)):.3f}, "
        f"median absolute error {100 * np.median(np.abs(np.expm1(errors))):.1f} %"
    )


if __name__ == "__main__":
    main()
