"""How much the speed of a whole run differs from what was fitted on other runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tokenpath.simulate.step_model import Float64s, StepCurve

_PRIOR_SIGMA = 0.03
"""Speed of the same machine differs by about 3 % from run to run before anything is known of it: repeated
vLLM runs on a CPU differed by 1 to 5 % (docs/calibrate.md)."""
_PRIOR_WEIGHT = 2.0
"""The prior counts as much as so many parts left out."""
BLOCK_WEIGHT = 1 / 3
"""A block of time within a run counts as a third of a run: blocks share what is peculiar to their run. Intervals
from single vLLM runs held 81 % of other runs' figures where blocks counted whole, at a level of 90 %."""
_PREFILL, _DECODE = slice(0, 4), slice(4, 7)


@dataclass(frozen=True, slots=True)
class RunSpeed:
    """Law of log(speed factor) of a new run: Student's t, wider the fewer runs were seen.

    Steps of decode only and steps with prefill move together, each by its own sigma: what slows memory
    slows decode most.
    """

    sigma: float
    """Scale of the logarithm for all steps together."""
    decode_sigma: float
    """The same for steps of decode only."""
    prefill_sigma: float
    """The same for steps with prefill."""
    freedom: float
    """Degrees of freedom."""
    num_parts: int
    """Runs, or blocks of time, that were left out to learn it."""

    def sample(self, curve: StepCurve, random: np.random.Generator) -> StepCurve:
        """The curve at the speed of another run."""
        deviation = float(random.standard_t(self.freedom))
        return scale_parts(
            curve,
            math.exp(self.decode_sigma * deviation),
            math.exp(self.prefill_sigma * deviation),
        )


def speed_of(
    log_speed: Float64s, decode: Float64s, prefill: Float64s, *, part_weight: float = 1.0
) -> RunSpeed:
    """The law from log(measured / predicted) of parts left out: all steps, decode only, with prefill.

    Parts without steps of a kind are left out of its array; `part_weight` is less than 1 for parts that are
    not runs of their own (BLOCK_WEIGHT). Normal deviations with an inverse-gamma prior on
    their variance: the next one follows Student's t (Gelman and others, Bayesian Data Analysis (2013),
    section 3.3). The mean is taken as 0: sums were matched.
    """
    num = len(log_speed)
    return RunSpeed(
        sigma=_sigma(log_speed, part_weight),
        decode_sigma=_sigma(decode, part_weight),
        prefill_sigma=_sigma(prefill, part_weight),
        freedom=part_weight * num + _PRIOR_WEIGHT,
        num_parts=num,
    )


def scale_curve(curve: StepCurve, factor: float) -> StepCurve:
    """The same curve, every step `factor` times as long."""
    return scale_parts(curve, factor, factor)


def scale_parts(curve: StepCurve, decode: float, prefill: float) -> StepCurve:
    """The same curve, what belongs to decode and what belongs to prefill each so many times as long.

    Host time that no request causes is decode's: most steps are.
    """
    by_feature = np.ones(len(curve.device_coefficients))
    by_feature[_PREFILL], by_feature[_DECODE] = prefill, decode
    # Where host and device overlap they are not summed, and each keeps its own.
    shift = 0.0 if curve.is_overlapped else curve.host_ns * (prefill - decode)
    return StepCurve(
        knots=curve.knots,
        mixed_ns=curve.mixed_ns * prefill + shift,
        decode_ns=curve.decode_ns * decode,
        device_coefficients=curve.device_coefficients * by_feature,
        host_ns=curve.host_ns * decode,
        host_coefficients=curve.host_coefficients * by_feature,
        is_overlapped=curve.is_overlapped,
        noise=curve.noise,
    )


def _sigma(log_speed: Float64s, part_weight: float) -> float:
    spread = part_weight * float((log_speed**2).sum()) + _PRIOR_WEIGHT * _PRIOR_SIGMA**2
    return float(np.sqrt(spread / (part_weight * len(log_speed) + _PRIOR_WEIGHT)))
