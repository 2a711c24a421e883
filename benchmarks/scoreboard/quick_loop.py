"""A small event loop over step curves, for fitting: FCFS, chunked prefill, decode advanced in one go.

It leaves out what fitting does not need (block granularity, preemption, records) and runs thousands of
runs a second. Scores come from the simulator that users run, not from here.
"""

from __future__ import annotations

import numba
import numpy as np

MIXED, PREFILL_FIRST = 0, 1
"""`policy`: prefill and decode share a step; they do not, and prefill goes first."""


@numba.njit(cache=True, nogil=True)
def simulate(
    arrival: np.ndarray,
    concurrency: int,
    prompt: np.ndarray,
    cached: np.ndarray,
    output: np.ndarray,
    knots: np.ndarray,
    mixed_ns: np.ndarray,
    decode_ns: np.ndarray,
    coefficients: np.ndarray,
    host_ns: float,
    max_seqs: int,
    max_tokens: int,
    kv_tokens: float,
    reserved: float,
    policy: int,
    lookahead: int,
    think_ns: float,
    interval: float,
    wait_steps: float,
    first: np.ndarray,
    last: np.ndarray,
) -> int:
    """Fill `first` and `last` token times minus arrivals, ns; the number of steps.

    `lookahead` 1: a step is decided while the one before it still runs. `reserved`: share of a request's
    output that the cache must have room for when it enters. `concurrency` > 0: request i is sent `think_ns` after
    the (i - concurrency + 1)-th completion, and `arrival` is written; 0: `arrival` is given, ascending.
    `interval`: decode steps between two looks at what has arrived (SGLang's `--scheduler-recv-interval`; a step
    of prefill counts as a thousand there, so one is followed by a look); 1: at every step. `wait_steps`: steps that
    what has arrived is held back, for more to come, while others decode (TensorRT-LLM's `batch_wait_timeout_iters`).
    """
    n = len(prompt)
    todo = np.zeros(n)  # prefill tokens left
    context = np.zeros(n)
    left = np.zeros(n)
    running = np.zeros(n, dtype=np.int64)
    num_running = 0
    released = n if concurrency <= 0 else min(n, concurrency)
    if concurrency > 0:
        for i in range(released):
            arrival[i] = 0.0
    # In a closed loop requests arrive in the order in which they are sent.
    head = 0
    now = 0.0
    decided_at = 0.0
    used = 0.0
    num_steps = 0
    num_done = 0
    received = 0  # requests before this one are known to the scheduler
    since = interval
    waited = 0.0
    while num_done < n:
        horizon = decided_at if lookahead and num_running > 0 else now
        if num_running == 0:
            if arrival[head] > now:
                now = arrival[head]
            horizon = now
            since = interval
        if since >= interval:
            since = 0.0
            while received < released and arrival[received] <= horizon:
                received += 1
        budget = float(max_tokens)
        is_held = head < received and num_running > 0 and waited < wait_steps
        if not is_held:
            waited = 0.0
        num_decode = 0
        decode_context = 0.0
        least = 1e18
        for r in range(num_running):
            i = running[r]
            if todo[i] <= 0:
                num_decode += 1
                decode_context += context[i] + 1
                least = min(least, left[i])
        num_prefill = 0
        prefill_tokens = 0.0
        prefill_kv = 0.0
        pairs = 0.0
        if policy == MIXED:
            budget -= num_decode
        # Chunks of requests in prefill, then of those that wait.
        for r in range(num_running):
            i = running[r]
            if todo[i] > 0 and budget > 0:
                chunk = min(todo[i], budget)
                budget -= chunk
                num_prefill += 1
                prefill_tokens += chunk
                prefill_kv += context[i]
                pairs += chunk * context[i] + 0.5 * chunk * (chunk + 1)
                todo[i] -= chunk
                context[i] += chunk
                if todo[i] <= 0:
                    todo[i] = -1.0  # yields a token at the end of this step
        while (
            head < received
            and not is_held
            and budget > 0
            and num_running < max_seqs
            and (
                used + prompt[head] - cached[head] + reserved * output[head] <= kv_tokens
                or num_running == 0
            )
        ):
            i = head
            head += 1
            used += prompt[i] - cached[i] + reserved * output[i]
            running[num_running] = i
            num_running += 1
            context[i] = cached[i]
            todo[i] = prompt[i] - cached[i]
            left[i] = output[i]
            chunk = min(todo[i], budget)
            budget -= chunk
            num_prefill += 1
            prefill_tokens += chunk
            prefill_kv += context[i]
            pairs += chunk * context[i] + 0.5 * chunk * (chunk + 1)
            todo[i] -= chunk
            context[i] += chunk
            if todo[i] <= 0:
                todo[i] = -1.0
        alone = policy == PREFILL_FIRST and num_prefill > 0
        decodes = 0 if alone else num_decode
        tokens = prefill_tokens + decodes
        times = 1.0
        if num_prefill == 0:
            times = least
            table = _read(knots, decode_ns, tokens)
        else:
            table = _read(knots, mixed_ns, tokens)
        cost = (
            table
            + host_ns
            + num_prefill * coefficients[0]
            + prefill_tokens * coefficients[1]
            + prefill_kv * coefficients[2]
            + pairs * coefficients[3]
            + decodes * coefficients[4]
            + (0.0 if alone else decode_context) * coefficients[6]
        )
        grow = decodes * coefficients[6]
        # As many steps at once as until a request ends or one that waits may enter.
        may_enter = (
            head < released
            and num_running < max_seqs
            and (used + prompt[head] - cached[head] + reserved * output[head] <= kv_tokens)
        )
        if num_prefill == 0 and times > 1 and may_enter:
            until = max(1.0, np.floor((arrival[head] - now) / cost) + 1.0)
            if head >= received:
                # Not before the next look from then on.
                until = (
                    interval - since + max(0.0, np.ceil((until + since) / interval) - 1) * interval
                )
            elif is_held:
                until = wait_steps - waited
            times = min(times, until)
        span = times * cost + grow * times * (times - 1) / 2
        decided_at = now if times <= 1 else now + span - (cost + grow * (times - 1))
        now += span
        num_steps += int(times)
        if is_held:
            waited += times
        since = interval if num_prefill > 0 else (since + times - 1) % interval + 1
        keep = 0
        ended = 0
        for r in range(num_running):
            i = running[r]
            if todo[i] > 0:
                running[keep] = i
                keep += 1
                continue
            if todo[i] == -1.0:
                todo[i] = 0.0
                first[i] = now - arrival[i]
                left[i] -= 1
            elif not alone:
                left[i] -= times
                context[i] += times
            if left[i] <= 0:
                last[i] = now - arrival[i]
                used -= prompt[i] - cached[i] + reserved * output[i]
                num_done += 1
                ended += 1
            else:
                running[keep] = i
                keep += 1
        num_running = keep
        if concurrency > 0:
            for _ in range(ended):
                if released < n:
                    arrival[released] = now + think_ns
                    released += 1
    return num_steps


@numba.njit(cache=True, nogil=True)
def _read(knots: np.ndarray, values: np.ndarray, at: float) -> float:
    k = np.searchsorted(knots, at, side="right") - 1
    k = min(max(k, 0), len(knots) - 2)
    share = (at - knots[k]) / (knots[k + 1] - knots[k])
    return values[k] + share * (values[k + 1] - values[k])
