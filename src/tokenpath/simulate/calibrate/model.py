"""A calibrated step model: the fit with its error, its sources and what it was fitted on, and its JSON form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tokenpath.core.errors import DamagedInput
from tokenpath.simulate.calibrate.noise import StepNoise
from tokenpath.simulate.calibrate.overheads import Delay, Overheads
from tokenpath.simulate.calibrate.speed import RunSpeed
from tokenpath.simulate.step_model import NUM_FEATURES, Float64s, StepCurve, StepError

FORMAT = "tokenpath step model"
VERSION = 1
"""1: first form. Raised when a field changes meaning or goes away."""
_TEN_MIB = 10 * 2**20


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that a model was fitted on."""

    path: str
    """Its name."""
    format: str
    """Format in which it was read."""
    sha256: str | None
    """Hash of its bytes; None where it was not hashed."""
    num_bytes: int | None
    """Its size; None where unknown."""


@dataclass(frozen=True, slots=True)
class CalibratedStepModel:
    """A `StepModel` fitted on captures of the user's own engine."""

    curve: StepCurve
    """Latency of a step."""
    error: StepError | None
    """On steps left out of the fit."""
    origin: str
    """Where it comes from, a line for people."""
    terms: Mapping[str, float]
    """What was fitted, ns per unit of each term by its name."""
    speed: RunSpeed
    """How much whole runs differ in speed."""
    draws: tuple[StepCurve, ...]
    """Curves fitted to resampled blocks of time."""
    overheads: Overheads
    """Delays outside the engine."""
    usual_gap_ns: float
    """Median time between steps that follow each other at once; part of the latency."""
    stall_share: float
    """Time beyond what any feature explains, of all step time."""
    num_steps: int
    """Steps fitted."""
    num_runs: int
    """Captures fitted."""
    num_left_out: int
    """Steps that could not be used."""
    notes: tuple[str, ...]
    """What was estimated or is unusual, in sentences."""
    sources: tuple[SourceFile, ...]
    """Files of the captures."""
    settings: Mapping[str, str]
    """Settings of the engine that all captures agree on."""
    noise: StepNoise | None = None
    """How single steps differ from the curve; None: not known."""

    def sample(self, random: np.random.Generator) -> StepCurve:
        """A curve that another run could have had: unsure coefficients, another speed, its own noise."""
        drawn = self.draws[int(random.integers(len(self.draws)))] if self.draws else self.curve
        curve = self.speed.sample(drawn, random)
        if self.noise is None:
            return curve
        return replace(curve, noise=self.noise.draw(int(random.integers(2**31))))


def to_json(model: CalibratedStepModel) -> str:
    """The artefact: one JSON object; the same model gives the same text."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "origin": model.origin,
        "curve": _curve_to_dict(model.curve),
        "error": None if model.error is None else _keys_to_text(asdict(model.error), "quantiles"),
        "terms": dict(model.terms),
        "speed": asdict(model.speed),
        "draws": [_curve_to_dict(curve) for curve in model.draws],
        "overheads": {
            name: None if delay is None else _keys_to_text(delay, "quantiles")
            for name, delay in asdict(model.overheads).items()
        },
        "usual_gap_ns": model.usual_gap_ns,
        "stall_share": model.stall_share,
        "num_steps": model.num_steps,
        "num_runs": model.num_runs,
        "num_left_out": model.num_left_out,
        "notes": list(model.notes),
        "sources": [asdict(source) for source in model.sources],
        "settings": dict(model.settings),
        "noise": None if model.noise is None else asdict(model.noise),
    }
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def read_model(path: str | Path) -> CalibratedStepModel:
    """The model of a file. DamagedInput for a file that is none, or of another version."""
    place = Path(path)
    try:
        if place.stat().st_size > _TEN_MIB:
            raise DamagedInput("too large for a step model", where=str(place), allowed="10 MiB")
        text = place.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedInput(f"cannot be read: {error}", where=str(place)) from None
    return from_json(text, where=str(place))


def from_json(text: str, *, where: str | None = None) -> CalibratedStepModel:
    """What `to_json` wrote. DamagedInput for anything else, with the place that does not fit."""
    try:
        content = json.loads(text)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise DamagedInput(
                "no step model", where=where, next_step="tokenpath calibrate CAPTURE --to FILE"
            )
        if content.get("version") != VERSION:
            raise DamagedInput(
                f"a step model of version {content.get('version')!r}",
                where=where,
                allowed=f"version {VERSION}",
                next_step="calibrate again with this version",
            )
        return _model(content)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedInput(
            f"damaged step model: {type(error).__name__}: {error}",
            where=where,
            next_step="tokenpath calibrate CAPTURE --to FILE",
        ) from None


def _model(content: dict[str, Any]) -> CalibratedStepModel:
    error = content["error"]
    return CalibratedStepModel(
        curve=_curve(content["curve"]),
        error=None if error is None else StepError(**_keys_to_numbers(error, "quantiles")),
        origin=str(content["origin"]),
        terms={str(name): float(value) for name, value in content["terms"].items()},
        speed=RunSpeed(**content["speed"]),
        draws=tuple(_curve(entry) for entry in content["draws"]),
        overheads=Overheads(
            **{
                name: None if entry is None else Delay(**_keys_to_numbers(entry, "quantiles"))
                for name, entry in content["overheads"].items()
            }
        ),
        usual_gap_ns=float(content["usual_gap_ns"]),
        stall_share=float(content["stall_share"]),
        num_steps=int(content["num_steps"]),
        num_runs=int(content["num_runs"]),
        num_left_out=int(content["num_left_out"]),
        notes=tuple(str(note) for note in content["notes"]),
        sources=tuple(SourceFile(**entry) for entry in content["sources"]),
        settings={str(name): str(value) for name, value in content["settings"].items()},
        noise=_noise(content.get("noise")),
    )


def _noise(entry: dict[str, Any] | None) -> StepNoise | None:
    if entry is None:
        return None
    decode, mixed = (tuple(_floats(entry[kind]).tolist()) for kind in ("decode", "mixed"))
    return StepNoise(decode, mixed)


def _curve_to_dict(curve: StepCurve) -> dict[str, Any]:
    return {
        "knots": curve.knots.tolist(),
        "mixed_ns": curve.mixed_ns.tolist(),
        "decode_ns": curve.decode_ns.tolist(),
        "device_coefficients": curve.device_coefficients.tolist(),
        "host_ns": curve.host_ns,
        "host_coefficients": curve.host_coefficients.tolist(),
        "is_overlapped": curve.is_overlapped,
    }


def _curve(entry: dict[str, Any]) -> StepCurve:
    knots = _floats(entry["knots"])
    if len(knots) < 2 or not (np.diff(knots) > 0).all():
        raise ValueError("knots must ascend, and be two at least")
    is_overlapped = entry["is_overlapped"]
    if not isinstance(is_overlapped, bool):
        raise TypeError("is_overlapped must be true or false")
    return StepCurve(
        knots=knots,
        mixed_ns=_floats(entry["mixed_ns"], len(knots)),
        decode_ns=_floats(entry["decode_ns"], len(knots)),
        device_coefficients=_floats(entry["device_coefficients"], NUM_FEATURES),
        host_ns=float(_floats([entry["host_ns"]])[0]),
        host_coefficients=_floats(entry["host_coefficients"], NUM_FEATURES),
        is_overlapped=is_overlapped,
    )


def _floats(values: Sequence[object], length: int | None = None) -> Float64s:
    result = np.array(values, np.float64)
    if result.ndim != 1 or (length is not None and len(result) != length):
        raise ValueError(f"{length} numbers expected, found shape {result.shape}")
    if not np.isfinite(result).all():
        raise ValueError("a number that is not finite")
    return result


def _keys_to_text(entry: dict[str, Any], name: str) -> dict[str, Any]:
    return {**entry, name: {repr(float(at)): value for at, value in entry[name].items()}}


def _keys_to_numbers(entry: dict[str, Any], name: str) -> dict[str, Any]:
    return {**entry, name: {float(at): float(value) for at, value in entry[name].items()}}
