"""Luck: how lengths vary. The numbers are fitted to real traces by tools/fit_lab_noise.py (noise.toml)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Measured:
    """What noise.toml holds."""

    kernel_ns: F64
    """Lengths at which the spread was measured."""
    kernel_spread: F64
    """Relative spread (half of the 16th to 84th percentile) of repeated kernels of that length."""
    quantiles: F64
    """Probabilities of the quantile columns below."""
    gap_ns: F64
    """Gap between two kernels of a stream when the second was queued."""
    graph_gap_ns: F64
    """Gap between two kernels of one graph."""
    latency_ns: F64
    """From the start of a launching call to its kernel on an idle stream."""
    call_tail: float
    """Share of host calls that take several times as long."""


@cache
def measured() -> Measured:
    """The fitted numbers, read once."""
    table = tomllib.loads(files(__package__).joinpath("noise.toml").read_text("utf-8"))
    return Measured(
        kernel_ns=np.array(table["kernel"]["ns"], np.float64),
        kernel_spread=np.array(table["kernel"]["spread"], np.float64),
        quantiles=np.array(table["quantiles"], np.float64),
        gap_ns=np.array(table["gap_ns"], np.float64),
        graph_gap_ns=np.array(table["graph_gap_ns"], np.float64),
        latency_ns=np.array(table["latency_ns"], np.float64),
        call_tail=float(table["call_tail"]),
    )


def host_factors(
    spread: F64, extra: NDArray[np.bool_], rng: np.random.Generator, luck: np.random.Generator
) -> F64:
    """Factor on the length of each instruction; `extra` ones draw from `luck`."""
    normal = _draw(extra, rng, luck)
    factor = np.exp(spread * normal)
    # An interrupt, a cache miss, a page fault: a few calls in a hundred take much longer.
    tail = np.zeros(len(spread), np.bool_)
    kept = ~extra
    tail[kept] = rng.random(int(kept.sum())) < measured().call_tail
    factor[tail & (spread > 0)] *= 1.0 + rng.exponential(1.6, int((tail & (spread > 0)).sum()))
    result: F64 = factor
    return result


def work_lengths(
    ns: F64, extra: NDArray[np.bool_], rng: np.random.Generator, luck: np.random.Generator
) -> I64:
    """Lengths of device work around what is expected."""
    numbers = measured()
    spread = np.interp(
        np.log(np.maximum(ns, 1.0)), np.log(numbers.kernel_ns), numbers.kernel_spread
    )
    drift = 1.0 + 0.0015 * rng.standard_normal()
    lengths = ns * drift * np.exp(spread * _draw(extra, rng, luck))
    return lengths.astype(np.int64)


def transfer_lengths(ns: F64, rng: np.random.Generator) -> I64:
    """Lengths of transfers around what is expected."""
    return (ns * np.exp(0.02 * rng.standard_normal(len(ns)))).astype(np.int64)


def delays(works: I64, graph: I64, rng: np.random.Generator) -> tuple[I64, I64]:
    """Latency from the call, and gap after the work before, of each work."""
    numbers = measured()
    first = rng.random(len(works))
    second = rng.random(len(works))
    latency = np.interp(first, numbers.quantiles, numbers.latency_ns)
    latency = np.where(works[:, 3] > 5_600, latency + works[:, 3] - 5_600, latency)
    latency = np.where(works[:, 3] == 1_500, 1_500, np.where(works[:, 3] == 0, 0, latency))
    gap = np.interp(second, numbers.quantiles, numbers.gap_ns)
    inner = np.interp(second, numbers.quantiles, numbers.graph_gap_ns)
    gap = np.where((graph >= 0) & (works[:, 3] == 0), inner, gap)
    return latency.astype(np.int64), gap.astype(np.int64)


def _draw(extra: NDArray[np.bool_], rng: np.random.Generator, luck: np.random.Generator) -> F64:
    normal = np.empty(len(extra))
    kept = ~extra
    normal[kept] = rng.standard_normal(int(kept.sum()))
    normal[extra] = luck.standard_normal(int(extra.sum()))
    return normal
