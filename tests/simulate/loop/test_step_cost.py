"""The scalar latency of a step against the curve it evaluates, plain and compiled."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.simulate.step_cost import Curve, step_latency_ns
from tokenpath.simulate.step_model import NUM_FEATURES, StepCurve

_COEFFICIENTS = st.lists(st.floats(-5, 500), min_size=NUM_FEATURES, max_size=NUM_FEATURES)


def _curve(device: list[float], host: list[float], overlapped: bool) -> StepCurve:
    return StepCurve(
        np.array([1.0, 8.0, 64.0, 2048.0]),
        np.array([9e6, 9.5e6, 11e6, 90e6]),
        np.array([7e6, 7.1e6, 8e6, 70e6]),
        np.array(device),
        1e5,
        np.array(host),
        overlapped,
    )


@given(
    _COEFFICIENTS,
    _COEFFICIENTS,
    st.booleans(),
    st.lists(st.integers(0, 5000), min_size=NUM_FEATURES, max_size=NUM_FEATURES),
)
def test_it_is_the_curve_in_whole_nanoseconds(
    device: list[float], host: list[float], overlapped: bool, features: list[int]
) -> None:
    curve = _curve(device, host, overlapped)
    expected = float(curve.step_ns(np.array([features], np.float64))[0])
    found = step_latency_ns(*Curve.of(curve), features)
    assert found >= 1
    assert abs(found - max(1.0, expected)) <= 0.5 + 1e-9 * abs(expected)


def test_half_a_nanosecond_is_rounded_up() -> None:
    flat = StepCurve(
        np.array([0.0, 1.0]),
        np.array([0.0, 0.0]),
        np.array([0.0, 0.0]),
        np.zeros(7),
        2.5,
        np.zeros(7),
        False,
    )
    assert step_latency_ns(*Curve.of(flat), [0] * 7) == 3


def test_no_step_takes_no_time() -> None:
    nothing = StepCurve(
        np.array([0.0, 1.0]), np.zeros(2), np.zeros(2), np.zeros(7), 0.0, np.zeros(7), True
    )
    assert step_latency_ns(*Curve.of(nothing), [0] * 7) == 1


def test_compiled_it_gives_the_same_bits() -> None:
    import numba

    compiled = numba.njit(step_latency_ns)
    generator = np.random.default_rng(3)
    curve = _curve(generator.normal(0, 100, 7).tolist(), generator.normal(0, 9, 7).tolist(), False)
    arrays = (
        curve.knots,
        curve.mixed_ns,
        curve.decode_ns,
        curve.device_coefficients,
        curve.host_ns,
        curve.host_coefficients,
        curve.is_overlapped,
    )
    for features in generator.integers(0, 3000, (300, 7)):
        assert compiled(*arrays, features) == step_latency_ns(*Curve.of(curve), features.tolist())
