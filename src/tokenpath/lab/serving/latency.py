"""How long forward passes and host work take, luck included."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpath.lab.serving.plan import Plan

_NUM_FACTORS = 4096


@cache
def measured() -> dict[str, Any]:
    """noise.toml, read once."""
    return tomllib.loads(files(__package__).joinpath("noise.toml").read_text("utf-8"))


def _factors(which: str, luck: np.random.Generator) -> NDArray[np.float64]:
    """Factors on the length of steps, as recorded steps vary around the line through them."""
    table = measured()
    quantiles = np.interp(luck.random(_NUM_FACTORS), table["probabilities"], table[which])
    factors: NDArray[np.float64] = np.exp(quantiles)
    return factors


class Latency:
    """Lengths of the steps of one replica, in order."""

    def __init__(self, plan: Plan, replica: int) -> None:
        luck = np.random.default_rng((plan.seed, 10, replica))
        self._cost = plan.step
        self._drafts = plan.speculation.num_drafts if plan.speculation is not None else 0
        self._decode, self._prefill = _factors("decode", luck), _factors("prefill", luck)
        self._host = np.exp(0.15 * luck.standard_normal(_NUM_FACTORS))
        self._at = 0

    def step_ns(self, prefill_tokens: int, pairs: float, decode_requests: int, context: int) -> int:
        """Length of the next forward pass: `pairs` of query and key in prefill, `context` attended to in decode."""
        cost = self._cost
        self._at = (self._at + 1) % _NUM_FACTORS
        factor = (self._prefill if prefill_tokens else self._decode)[self._at]
        rows = decode_requests * (1 + self._drafts)
        body = (
            cost.base_ns
            + cost.prefill_token_ns * prefill_tokens
            + cost.pair_ns * pairs
            + cost.decode_request_ns * rows
            + cost.kv_token_ns * context
            + (cost.draft_ns * self._drafts if decode_requests else 0.0)
        )
        return int(body * factor)

    def host_ns(self, mean_ns: float) -> int:
        """A piece of host work of this mean length."""
        self._at = (self._at + 1) % _NUM_FACTORS
        return int(mean_ns * self._host[self._at])
