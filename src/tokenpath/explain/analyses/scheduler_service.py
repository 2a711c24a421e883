"""What one scheduler served: its steps, its limits, and the requests that went through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.core.units import INT64_MIN
from tokenpath.explain.engine_steps import EngineSteps, engine_steps
from tokenpath.explain.moments import Requests
from tokenpath.stitch.clocks import clock_of_rows

Int64s = NDArray[np.int64]

_LIMITS = {
    "max_running": (
        "max_num_seqs",
        "max_running_requests",
        "max_batch_size",
        "max_num_active_seqs",
    ),
    "budget": ("max_num_batched_tokens", "chunked_prefill_size", "max_num_tokens"),
    "block_size": ("block_size", "page_size", "tokens_per_block"),
}
"""Names of settings in vLLM, SGLang and TensorRT-LLM."""


@dataclass(frozen=True)
class Service:
    """Steps of one scheduler and its requests. Arrays of steps are parallel to `steps`, others by request."""

    steps: EngineSteps
    """The steps, disjoint, in order."""
    engine: int
    """Data-parallel rank; NO_ID for unknown."""
    step_ns: Int64s
    """Length of each step."""
    between_ns: Int64s
    """Time before each step in which requests were there and nothing ran."""
    host_ns: Int64s
    """Of step and time before it: not in the worker; 0 where the worker's times are unknown."""
    running: Int64s
    """Requests running; NO_ID for unknown."""
    queued: Int64s
    """Requests waiting after scheduling; NO_ID for unknown."""
    preempted: Int64s
    """Requests preempted in the step."""
    kv_used: Int64s
    """Blocks in use; NO_ID for unknown."""
    kv_total: int
    """Blocks in all; 0 for unknown."""
    prefill_tokens: Int64s
    """Tokens of prefill."""
    decode_requests: Int64s
    """Requests in decode."""
    decode_tokens: Int64s
    """Tokens of decode, drafts included."""
    decode_context: Int64s
    """Summed context of the decode requests."""
    prefill_pairs: NDArray[np.float64]
    """Pairs of prefill tokens and tokens before them."""
    step_requests: Int64s
    """Requests with a share of the step."""
    ids: list[str]
    """Requests."""
    arrival: Int64s
    """When each was queued, or arrived where that is not known."""
    started: Int64s
    """Start of its first step."""
    first_token: Int64s
    """End of the step with its first token."""
    finished: Int64s
    """End of its last step."""
    prompt: Int64s
    """Prompt tokens."""
    cached: Int64s
    """Tokens found in the prefix cache when it was first scheduled."""
    output: Int64s
    """Steps in which it was given tokens: several at once with speculation."""
    prefill_steps: Int64s
    """Steps until its first token."""
    recomputed: Int64s
    """Tokens computed that had been computed before."""
    max_running: int | None
    """Limit of running requests."""
    budget: int | None
    """Tokens of a step at most."""
    kv_tokens: int | None
    """Tokens that fit into the KV cache."""

    @property
    def span_ns(self) -> int:
        """First start to last end."""
        return int(self.steps.end[-1] - self.steps.start[0])


def services(capture: Capture) -> list[Service]:
    """One for each scheduler with requests; empty without a step log that names them."""
    if not capture.num_rows("request_step") or not capture.num_rows("request"):
        return []
    requests, settings = Requests(capture), settings_of(capture)
    clock = clock_of_rows(capture, "step")
    found = []
    for steps in engine_steps(capture):
        one = _service(capture, requests, settings, steps, int(clock[steps.row[0]]))
        if one is not None:
            found.append(one)
    return found


def settings_of(capture: Capture) -> dict[str, str]:
    """Settings by the last part of their names; the first source that states one is believed."""
    found: dict[str, str] = {}
    for row in capture["setting"].to_pylist():
        found.setdefault(row["name"].rsplit(".", 1)[-1].replace("-", "_"), row["value"])
    return found


def limit(settings: Mapping[str, str], kind: str) -> int | None:
    """A limit in whole numbers; None for none stated."""
    for name in _LIMITS[kind]:
        value = settings.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return None


def _service(
    capture: Capture,
    requests: Requests,
    settings: Mapping[str, str],
    steps: EngineSteps,
    clock: int,
) -> Service | None:
    codes, names = capture.codes("request_step", "request_id")
    number_of = {name: number for number, name in enumerate(requests.ids)}
    place = np.full(capture.num_rows("step"), -1, np.int64)
    place[steps.row] = np.arange(len(steps))
    at = place[capture.ids("request_step", "step_id")]
    who = np.array([number_of.get(name, -1) for name in names], np.int64)[codes]
    rows = np.flatnonzero((at >= 0) & (who >= 0))
    rows = rows[np.lexsort((at[rows], who[rows]))]
    if len(rows) == 0:
        return None
    at, who = at[rows], who[rows]
    tokens = capture.int64("request_step", "num_tokens")[rows]
    before = capture.int64("request_step", "num_computed_before", 0)[rows]
    emitted = capture.int64("request_step", "num_emitted", 0)[rows]
    phases, phase_names = capture.codes("request_step", "phase")
    is_decode = np.array([name == "decode" for name in phase_names] or [False])[phases[rows]]
    first_row = np.flatnonzero(np.diff(who, prepend=-1))
    ids = who[first_row]
    group = np.repeat(np.arange(len(ids)), np.diff(np.append(first_row, len(who))))
    last_row = np.append(first_row[1:], len(who)) - 1
    given = np.add.reduceat((emitted > 0).astype(np.int64), first_row)
    gave = np.full(len(ids), len(who), np.int64)
    np.minimum.at(gave, group[emitted > 0], np.flatnonzero(emitted > 0))
    whole = np.flatnonzero((gave < len(who)) & (given > 0))
    arrival = _arrival(requests, ids, clock)
    started = steps.start[at[first_row]]
    arrival = np.where((arrival == INT64_MIN) | (arrival > started), started, arrival)
    # Tokens computed beyond the farthest point that the request had reached are new, others are not.
    reached = before + tokens
    farthest = _running_maximum(reached, group)
    again = np.clip(farthest - before, 0, tokens)
    num = len(steps)
    integer = {
        name: capture.int64("step", name, NO_ID)[steps.row]
        for name in (
            "num_running",
            "num_queued",
            "num_preempted",
            "kv_used_blocks",
            "kv_total_blocks",
        )
    }
    prompt = _largest(capture, requests, "prompt_tokens")[ids]
    prefill_until = np.where(gave < len(who), gave, last_row)
    computed = np.add.reduceat(
        np.where(np.arange(len(who)) <= prefill_until[group], tokens, 0), first_row
    )
    cached = before[first_row]
    prompt = np.where(prompt > 0, prompt, computed + cached)
    output = np.where(given > 0, given, 1)
    kv_total = int(integer["kv_total_blocks"].max())
    block = limit(settings, "block_size")
    step_ns = steps.end - steps.start
    between = np.where(
        _is_waited_for(steps, arrival[whole], steps.end[at[last_row]][whole]),
        steps.gap_before_ns,
        0,
    )
    has_worker = capture.int64("step", "execute_end_ns", INT64_MIN)[steps.row] != INT64_MIN
    # Sampling is the worker's work as well, but no source tells it apart from handing over.
    host = (
        np.where(has_worker, steps.schedule_ns + steps.dispatch_ns + steps.output_ns, 0) + between
    )
    decode = is_decode.astype(np.int64)
    engine = capture.ids("step", "engine_id")[steps.row[0]]
    return Service(
        steps=steps,
        engine=int(engine),
        step_ns=step_ns,
        between_ns=between,
        host_ns=host,
        running=integer["num_running"],
        queued=integer["num_queued"],
        preempted=np.maximum(integer["num_preempted"], 0),
        kv_used=integer["kv_used_blocks"],
        kv_total=max(kv_total, 0),
        prefill_tokens=_sum(at, np.where(is_decode, 0, tokens), num),
        decode_requests=_sum(at, decode, num),
        decode_tokens=_sum(at, np.where(is_decode, tokens, 0), num),
        decode_context=_sum(at, decode * before, num),
        prefill_pairs=np.bincount(
            at, np.where(is_decode, 0.0, tokens * (before + tokens / 2.0)), num
        ).astype(np.float64),
        step_requests=_sum(at, np.ones(len(at), np.int64), num),
        ids=[requests.ids[one] for one in ids[whole]],
        arrival=arrival[whole],
        started=started[whole],
        first_token=steps.end[at[np.minimum(gave, len(at) - 1)]][whole],
        finished=steps.end[at[last_row]][whole],
        prompt=prompt[whole],
        cached=cached[whole],
        output=output[whole],
        prefill_steps=(prefill_until - first_row + 1)[whole],
        recomputed=np.add.reduceat(again, first_row)[whole],
        max_running=limit(settings, "max_running"),
        budget=limit(settings, "budget"),
        kv_tokens=kv_total * block if kv_total > 0 and block else None,
    )


def _is_waited_for(steps: EngineSteps, arrival: Int64s, finished: Int64s) -> NDArray[np.bool_]:
    """Whether some request was there in all of the time before each step."""
    previous = np.concatenate((steps.start[:1], steps.end[:-1]))
    arrived = np.searchsorted(np.sort(arrival), previous, "right")
    done = np.searchsorted(np.sort(finished), previous, "right")
    result: NDArray[np.bool_] = arrived > done
    return result


def _arrival(requests: Requests, ids: Int64s, clock: int) -> Int64s:
    found = np.full(len(ids), INT64_MIN, np.int64)
    for observer, name in (
        ("engine", "queued"), ("engine", "arrival"), ("gateway", "arrival"), ("client", "arrival"),
    ):  # fmt: skip
        seen = requests.observers.get(observer)
        if seen is not None:
            same = seen.clock[ids] == clock
            values = getattr(seen, name)[ids]
            found = np.where((found == INT64_MIN) & same, values, found)
    return found


def _largest(capture: Capture, requests: Requests, column: str) -> Int64s:
    codes, _ = capture.codes("request", "request_id")
    found = np.full(len(requests.ids), NO_ID, np.int64)
    np.maximum.at(found, codes, capture.int64("request", column, NO_ID))
    return found


def _running_maximum(values: Int64s, group: Int64s) -> Int64s:
    """The largest value before each row within its group; 0 for the first, which has nothing before it."""
    step = np.int64(values.max(initial=0) + 1)
    lifted = np.maximum.accumulate(values + group * step)
    before = np.concatenate(([0], lifted[:-1])) - group * step
    result: Int64s = np.maximum(before, 0)
    return result


def _sum(at: Int64s, values: Int64s, num: int) -> Int64s:
    result = np.zeros(num, np.int64)
    np.add.at(result, at, values)
    return result
