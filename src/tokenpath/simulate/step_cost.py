"""The latency of one step in whole nanoseconds: one function, the same in plain Python and compiled.

`StepCurve.step_ns` evaluates many steps at once for fits and plots; the event loops, plain and compiled,
must agree to the bit, so both apply this function and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tokenpath.simulate.step_model import StepCurve


class Curve(NamedTuple):
    """A `StepCurve` as plain numbers, in the order in which `step_latency_ns` takes them."""

    knots: Sequence[float]
    mixed_ns: Sequence[float]
    decode_ns: Sequence[float]
    device: Sequence[float]
    host_ns: float
    host: Sequence[float]
    is_overlapped: bool

    @classmethod
    def of(cls, curve: StepCurve) -> Curve:
        """Python numbers of a curve: what the plain loop is fastest with."""
        return cls(
            tuple(curve.knots.tolist()),
            tuple(curve.mixed_ns.tolist()),
            tuple(curve.decode_ns.tolist()),
            tuple(curve.device_coefficients.tolist()),
            float(curve.host_ns),
            tuple(curve.host_coefficients.tolist()),
            bool(curve.is_overlapped),
        )


def step_latency_ns(
    knots: Sequence[float],
    mixed_ns: Sequence[float],
    decode_ns: Sequence[float],
    device: Sequence[float],
    host_ns: float,
    host: Sequence[float],
    is_overlapped: bool,
    features: Sequence[int],
) -> int:
    """Latency of a step with these `FEATURES`, rounded half up to whole ns, at least 1.

    Valid as Python over sequences of numbers and as numba nopython code over arrays; the order of the
    additions is part of the result, so it must not be compiled with fast-math.
    """
    tokens = float(features[1] + features[5])
    low, high = 0, len(knots) - 2
    # The last knot not above `tokens`; the outer two segments go on beyond the ends.
    while low < high:
        middle = (low + high + 1) // 2
        if knots[middle] <= tokens:
            low = middle
        else:
            high = middle - 1
    share = (tokens - knots[low]) / (knots[low + 1] - knots[low])
    if features[0] > 0:
        on_device = mixed_ns[low] + share * (mixed_ns[low + 1] - mixed_ns[low])
    else:
        on_device = decode_ns[low] + share * (decode_ns[low + 1] - decode_ns[low])
    on_host = host_ns
    for number in range(len(features)):
        on_device += device[number] * features[number]
        on_host += host[number] * features[number]
    latency = max(on_device, on_host) if is_overlapped else on_device + on_host
    return max(1, math.floor(latency + 0.5))


def noise_place(endpoint: int, number: int, num_factors: int) -> int:
    """Which factor the step of that number on its scheduler takes: schedulers begin at places far apart."""
    return (number + 1009 * endpoint) % num_factors


def noisy_ns(latency_ns: int, factor: float) -> int:
    """A latency with its noise, rounded half up to whole ns, at least 1."""
    return max(1, math.floor(latency_ns * factor + 0.5))
