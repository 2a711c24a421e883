"""How long a step takes: the contract that every source of step latency fulfils.

Three sources: physics (roofline and fitted efficiencies), measured operator tables, the user's own capture.
All of them come down to a `StepCurve`, which the compiled event loop evaluates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]

FEATURES = (
    "num_prefill_requests",
    "num_prefill_tokens",
    "sum_prefill_kv_tokens",
    "num_prefill_pairs",
    "num_decode_requests",
    "num_decode_tokens",
    "sum_decode_kv_tokens",
)
"""What a step's latency depends on, in this order, summed over its requests.

A request is in prefill when it computes prompt tokens, or recomputes after a preemption; else in decode.
`sum_prefill_kv_tokens`: tokens computed before (cached ones too); `num_prefill_pairs`: query-key pairs, n c +
n (n + 1) / 2 for n tokens after c; `num_decode_tokens`: more than requests under speculative decoding;
`sum_decode_kv_tokens`: context length of each decode request, its own new tokens included.
"""
NUM_FEATURES = len(FEATURES)


@dataclass(frozen=True, slots=True)
class StepCurve:
    """Latency of a step in ns, as sums that a compiled loop evaluates.

    device = table(tokens) + features @ device_coefficients
    host   = host_ns + features @ host_coefficients
    step   = max(device, host) if `is_overlapped` else device + host

    `table` is read at tokens = prefill + decode tokens, linearly between its knots and on from its last two;
    a step without prefill reads `decode_ns`, any other `mixed_ns`.
    """

    knots: Float64s
    """Token counts, ascending, at least two."""
    mixed_ns: Float64s
    """Device time of the parts that depend on the number of tokens alone, steps with prefill."""
    decode_ns: Float64s
    """The same for steps of decode only (replayed graphs, padded batches)."""
    device_coefficients: Float64s
    """ns per unit of each of `FEATURES`."""
    host_ns: float
    """Host time of a step that does not depend on it: scheduling, launching, sampling."""
    host_coefficients: Float64s
    """ns per unit of each of `FEATURES`."""
    is_overlapped: bool
    """Whether the host prepares the next step while the device computes (async scheduling, overlap)."""
    noise: Float64s | None = None
    """[2, num_factors] on the latency of steps of decode only and of those with prefill, taken in turn by the
    number of the step on its scheduler (`step_cost.noise_place`); None: every step takes what the curve says."""

    def step_ns(self, features: Float64s) -> Float64s:
        """Latency of steps; `features` is [num_steps, NUM_FEATURES]."""
        tokens = features[:, 1] + features[:, 5]
        table = np.where(
            features[:, 0] > 0,
            _read(self.knots, self.mixed_ns, tokens),
            _read(self.knots, self.decode_ns, tokens),
        )
        device = table + features @ self.device_coefficients
        host = self.host_ns + features @ self.host_coefficients
        result: Float64s = np.maximum(device, host) if self.is_overlapped else device + host
        return result


@dataclass(frozen=True, slots=True)
class StepError:
    """How wrong a step model is on data that it was not fitted to."""

    measured_on: str
    """What that data is, in words."""
    num_steps: int
    """Steps (or runs, where only whole runs were measured)."""
    mean_abs_relative: float
    """Mean of |predicted / measured - 1|."""
    bias_relative: float
    """Sum of predicted over sum of measured, minus 1: what queueing amplifies."""
    quantiles: Mapping[float, float]
    """Quantiles of log(measured / predicted), by probability: what prediction intervals are made of."""


class StepModel(Protocol):
    """A source of step latency."""

    @property
    def curve(self) -> StepCurve:
        """The latency."""

    @property
    def error(self) -> StepError | None:
        """Its error on data left out; None: never measured, which every output must say."""

    @property
    def origin(self) -> str:
        """Where it comes from, a line for people."""


def _read(knots: Float64s, values: Float64s, at: Float64s) -> Float64s:
    """Piecewise linear, going on from the last two knots."""
    segment = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, len(knots) - 2)
    left, right = knots[segment], knots[segment + 1]
    share = (at - left) / (right - left)
    result: Float64s = values[segment] + share * (values[segment + 1] - values[segment])
    return result
