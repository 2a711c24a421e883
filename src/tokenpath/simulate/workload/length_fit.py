"""Laws of lengths fitted to measured ones, judged on requests that they were not fitted to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.errors import UsageError
from tokenpath.simulate.workload.chance import Floats, Purpose, normal_quantile, stream
from tokenpath.simulate.workload.lengths import (
    BodyAndTail,
    Fixed,
    LengthLaw,
    Lognormal,
    PairLaw,
    Pairs,
    Quantiles,
    Sample,
    TwoLaws,
)
from tokenpath.simulate.workload.statistics import mean_ranks
from tokenpath.simulate.workload.workload import Int64s

NUM_BLOCKS = 40
"""Runs of requests; a law fitted to the even ones is judged on the odd ones, and the reverse."""
MIN_LENGTHS = 100
"""Below it no law is judged: the quantiles are taken as they are."""
TAIL_SHARES = (0.02, 0.05, 0.1)
MIN_PAIRS = 1000
"""Below it pairs are not judged."""
NUM_DRAWN = 50_000
MAX_RECORDS = 4096
"""Pairs, or requests with what they share, that a model keeps."""
SIMPLER_BY = 1.15
"""A law of few numbers is kept while its error is at most so many times that of the best."""
MIN_SIGMA = 1e-3
_SHARES = (*(index / 100 for index in range(100)), 0.995, 0.999, 1.0)


@dataclass(frozen=True, slots=True)
class LengthCandidate:
    """A law with its error."""

    kind: str
    """`lognormal`, `body_and_tail` or `quantiles`."""
    num_parameters: int
    """Numbers that were fitted."""
    error: float
    """Mean distance of the logarithms of its quantiles and of held-out ones: 0.1 is 10 % of a length."""


@dataclass(frozen=True, slots=True)
class LengthFit:
    """The law chosen for one length, and what it was chosen from."""

    law: LengthLaw
    """The law, fitted to all requests."""
    kind: str
    """Which candidate it is."""
    candidates: tuple[LengthCandidate, ...]
    """All that were tried, closest first; empty where there were too few requests to judge."""


def fit_lengths(tokens: Int64s) -> LengthFit:
    """The law of a column of lengths. UsageError for none."""
    if not len(tokens):
        raise UsageError("no length to fit to", where="workload")
    if tokens.min() == tokens.max():
        return LengthFit(Fixed(int(tokens[0])), "fixed", ())
    if len(tokens) < MIN_LENGTHS:
        return LengthFit(_quantiles(tokens), "quantiles", ())
    owner = np.arange(len(tokens)) * NUM_BLOCKS // len(tokens)
    even = owner % 2 == 0
    makers: dict[str, Callable[[Int64s], LengthLaw]] = {
        "lognormal": _lognormal,
        "body_and_tail": _body_and_tail,
        "quantiles": _quantiles,
    }
    sizes = {"lognormal": 2, "body_and_tail": 5, "quantiles": len(_SHARES)}
    candidates = []
    for kind, make in makers.items():
        first = _distance(make(tokens[even]), tokens[~even])
        second = _distance(make(tokens[~even]), tokens[even])
        candidates.append(LengthCandidate(kind, sizes[kind], (first + second) / 2))
    best = min(found.error for found in candidates)
    picked = min(
        (found for found in candidates if found.error <= SIMPLER_BY * best),
        key=lambda found: found.num_parameters,
    )
    ranked = tuple(sorted(candidates, key=lambda found: found.error))
    return LengthFit(makers[picked.kind](tokens), picked.kind, ranked)


@dataclass(frozen=True, slots=True)
class PairFit:
    """The law of pairs, and what it was chosen from."""

    law: TwoLaws | Sample
    """The law, fitted to all requests."""
    prompt: LengthFit
    """The law of prompts alone."""
    output: LengthFit
    """The law of outputs alone."""
    copula_error: float | None
    """Share of held-out pairs that two laws with a correlation put elsewhere; None: too few to judge."""
    sample_error: float | None
    """The same for rows resampled together."""


def fit_pairs(prompt_tokens: Int64s, output_tokens: Int64s) -> PairFit:
    """Two laws with a correlation, or rows resampled together where those put held-out pairs better.

    Better: the total variation between where pairs lie, in tenths of either length. UsageError for none.
    """
    both = _two_laws(prompt_tokens, output_tokens)
    prompt, output = fit_lengths(prompt_tokens), fit_lengths(output_tokens)
    count = len(prompt_tokens)
    if count < MIN_PAIRS:
        return PairFit(both, prompt, output, None, None)
    even = np.arange(count) * NUM_BLOCKS // count % 2 == 0
    edges = [
        np.quantile(column, np.arange(1, 10) / 10) for column in (prompt_tokens, output_tokens)
    ]
    errors = np.zeros(2)
    for fitted in (even, ~even):
        a, b = prompt_tokens[fitted], output_tokens[fitted]
        judged = _cells(Pairs(prompt_tokens[~fitted], output_tokens[~fitted]), edges)
        laws: tuple[PairLaw, ...] = (_two_laws(a, b), _sample(a, b))
        for at, law in enumerate(laws):
            drawn = _cells(law.draw(0, NUM_DRAWN), edges)
            errors[at] += float(np.abs(drawn - judged).sum()) / 4
    copula_error, sample_error = errors.tolist()
    law = (
        both if copula_error <= SIMPLER_BY * sample_error else _sample(prompt_tokens, output_tokens)
    )
    return PairFit(law, prompt, output, copula_error, sample_error)


def _two_laws(prompt_tokens: Int64s, output_tokens: Int64s) -> TwoLaws:
    return TwoLaws(
        fit_lengths(prompt_tokens).law,
        fit_lengths(output_tokens).law,
        score_correlation(prompt_tokens, output_tokens),
    )


def _sample(prompt_tokens: Int64s, output_tokens: Int64s) -> Sample:
    rows = np.arange(len(prompt_tokens))
    if len(rows) > MAX_RECORDS:
        rows = np.sort(stream(0, Purpose.PROMPT).choice(len(rows), MAX_RECORDS, replace=False))
    return Sample(tuple(prompt_tokens[rows].tolist()), tuple(output_tokens[rows].tolist()))


def _cells(pairs: Pairs, edges: list[Floats]) -> Floats:
    """Share of pairs in each of ten by ten cells."""
    row = np.searchsorted(edges[0], pairs.prompt_tokens)
    column = np.searchsorted(edges[1], pairs.output_tokens)
    return np.asarray(np.bincount(row * 10 + column, minlength=100) / len(row))


def score_correlation(first: Int64s, second: Int64s) -> float:
    """Correlation of the normal scores of two columns; 0 where one does not vary."""
    if len(first) < 3:
        return 0.0
    scores = [
        normal_quantile((mean_ranks(column) + 0.5) / len(column)) for column in (first, second)
    ]
    a, b = (column - column.mean() for column in scores)
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return max(-1.0, min(1.0, float(a @ b) / scale)) if scale > 1e-9 else 0.0


def _distance(law: LengthLaw, tokens: NDArray[np.int64]) -> float:
    ordered = np.sort(tokens)
    shares = (np.arange(len(ordered)) + 0.5) / len(ordered)
    return float(np.abs(np.log(law.at(shares)) - np.log(ordered)).mean())


def _lognormal(tokens: Int64s) -> Lognormal:
    log = np.log(tokens)
    return Lognormal(
        math.exp(float(log.mean())),
        max(float(log.std()), MIN_SIGMA),
        int(tokens.min()),
        int(tokens.max()),
    )


def _body_and_tail(tokens: Int64s) -> BodyAndTail:
    """The tail with which the law is closest to the lengths themselves; Hill's estimator of its power."""
    best: tuple[float, BodyAndTail] | None = None
    for share in TAIL_SHARES:
        begin = float(np.quantile(tokens, 1 - share))
        tail = tokens[tokens > begin]
        body: Floats = np.log(tokens[tokens <= begin])
        if len(tail) < 5 or len(body) < 5:
            continue
        power = 1 / max(float(np.log(tail / begin).mean()), 1e-3)
        law = BodyAndTail(
            Lognormal(
                math.exp(float(body.mean())), max(float(body.std()), MIN_SIGMA), int(tokens.min())
            ),
            begin,
            len(tail) / len(tokens),
            power,
            int(tokens.max()),
        )
        distance = _distance(law, tokens)
        if best is None or distance < best[0]:
            best = (distance, law)
    if best is None:
        plain = _lognormal(tokens)
        return BodyAndTail(plain, float(tokens.max()), 1e-6, 10.0, int(tokens.max()))
    return best[1]


def _quantiles(tokens: Int64s) -> Quantiles:
    values = np.quantile(tokens, _SHARES)
    return Quantiles(_SHARES, tuple(float(value) for value in values))
