"""Make the artefact that ships: fit, provenance, error on runs left out; and those of column B.

    python -m benchmarks.scoreboard.ship --data FOLDER --fit fit.json --version 2026-12-01 --out fitted.json \\
        [--without-fits FOLDER]

The fit reads training runs only. Here the runs left out are predicted once, to state the error: those whose
class was measured with the fit itself, those of families left out with the fits that never saw them.
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
from benchmarks.scoreboard import blis_cases, silicon_cases
from benchmarks.scoreboard.cases import Case
from benchmarks.scoreboard.fit import training_cases
from benchmarks.scoreboard.predict_many import Predictor

from tokenpath.simulate.physics.efficiency import SCALES
from tokenpath.simulate.physics.model import FORMAT

FITTED_ON = (
    "vLLM 0.15 on H100 under inference-perf, 15 training runs of the BLIS comparison",
    (
        "silicon sample of AIConfigurator (Apache-2.0), five sixths by id: vLLM, SGLang, TensorRT-LLM on "
        "H100, H200, B200, B300, GB200, GB300"
    ),
)
PROBABILITIES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
_METRICS = ("tpot_mean_ms", "itl_mean_ms")


def log_ratios(cases: Sequence[Case], fit: Mapping[str, Any]) -> np.ndarray:
    """log(measured / predicted) of the time per output token."""
    classes = fit["cells"]
    scales = np.array(
        [
            np.sum(
                [classes[k] for k in case.classes if k in classes] or [[0.0] * len(SCALES)], axis=0
            )
            for case in cases
        ]
    )
    out = Predictor(cases).predict(fit["logs"], scales)
    return np.array(
        [
            np.log(case.measured[metric] / row[metric])
            for case, row in zip(cases, out, strict=True)
            for metric in _METRICS
            if metric in case.measured
        ]
    )


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
    parser.add_argument("--without-fits", type=Path, help="folder of raw-FAMILY.json")
    args = parser.parse_args()
    fit = json.loads(args.fit.read_text("utf-8"))
    cases = [
        case
        for module in (blis_cases, silicon_cases)
        for case in module.load_cases(args.data)
        if case.split == "test"
    ]
    families = sorted({case.family for case in training_cases(args.data, sample=False)})
    known = [case for case in cases if any(k in fit["cells"] for k in case.classes)]
    errors: dict[str, Any] = {
        "measured": error_entry(
            log_ratios(known, fit),
            f"time per output token of {len(known)} runs left out, classes measured",
        )
    }
    unseen = log_ratios([c for c in cases if not c.classes], fit).tolist()
    num = len(unseen)
    for path in sorted(args.without_fits.glob("raw-*.json")) if args.without_fits else ():
        family = path.stem.removeprefix("raw-")
        other = json.loads(path.read_text("utf-8"))
        mine = [c for c in cases if c.family == family and c.classes]
        if mine:
            unseen += log_ratios(mine, other).tolist()
            num += len(mine)
        text = json.dumps(artefact(other, f"{args.version} without {family}", {}, []))
        (args.without_fits / f"without-{family}.json").write_text(text)
    errors["unmeasured"] = error_entry(
        np.array(unseen), f"time per output token of {num} runs of models the fit never saw"
    )
    args.out.write_text(json.dumps(artefact(fit, args.version, errors, families), indent=1) + "\n")
    print(json.dumps(errors, indent=1))


if __name__ == "__main__":
    main()
