"""How much the speed of a whole run differs from what was fitted on other runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpath.simulate.step_model import Float64s

_PRIOR_SIGMA = 0.03
"""Speed of the same machine differs by about 3 % from run to run before anything is known of it: steps of
repeated vLLM runs, between 1 and 5 % (docs/simulate.md)."""
_PRIOR_WEIGHT = 2.0
"""The prior counts as much as so many parts left out."""


@dataclass(frozen=True, slots=True)
class RunSpeed:
    """Law of log(speed factor) of a new run: Student's t, wider the fewer runs were seen."""

    sigma: float
    """Scale of the logarithm."""
    freedom: float
    """Degrees of freedom."""
    num_parts: int
    """Runs, or blocks of time, that were left out to learn it."""

    def sample(self, random: np.random.Generator) -> float:
        """A log factor."""
        return float(self.sigma * random.standard_t(self.freedom))


def speed_of(log_speed: Float64s) -> RunSpeed:
    """The law from log(measured / predicted) of parts left out, with a weak prior.

    Normal deviations with an inverse-gamma prior on their variance: the next one follows Student's t
    (Gelman and others, Bayesian Data Analysis (2013), section 3.3). The mean is taken as 0: sums were matched.
    """
    num = len(log_speed)
    freedom = num + _PRIOR_WEIGHT
    spread = float((log_speed**2).sum()) + _PRIOR_WEIGHT * _PRIOR_SIGMA**2
    return RunSpeed(float(np.sqrt(spread / freedom)), freedom, num)
