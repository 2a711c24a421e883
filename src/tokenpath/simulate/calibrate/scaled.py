"""A form that keeps the shape of a given curve and finds its scale: few numbers, for few measurements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpath.simulate.step_model import NUM_FEATURES, Float64s, StepCurve

PRIOR_SIGMA = 0.3
"""How far the scales of a curve's parts usually are from each other, as a share: the errors of physics."""
_PREFILL, _DECODE = slice(0, 4), slice(4, 7)
_NAMES = (
    "step",
    "step with prefill",
    "scale of decode steps",
    "scale of steps with prefill",
    "scale of prefill attention",
    "scale of decode attention",
)


@dataclass(frozen=True, slots=True)
class ScaledForm:
    """A curve whose parts are scaled each, plus a constant for any step and one for steps with prefill.

    A curve that overlaps host and device is taken as its sum: what is hidden is for the scale to find.
    """

    base: StepCurve
    """The curve that gives the shape, physics or measured tables."""

    def design(self, features: Float64s) -> Float64s:
        """[num_steps, 6]: the columns of `names`."""
        is_mixed = features[:, 0] > 0
        tables = self._tables().step_ns(features)
        coefficients = self._coefficients()
        return np.stack(
            (
                np.ones(len(features)),
                is_mixed.astype(np.float64),
                np.where(is_mixed, 0.0, tables),
                np.where(is_mixed, tables, 0.0),
                features[:, _PREFILL] @ coefficients[_PREFILL],
                features[:, _DECODE] @ coefficients[_DECODE],
            ),
            axis=1,
        )

    def curve(self, weights: Float64s) -> StepCurve:
        """The scaled curve."""
        step, mixed, decode_scale, mixed_scale, prefill_kv, decode_kv = weights.tolist()
        coefficients = self._coefficients()
        coefficients[_PREFILL] *= prefill_kv
        coefficients[_DECODE] *= decode_kv
        tables = self._tables()
        return StepCurve(
            knots=tables.knots,
            mixed_ns=tables.mixed_ns * mixed_scale + step + mixed,
            decode_ns=tables.decode_ns * decode_scale + step,
            device_coefficients=coefficients,
            host_ns=0.0,
            host_coefficients=np.zeros(NUM_FEATURES),
            is_overlapped=False,
        )

    def names(self) -> list[str]:
        """What each term is."""
        return list(_NAMES)

    def unscaled(self) -> Float64s:
        """The weights that give the base itself."""
        return np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0])

    def _coefficients(self) -> Float64s:
        return self.base.device_coefficients + self.base.host_coefficients

    def _tables(self) -> StepCurve:
        return StepCurve(
            knots=self.base.knots,
            mixed_ns=self.base.mixed_ns + self.base.host_ns,
            decode_ns=self.base.decode_ns + self.base.host_ns,
            device_coefficients=np.zeros(NUM_FEATURES),
            host_ns=0.0,
            host_coefficients=np.zeros(NUM_FEATURES),
            is_overlapped=False,
        )
