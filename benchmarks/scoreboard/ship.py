"""Make the artefact that ships: fit, provenance, error on runs left out; and those of column B.

    python -m benchmarks.scoreboard.ship --data FOLDER --fit fit.json --version 2026-12-01 --folds FOLDER-B \\
        --out fitted.json

Fit and error read training runs only: the error is that of `folds.py`, on runs that its fits had not seen. The
evaluation runs are not opened.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from benchmarks.scoreboard.fit import training_cases

from tokenpath.simulate.physics.model import FORMAT

FITTED_ON = (
    "vLLM 0.15 on H100 under inference-perf, 15 training runs of the BLIS comparison",
    (
        "silicon sample of AIConfigurator (Apache-2.0), five sixths by id: vLLM, SGLang, TensorRT-LLM on "
        "H100, H200, B200, B300, GB200, GB300"
    ),
)
_MEASURED_ON = {
    "measured": "held out of training, their class measured by others",
    "unmeasured": "held out of training with their whole model family",
}
PROBABILITIES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


def error_entry(ratios: np.ndarray, measured_on: str) -> dict[str, Any]:
    """A `StepError` as JSON."""
    relative = np.exp(-ratios) - 1
    return {
        "measured_on": measured_on,
        "num_steps": len(ratios),
        "mean_abs_relative": round(float(np.mean(np.abs(relative))), 4),
        "bias_relative": round(float(np.median(relative)), 4),
        "quantiles": {
            str(p): round(float(q), 4)
            for p, q in zip(PROBABILITIES, np.quantile(ratios, PROBABILITIES), strict=True)
        },
    }


def artefact(
    fit: Mapping[str, Any], version: str, errors: Mapping[str, Any], families: Sequence[str]
) -> dict[str, Any]:
    """What `physics.model.read_fitted` reads."""
    return {
        "format": FORMAT,
        "version": version,
        "fitted_on": FITTED_ON,
        "families": families,
        "logs": fit["logs"],
        "classes": fit["cells"],
        "errors": errors,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--fit", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folds", type=Path, required=True, help="folder that folds.py wrote")
    args = parser.parse_args()
    fit = json.loads(args.fit.read_text("utf-8"))
    families = sorted({case.family for case in training_cases(args.data, sample=False)})
    ratios = json.loads((args.folds / "held-out.json").read_text("utf-8"))
    errors = {
        name: error_entry(
            np.array(ratios[name]), f"time per output token of {len(ratios[name])} values {words}"
        )
        for name, words in _MEASURED_ON.items()
    }
    for path in sorted(args.folds.glob("raw-*.json")):
        family = path.stem.removeprefix("raw-")
        other = json.loads(path.read_text("utf-8"))
        text = json.dumps(artefact(other, f"{args.version} without {family}", {}, []))
        (args.folds / f"without-{family}.json").write_text(text)
    args.out.write_text(json.dumps(artefact(fit, args.version, errors, families), indent=1) + "\n")
    print(json.dumps(errors, indent=1))


if __name__ == "__main__":
    main()
