"""Chance by purpose: changing the lengths of a workload does not move its arrivals."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.errors import UsageError

Floats = NDArray[np.float64]


class Purpose(IntEnum):
    """What random numbers are drawn for; each purpose has a stream of its own."""

    ARRIVAL = 0
    PROMPT = 1
    OUTPUT = 2
    GROUP = 3
    PREFIX = 4
    TURNS = 5
    THINK = 6
    ORDER = 7
    REUSE = 8
    CLIENT = 9


def stream(seed: int, purpose: Purpose, *more: int) -> np.random.Generator:
    """The generator of a purpose (and of a client or stage of it); the same numbers for the same arguments.

    Streams are children of one `SeedSequence` (NumPy, "Parallel random number generation"), so none overlaps
    another. UsageError for a negative seed.
    """
    if seed < 0:
        raise UsageError(f"{seed} is no seed", where="seed", allowed="a whole number from 0 on")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(purpose), *more)))


def split(rng: np.random.Generator, count: int) -> list[np.random.Generator]:
    """So many independent generators. Unlike `Generator.spawn` it depends on the generator's state alone."""
    return [np.random.default_rng(seed) for seed in rng.integers(0, 1 << 62, (count, 4))]


# Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988, PPND16.
_CENTRE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
     1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
     3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
     5.2264952788528545610e3),
)  # fmt: skip
_SIDE = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
     3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
     1.05075007164441684324e-9),
)  # fmt: skip
_FAR = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
     2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
     2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
     2.04426310338993978564e-15),
)  # fmt: skip


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Floats) -> Floats:
    above, below = coefficients
    return np.asarray(np.polyval(above[::-1], x) / np.polyval(below[::-1], x))


def normal_quantile(uniform: Floats) -> Floats:
    """Where the standard normal distribution reaches each probability, which lies inside (0, 1)."""
    offset = uniform - 0.5
    result = offset * _ratio(_CENTRE, 0.180625 - offset * offset)
    side = np.flatnonzero(np.abs(offset) > 0.425)
    if len(side):
        distance = np.sqrt(-np.log(np.minimum(uniform[side], 1.0 - uniform[side])))
        near = _ratio(_SIDE, distance - 1.6)
        value = np.where(distance <= 5.0, near, _ratio(_FAR, distance - 5.0))
        result[side] = np.copysign(value, offset[side])
    return np.asarray(result)


_erfc: Any = np.frompyfunc(math.erfc, 1, 1)


def normal_share(value: Floats) -> Floats:
    """Share of the standard normal distribution below each value."""
    return np.asarray(0.5 * _erfc(-value / math.sqrt(2.0)).astype(np.float64))


def uniforms(rng: np.random.Generator, count: int) -> Floats:
    """Numbers inside (0, 1), both ends excluded: a quantile of 0 or 1 may be infinite."""
    return np.asarray((rng.integers(0, 1 << 52, count) + 0.5) * 2.0**-52)
