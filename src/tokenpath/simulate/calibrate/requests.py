"""Step latency from the times of requests alone, where nobody recorded steps: a load generator's results.

A request's first token, and its last, each come at the end of a step. Between two such moments lie whole
steps, whose contents a simulation of the scheduler tells: measured time = sum over those steps of (terms x
weights), which is linear in the weights. Weights found so change the schedule a little, so it is simulated
again, and the weights move half of the way each time (a full step swings, as queues overreact).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.errors import InputError
from tokenpath.core.stats_nnls import non_negative_least_squares
from tokenpath.simulate.recorder import NOT_SEEN, RunRows
from tokenpath.simulate.step_model import Float64s, StepCurve

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

MIN_REQUESTS = 20
"""Fewer requests than this say too little."""
DEFAULT_ROUNDS = 10
_MOVE = 0.5
_SCALED = 0.02
"""Times of requests that agree to within this in sum need no other scale."""
_INNER_ROUNDS = 8
_SHORT_STEP_NS = 1e7
_SLACK = 0.02
"""Relative loss below which two rounds count as equally good."""


class CostForm(Protocol):
    """Terms whose weighted sum is a step's cost; `Form` and `ScaledForm` are such."""

    def design(self, features: Float64s) -> Float64s:
        """[num_steps, num_terms]."""

    def curve(self, weights: Float64s) -> StepCurve:
        """The compiled form."""

    def names(self) -> list[str]:
        """What each term is."""


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """When things happened to requests, in the order of the workload; NOT_SEEN for what did not."""

    queued_ns: Int64s
    """Entered the engine's queue (or was sent, where only the client was asked)."""
    scheduled_ns: Int64s
    """First scheduled."""
    first_token_ns: Int64s
    """First token."""
    last_token_ns: Int64s
    """Last token."""
    output_tokens: Int64s
    """Tokens emitted."""

    @property
    def num_requests(self) -> int:
        """Rows."""
        return len(self.queued_ns)

    @property
    def is_known(self) -> Bools:
        """Those with a first and a last token."""
        known: Bools = (self.first_token_ns != NOT_SEEN) & (self.last_token_ns != NOT_SEEN)
        return known

    def ttft_ns(self) -> Float64s:
        """Queue and prefill; only meaningful where `is_known`."""
        return (self.first_token_ns - self.queued_ns).astype(np.float64)

    def decode_ns(self) -> Float64s:
        """First to last token."""
        return (self.last_token_ns - self.first_token_ns).astype(np.float64)

    def e2e_ns(self) -> Float64s:
        """Queue to last token."""
        return (self.last_token_ns - self.queued_ns).astype(np.float64)

    def tpot_ns(self) -> Float64s:
        """Mean time per output token after the first; NaN for requests of one token."""
        rest = np.maximum(self.output_tokens - 1, 1)
        return np.where(self.output_tokens > 1, self.decode_ns() / rest, np.nan)


@dataclass(frozen=True, slots=True)
class SimulatedSteps:
    """What a simulation says of the same requests."""

    features: Float64s
    """[num_steps, NUM_FEATURES]."""
    start_ns: Int64s
    """Start of each step."""
    end_ns: Int64s
    """End of each step, ascending within an endpoint."""
    endpoint: Int64s
    """Scheduler of each step."""
    request_endpoint: Int64s
    """Scheduler of each request."""
    times: RequestTimes
    """Of the requests, in the order of the workload."""


Simulate = Callable[[StepCurve], SimulatedSteps]


def simulated_steps(rows: RunRows) -> SimulatedSteps:
    """The steps and requests of a run of the event loop, in its first stage."""
    requests = rows.requests[0]
    return SimulatedSteps(
        features=rows.steps.features.astype(np.float64),
        start_ns=rows.steps.start_ns,
        end_ns=rows.steps.end_ns,
        endpoint=rows.steps.endpoint,
        request_endpoint=requests.endpoint,
        times=RequestTimes(
            requests.queued_ns,
            requests.scheduled_ns,
            requests.first_token_ns,
            requests.last_token_ns,
            requests.output_tokens,
        ),
    )


@dataclass(frozen=True, slots=True)
class RequestFit:
    """Weights found from the times of requests."""

    curve: StepCurve
    """Latency of a step."""
    weights: Float64s
    """ns (or scale) per term."""
    loss: float
    """Mean |log(simulated / measured)| of TTFT + decode + E2E of the requests that were fitted."""
    num_rounds: int
    """Simulations made."""


def fit_requests(
    measured: RequestTimes,
    simulate: Simulate,
    form: CostForm,
    start: Float64s,
    *,
    use: Bools | None = None,
    num_rounds: int = DEFAULT_ROUNDS,
    prior_sigma: float | None = None,
) -> RequestFit:
    """Fit the weights of `form` to the requests that `use` marks (all by default), from weights `start`.

    `num_rounds` simulations are made; the weights whose simulation came nearest are returned. The first of them,
    half at most, only scale all weights alike: far from the truth the contents of steps are wrong. `prior_sigma`:
    how far, as a share, each weight may be from `start` so scaled; None: as far as it likes.

    InputError for fewer than MIN_REQUESTS requests with both tokens.
    """
    mask = measured.is_known if use is None else measured.is_known & use
    if mask.sum() < MIN_REQUESTS:
        raise InputError(
            f"{int(mask.sum())} requests with a first and a last token to calibrate on",
            allowed=f"at least {MIN_REQUESTS}",
            next_step="use the results of a longer run",
        )
    weights = anchor = start.copy()
    best = RequestFit(form.curve(weights), weights, np.inf, 0)
    scales: list[tuple[float, float]] = [(0.0, 0.0)]
    num_scaled = max(num_rounds // 2, 1)
    is_scaled = False
    for number in range(max(num_rounds, 1)):
        run = simulate(form.curve(weights))
        loss = _loss(measured, run.times, mask)
        if loss < best.loss * (1 - _SLACK):
            best = RequestFit(form.curve(weights), weights, loss, number + 1)
        matrix, target = _equations(measured, run, form, mask, weights)
        if not is_scaled and number < num_scaled:
            log_scale, _ = scales.pop()
            off = float(np.log(target.sum() / (matrix @ weights).sum()))
            scales += [(log_scale, off), (_next_scale([*scales, (log_scale, off)]), 0.0)]
            anchor = weights = start * np.exp(scales[-1][0])
            is_scaled = abs(off) < _SCALED
            continue
        found = _solve(matrix, target, weights, anchor, prior_sigma)
        weights = weights + _MOVE * (found - weights)
    return best


def _next_scale(tried: Sequence[tuple[float, float]]) -> float:
    """The scale to try next, after (scale, how much longer was measured than simulated), all logarithms.

    Near saturation the times of requests grow far faster than those of steps: to scale by what is missing
    overshoots, further each time. So half of it at first, and between two that enclose the truth then.
    """
    fast = max((one for one in tried if one[1] > 0), default=None)
    slow = min((one for one in tried if one[1] <= 0), default=None)
    if fast is None or slow is None or fast[0] >= slow[0]:
        at, off = tried[-1]
        return at + _MOVE * off
    share = fast[1] / (fast[1] - slow[1])
    return fast[0] + min(max(share, 0.1), 0.9) * (slow[0] - fast[0])


def _equations(
    measured: RequestTimes,
    run: SimulatedSteps,
    form: CostForm,
    mask: Bools,
    weights: Float64s,
) -> tuple[Float64s, Float64s]:
    """Rows: from scheduling (or queueing) to the first token, and from the first to the last."""
    design = _of_the_longest(form.design(run.features), run, weights)
    begin = run.times.scheduled_ns
    measured_begin = measured.scheduled_ns
    is_scheduled = (measured_begin != NOT_SEEN) & (begin != NOT_SEEN)
    begin = np.where(is_scheduled, begin, run.times.queued_ns)
    measured_begin = np.where(is_scheduled, measured_begin, measured.queued_ns)
    both = mask & run.times.is_known
    matrices, targets = [], []
    for endpoint in np.unique(run.request_endpoint[both]):
        own = np.flatnonzero(both & (run.request_endpoint == endpoint))
        steps = run.endpoint == endpoint
        terms = design[steps]
        spans = (run.start_ns[steps], run.end_ns[steps])
        first, last = run.times.first_token_ns[own], run.times.last_token_ns[own]
        matrices += [
            _within(terms, *spans, begin[own], first),
            _within(terms, *spans, first, last),
        ]
        targets += [
            (measured.first_token_ns - measured_begin)[own],
            (measured.last_token_ns - measured.first_token_ns)[own],
        ]
    matrix, target = np.concatenate(matrices), np.concatenate(targets).astype(np.float64)
    is_some = (target > 0) & matrix.any(axis=1)
    return matrix[is_some], target[is_some]


def _of_the_longest(design: Float64s, run: SimulatedSteps, weights: Float64s) -> Float64s:
    """Terms of the rank that a step waited for, where ranks step together."""
    _, step = np.unique(np.stack((run.start_ns, run.end_ns)), axis=1, return_inverse=True)
    step = step.reshape(-1)
    if len(step) == 0 or step.max() + 1 == len(step):
        return design
    order = np.lexsort((design @ weights, step))
    longest = np.empty(step.max() + 1, np.int64)
    longest[step[order]] = order
    result: Float64s = design[longest[step]]
    return result


def _within(terms: Float64s, start: Int64s, end: Int64s, begin: Int64s, stop: Int64s) -> Float64s:
    """Sum of the terms of the steps from `begin` to `stop`, those cut by an end in proportion."""
    sums = np.concatenate((np.zeros((1, terms.shape[1])), np.cumsum(terms, axis=0)))

    def until(at: Int64s) -> Float64s:
        place = np.searchsorted(end, at, "right")
        inside = np.minimum(place, len(end) - 1)
        length = np.maximum(end[inside] - start[inside], 1)
        share = np.clip((at - start[inside]) / length, 0.0, 1.0)
        share = np.where(place < len(end), share, 0.0)
        result: Float64s = sums[place] + share[:, None] * terms[inside]
        return result

    return until(stop) - until(begin)


def _solve(
    matrix: Float64s,
    target: Float64s,
    near: Float64s,
    anchor: Float64s,
    prior_sigma: float | None,
) -> Float64s:
    """Least squares with weights 1 / prediction, as in `fit.py`: sums agree, but for what a prior pulls."""
    weights = near
    for _ in range(_INNER_ROUNDS):
        predicted = np.maximum(matrix @ weights, target * 1e-3)
        root = 1 / np.sqrt(predicted)
        rows, wanted = matrix * root[:, None], target * root
        if prior_sigma is not None:
            noise = np.sqrt(np.mean((rows @ weights - wanted) ** 2))
            # A weight that starts at nothing is a constant, ns: its scale is that of a short step.
            pull = noise / prior_sigma / np.where(anchor > 0, anchor, _SHORT_STEP_NS)
            rows = np.concatenate((rows, np.diag(pull)))
            wanted = np.concatenate((wanted, pull * anchor))
        weights = non_negative_least_squares(rows, wanted)
    return weights


def _loss(measured: RequestTimes, simulated: RequestTimes, mask: Bools) -> float:
    both = mask & simulated.is_known
    total = 0.0
    for name in ("ttft_ns", "decode_ns", "e2e_ns"):
        ours, theirs = getattr(simulated, name)()[both], getattr(measured, name)()[both]
        known = (ours > 0) & (theirs > 0)
        if known.any():
            # Sums beside single requests: a wrong mean is what a what-if would carry on.
            total += float(np.abs(np.log(ours[known] / theirs[known])).mean()) / 2
            total += float(abs(np.log(ours[known].sum() / theirs[known].sum())))
    return total
