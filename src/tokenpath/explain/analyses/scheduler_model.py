"""A queue, a batch and a cost of steps, fitted to what a scheduler did, to be run again with one thing changed.

    model = fit(service)
    model.mean_latency_ns() - model.mean_latency_ns(max_running=256)

Requests come when they came, first come first served; a step holds all running requests, then as many prompt
tokens as the budget leaves; KV is a number of tokens, and who does not fit is preempted and computed again. That
is less than any engine does, so only differences between two runs of the model are used, scaled to what was
measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.compiled import compiled
from tokenpath.explain.analyses.scheduler_service import Service

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

UNLIMITED = 1 << 40
"""Stands for no limit."""
MIN_STEPS = 20
"""With fewer steps no cost is fitted."""
MAX_PAIRS = 3_000_000
"""Captures with more shares of requests in steps are not run again: it would take seconds."""


@dataclass(frozen=True)
class Model:
    """What is run again; every field may be replaced."""

    arrival: Int64s
    """When requests were queued, in order."""
    prompt: Int64s
    """Tokens that must be computed before the first token."""
    cached: Int64s
    """Tokens that were in the prefix cache."""
    output: Int64s
    """Steps in which tokens were given."""
    max_running: int
    """Requests that may run at once."""
    budget: int
    """Tokens of a step."""
    kv_tokens: int
    """Tokens that fit into the KV cache."""
    cost: Float64s
    """ns of a step, of a prefill token, of a decode request, of a token of decode context, of 1,000 pairs of
    prefill tokens and what stands before them."""
    measured_ns: float
    """Mean latency as it was: queued to last token."""
    num_pairs: int
    """Shares of requests in steps that a run takes, about."""

    def run(self) -> tuple[Int64s, Int64s]:
        """First and last token of each request, ns on the clock of `arrival`."""
        first, last = np.zeros(len(self.arrival), np.int64), np.zeros(len(self.arrival), np.int64)
        work = np.zeros((5, len(self.arrival) + 1), np.int64)
        _serve(self.num_pairs)(
            self.arrival, self.prompt, self.cached, self.output, self.cost, work,
            self.max_running, self.budget, self.kv_tokens, first, last,
        )  # fmt: skip
        return first, last

    def mean_latency_ns(self) -> float:
        """Mean from queued to last token."""
        return float((self.run()[1] - self.arrival).mean())

    def load(self) -> float:
        """Work over what can be done: above 1 the queue grows as long as requests arrive.

        What all requests add to the time of as many others when all are there at once, over the span in which they
        arrived. The way of the last one through the engine, which no load shortens, is in both and falls out.
        """
        span = int(self.arrival[-1] - self.arrival[0])
        if span <= 0:
            return 1.0
        columns = (self.arrival, self.prompt, self.cached, self.output)
        once = replace(self, arrival=np.zeros_like(self.arrival))
        zeros, prompt, cached, output = (np.concatenate((column, column)) for column in columns)
        twice = replace(
            self, arrival=np.zeros_like(zeros), prompt=prompt, cached=cached, output=output,
            num_pairs=2 * self.num_pairs,
        )  # fmt: skip
        added = int(twice.run()[1].max()) - int(once.run()[1].max())
        return added * (1 - 1 / len(self.arrival)) / span

    def gain_ns(self, changed: Model) -> float:
        """What a change would bring a request on average, scaled to the measured latency."""
        mine = self.mean_latency_ns()
        return (mine - changed.mean_latency_ns()) * self.measured_ns / mine if mine > 0 else 0.0

    def moved(self, by_ns: Float64s) -> Model:
        """The same requests, each so much later."""
        arrival = self.arrival + np.rint(by_ns).astype(np.int64)
        order = np.argsort(arrival, kind="stable")
        return replace(
            self, arrival=arrival[order] - arrival.min(), prompt=self.prompt[order],
            cached=self.cached[order], output=self.output[order],
        )  # fmt: skip

    def error(self) -> float:
        """Modelled over measured mean latency, minus 1."""
        return self.mean_latency_ns() / self.measured_ns - 1 if self.measured_ns else 0.0


def fit(service: Service) -> Model | None:
    """The model of one scheduler; None where too little is known."""
    pairs = int(service.step_requests.sum())
    if len(service.steps) < MIN_STEPS or len(service.arrival) < 2 or pairs > MAX_PAIRS:
        return None
    latency = service.finished - service.arrival
    order = np.argsort(service.arrival, kind="stable")
    output = np.maximum(service.output, 1)
    prompt = np.maximum(service.prompt - service.cached, 1)
    return Model(
        arrival=service.arrival[order] - service.arrival.min(),
        prompt=prompt[order],
        cached=np.maximum(service.cached, 0)[order],
        output=output[order],
        max_running=service.max_running or UNLIMITED,
        budget=service.budget or UNLIMITED,
        kv_tokens=service.kv_tokens or UNLIMITED,
        cost=cost_of_steps(service),
        measured_ns=float(latency.mean()),
        num_pairs=pairs,
    )


def cost_of_steps(service: Service) -> Float64s:
    """Least squares with no negative cost; each step weighs as one over its length."""
    length = (service.step_ns + service.between_ns).astype(np.float64)
    rows = np.column_stack(
        (
            np.ones(len(length)),
            service.prefill_tokens,
            service.decode_requests,
            service.decode_context,
            service.prefill_pairs / 1000,
        )
    ).astype(np.float64)
    known = length > 0
    # A stall of the host is no cost of a step's tokens.
    known &= length <= 20 * np.median(length[known]) + 1000 * service.prefill_tokens.max()
    scale = 1 / np.sqrt(length[known] * np.median(length[known]))
    return non_negative(rows[known] * scale[:, None], length[known] * scale)


def non_negative(rows: Float64s, target: Float64s) -> Float64s:
    """Least squares without negative coefficients: the most negative one is left out, time and again."""
    found = np.zeros(rows.shape[1])
    norm = np.linalg.norm(rows, axis=0)
    kept = np.flatnonzero(norm > 0)
    while len(kept):
        solved = np.linalg.lstsq(rows[:, kept] / norm[kept], target, rcond=1e-9)[0]
        if (solved >= 0).all():
            found[kept] = solved / norm[kept]
            break
        kept = np.delete(kept, int(np.argmin(solved)))
    return found


@compiled
def _serve(
    arrival: Int64s,
    prompt: Int64s,
    cached: Int64s,
    output: Int64s,
    cost: Float64s,
    work: Int64s,
    max_running: int,
    budget: int,
    kv_tokens: int,
    first: Int64s,
    last: Int64s,
) -> int:
    # Rows of `work`: running requests in order, computed tokens, given tokens, need, preempted ones.
    running, computed, given, need, back = work[0], work[1], work[2], work[3], work[4]
    num = len(arrival)
    for at in range(num):
        need[at] = prompt[at]
    num_running = num_back = 0
    fresh = 0
    now = 0
    used = 0
    num_steps = 0
    while num_running > 0 or num_back > 0 or fresh < num:
        if num_running == 0 and num_back == 0 and arrival[fresh] > now:
            now = arrival[fresh]
        left = budget
        prefill = 0
        decoding = 0
        context = 0
        pairs = 0.0
        # Who does not fit goes back, the last one first.
        growing = 0
        for at in range(num_running):
            who = running[at]
            if computed[who] >= need[who]:
                growing += 1
        was_preempted = False
        while num_running > 1 and used + growing > kv_tokens:
            num_running -= 1
            who = running[num_running]
            if computed[who] >= need[who]:
                growing -= 1
            used -= computed[who] + cached[who]
            need[who] = prompt[who] + given[who]
            computed[who] = 0
            back[num_back] = who
            num_back += 1
            was_preempted = True
        for at in range(num_running):
            who = running[at]
            if computed[who] >= need[who]:
                decoding += 1
                context += computed[who] + cached[who]
                left -= 1
        for at in range(num_running):
            who = running[at]
            if computed[who] < need[who] and left > 0:
                chunk = min(left, need[who] - computed[who])
                pairs += float(chunk) * (computed[who] + cached[who] + chunk / 2)
                computed[who] += chunk
                used += chunk
                prefill += chunk
                left -= chunk
        while not was_preempted and left > 0 and num_running < max_running:
            if num_back > 0:
                who = back[num_back - 1]
            elif fresh < num and arrival[fresh] <= now:
                who = fresh
            else:
                break
            if num_running > 0 and used + need[who] + cached[who] + growing > kv_tokens:
                break
            if num_back > 0:
                num_back -= 1
            else:
                fresh += 1
            chunk = min(left, need[who])
            pairs += float(chunk) * (cached[who] + chunk / 2)
            computed[who] = chunk
            used += chunk + cached[who]
            prefill += chunk
            left -= chunk
            running[num_running] = who
            num_running += 1
        spent = cost[0] + cost[1] * prefill + cost[2] * decoding + cost[3] * context
        now += int(spent + cost[4] * pairs / 1000) + 1
        kept = 0
        for at in range(num_running):
            who = running[at]
            if computed[who] >= need[who]:
                given[who] += 1
                if given[who] == 1:
                    first[who] = now
                computed[who] += 1
                used += 1
                if given[who] >= output[who]:
                    last[who] = now
                    used -= computed[who] + cached[who]
                    continue
            running[kept] = who
            kept += 1
        num_running = kept
        num_steps += 1
    return num_steps
