"""The forms that a fitted step cost may have: columns that least squares weighs, and the curve they make."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tokenpath.simulate.step_model import FEATURES, NUM_FEATURES, Float64s, StepCurve

_PREFILL_REQUESTS, _PREFILL_TOKENS, _PREFILL_KV, _PAIRS = 0, 1, 2, 3
_DECODE_REQUESTS, _DECODE_TOKENS, _DECODE_KV = 4, 5, 6
_MIN_STEPS_BETWEEN_KNOTS = 40
"""Fewer steps than this say little about a slope of their own."""
_MAX_SEGMENTS = 8
_MIN_STEPS_A_TERM = 8
"""Fewer steps for each term fit noise: terms that matter less are left out then."""
_BY_WEIGHT = (_PREFILL_TOKENS, _DECODE_KV, _DECODE_REQUESTS, _PAIRS, _PREFILL_REQUESTS, _PREFILL_KV)
"""Features in the order in which they usually matter; `_DECODE_TOKENS` only where tokens are drafted."""


@dataclass(frozen=True, slots=True)
class Form:
    """Which terms a cost has; each coefficient is at least 0, so cost grows with work."""

    name: str
    """`linear`: constants and slopes; `table`: cost of a token count by pieces as well."""
    columns: tuple[int, ...]
    """Features with a coefficient, by their place in `FEATURES`."""
    mixed_knots: tuple[float, ...]
    """Token counts between which steps with prefill have a slope each; () for none."""
    decode_knots: tuple[float, ...]
    """The same for steps of decode only."""

    def design(self, features: Float64s) -> Float64s:
        """[num_steps, num_terms]: constants of any step and of mixed ones, slopes of tokens, features."""
        is_mixed = (features[:, _PREFILL_REQUESTS] > 0).astype(np.float64)
        tokens = features[:, _PREFILL_TOKENS] + features[:, _DECODE_TOKENS]
        terms = [np.ones(len(features)), is_mixed]
        terms += [(1 - is_mixed) * piece for piece in _pieces(tokens, self.decode_knots)]
        terms += [is_mixed * piece for piece in _pieces(tokens, self.mixed_knots)]
        terms += [features[:, column] for column in self.columns]
        return np.stack(terms, axis=1)

    def curve(self, weights: Float64s) -> StepCurve:
        """The compiled form of a weighted sum of the terms (ns each)."""
        num_decode = max(len(self.decode_knots) - 1, 0)
        num_mixed = max(len(self.mixed_knots) - 1, 0)
        decode_slopes = weights[2 : 2 + num_decode]
        mixed_slopes = weights[2 + num_decode : 2 + num_decode + num_mixed]
        knots = np.unique(np.array((*self.decode_knots, *self.mixed_knots, 1.0, 2.0)))
        coefficients = np.zeros(NUM_FEATURES)
        coefficients[list(self.columns)] = weights[2 + num_decode + num_mixed :]
        return StepCurve(
            knots=knots,
            mixed_ns=weights[0]
            + weights[1]
            + _sum_of_pieces(knots, self.mixed_knots, mixed_slopes),
            decode_ns=weights[0] + _sum_of_pieces(knots, self.decode_knots, decode_slopes),
            device_coefficients=coefficients,
            host_ns=0.0,
            host_coefficients=np.zeros(NUM_FEATURES),
            is_overlapped=False,
        )

    def names(self) -> list[str]:
        """What each term is, in the order of `design`."""
        slopes = [
            f"{kind}: per token of {low:.0f} to {high:.0f}"
            for kind, knots in (("decode", self.decode_knots), ("mixed", self.mixed_knots))
            for low, high in pairwise(knots)
        ]
        return [
            "step",
            "step with prefill",
            *slopes,
            *(FEATURES[column] for column in self.columns),
        ]


def forms_for(features: Float64s) -> list[Form]:
    """The forms worth trying on such steps, the simplest first."""
    is_mixed = features[:, _PREFILL_REQUESTS] > 0
    varying = [column for column in _BY_WEIGHT if features[:, column].any()]
    if not (features[is_mixed, _PREFILL_REQUESTS] > 1).any():
        # With one prefill in each it is what "step with prefill" says.
        varying = [column for column in varying if column != _PREFILL_REQUESTS]
    if (features[:, _DECODE_TOKENS] != features[:, _DECODE_REQUESTS]).any():
        varying.insert(2, _DECODE_TOKENS)
    columns = tuple(sorted(varying[: max(len(features) // _MIN_STEPS_A_TERM - 2, 1)]))
    forms = [Form("linear", columns, (), ())]
    tokens = features[:, _PREFILL_TOKENS] + features[:, _DECODE_TOKENS]
    mixed, decode = _knots(tokens[is_mixed]), _knots(tokens[~is_mixed])
    if mixed or decode:
        table = tuple(column for column in columns if column != _PREFILL_TOKENS or not mixed)
        forms.append(Form("table", table, mixed, decode))
    return forms


def _knots(tokens: Float64s) -> tuple[float, ...]:
    """Powers of two with enough steps between them; () where there are not enough steps for two slopes."""
    if len(tokens) < 2 * _MIN_STEPS_BETWEEN_KNOTS:
        return ()
    knots = [1.0]
    powers = 2.0 ** np.arange(1, 1 + int(np.ceil(np.log2(max(tokens.max(), 2.0)))))
    for power in powers:
        if ((tokens > knots[-1]) & (tokens <= power)).sum() >= _MIN_STEPS_BETWEEN_KNOTS:
            knots.append(float(power))
    if (tokens > knots[-1]).any():
        # The rest belongs to the last piece, which goes on beyond its end.
        knots = [*knots[:-1], float(powers[-1])] if len(knots) > 2 else knots
    while len(knots) - 1 > _MAX_SEGMENTS:
        del knots[1]
    return tuple(knots) if len(knots) > 2 else ()


def _pieces(tokens: Float64s, knots: tuple[float, ...]) -> list[Float64s]:
    """Tokens within each piece; the last one has no end."""
    pieces = []
    for place in range(len(knots) - 1):
        high = knots[place + 1] if place < len(knots) - 2 else np.inf
        pieces.append(np.clip(tokens, knots[place], high) - knots[place])
    return pieces


def _sum_of_pieces(at: Float64s, knots: tuple[float, ...], slopes: Float64s) -> Float64s:
    total = np.zeros(len(at))
    for slope, piece in zip(slopes, _pieces(at, knots), strict=True):
        total += slope * piece
    return total
