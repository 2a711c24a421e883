"""The shipped physics model: fitted efficiencies, measured scales, and their error on data left out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from tokenpath.core.errors import InputError
from tokenpath.simulate.physics.classes import engine_release, keys_of
from tokenpath.simulate.physics.curve import build_curve
from tokenpath.simulate.physics.deployment import ENGINES, Deployment
from tokenpath.simulate.physics.efficiency import SCALES, Efficiency, generation, resolve
from tokenpath.simulate.physics.terms import terms_of
from tokenpath.simulate.step_model import StepCurve, StepError

ARTEFACT = "fitted.json"
FORMAT = 1
"""1: logs, classes, errors by whether the class was measured."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """What `fitted.json` holds."""

    version: str
    """Date and number of the fit."""
    fitted_on: Sequence[str]
    """Sets of measured runs, in words."""
    families: Sequence[str]
    """Model families among them."""
    logs: Mapping[str, float]
    """Fitted logarithms by parameter."""
    classes: Mapping[str, Sequence[float]]
    """Logarithms of `SCALES` by class or release."""
    measured_error: StepError | None
    """On runs left out whose class was measured."""
    unmeasured_error: StepError | None
    """On runs of models that the fit never saw."""


@dataclass(frozen=True, slots=True)
class PhysicsModel:
    """Step latency of a deployment from physics."""

    curve: StepCurve
    """The latency."""
    error: StepError | None
    """Its error on runs left out."""
    origin: str
    """Where it comes from, a line for people."""
    frontend_ns: float
    """Server and client beside the engine, until the first token is seen."""
    frontend_token_ns: float
    """More of it for each token of the prompt."""

    def frontend_ns_of(self, prompt_tokens: float) -> int:
        """Time beside the engine for a prompt of so many tokens, whole ns."""
        return round(self.frontend_ns + self.frontend_token_ns * prompt_tokens)


def physics_model(at: Deployment, fitted: Fitted | None = None) -> PhysicsModel:
    """Build the model of a deployment; about a millisecond. `fitted` None: the shipped one."""
    found = fitted or load_fitted()
    eff, is_measured = efficiency_of(at, found)
    known = "its class was measured" if is_measured else "no run of its class was measured"
    return PhysicsModel(
        curve=build_curve(terms_of(at), eff),
        error=found.measured_error if is_measured else found.unmeasured_error,
        origin=f"physics, fit {found.version}; {known}",
        frontend_ns=eff.frontend_ns,
        frontend_token_ns=eff.frontend_token_ns,
    )


def efficiency_of(at: Deployment, fitted: Fitted) -> tuple[Efficiency, bool]:
    """The numbers of a deployment, and whether its class was measured."""
    if at.engine not in ENGINES:
        raise InputError(
            f"no efficiencies for engine {at.engine!r}",
            allowed=", ".join(ENGINES),
            next_step="name one of these, or calibrate from a capture",
        )
    keys = [key for key in keys_of(at) if key in fitted.classes]
    scales = [sum(fitted.classes[key][i] for key in keys) for i in range(len(SCALES))]
    eff = resolve(fitted.logs, at.engine, generation(at.hardware), engine_release(at), scales)
    if at.expert_imbalance is not None:
        eff = replace(eff, imbalance=at.expert_imbalance)
    return eff, bool(keys)


@cache
def load_fitted() -> Fitted:
    """The shipped fit."""
    return read_fitted(files(__package__).joinpath(ARTEFACT).read_text("utf-8"))


def read_fitted(text: str) -> Fitted:
    """Parse an artefact; InputError for another format."""
    data = json.loads(text)
    if data.get("format") != FORMAT:
        raise InputError(
            f"format {data.get('format')} of fitted efficiencies",
            allowed=str(FORMAT),
            next_step="fit again with this release",
        )
    errors = data.get("errors", {})
    return Fitted(
        version=data["version"],
        fitted_on=tuple(data["fitted_on"]),
        families=tuple(data.get("families", ())),
        logs=MappingProxyType(data["logs"]),
        classes=MappingProxyType({k: tuple(v) for k, v in data["classes"].items()}),
        measured_error=_error(errors.get("measured")),
        unmeasured_error=_error(errors.get("unmeasured")),
    )


def _error(entry: dict[str, Any] | None) -> StepError | None:
    if entry is None:
        return None
    return StepError(
        measured_on=entry["measured_on"],
        num_steps=entry["num_steps"],
        mean_abs_relative=entry["mean_abs_relative"],
        bias_relative=entry["bias_relative"],
        quantiles={float(p): v for p, v in entry["quantiles"].items()},
    )
