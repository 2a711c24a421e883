"""The serving side: where the latency of a request went, and what an engine's step is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.core.stats_bootstrap import Interval
from tokenpath.explain.compare.nodes import Node, parent
from tokenpath.explain.compare.noise import MIN_SAMPLES, difference
from tokenpath.explain.engine_steps import EngineSteps, engine_steps
from tokenpath.explain.latency import PARTS, Latency, latencies

OBSERVERS = ("client", "gateway", "engine")
"""Whose latencies are compared: the first that saw requests on both sides."""
_KINDS = (("ttft", "time to first token"), ("decode", "first token to last"))
_LABELS = {
    "send": "client to engine", "queue": "queue", "scheduling": "scheduler's decisions",
    "own_compute": "forward pass, own tokens", "others_prefill": "forward pass, others' prefill",
    "others_decode": "forward pass, others' decode", "communication": "collectives",
    "not_scheduled": "steps without the request", "gaps": "between steps",
    "output": "output processing", "transition": "to the next step", "delivery": "engine to client",
    "unresolved": "not resolved",
}  # fmt: skip
_STEP_PARTS = (
    ("schedule", "scheduling"),
    ("dispatch", "dispatch to workers"),
    ("execute", "forward pass"),
    ("communication", "collectives"),
    ("output", "output processing"),
    ("gap", "gap before the step"),
)


@dataclass(frozen=True)
class RequestSide:
    """The requests of one side as one observer saw them, in order of their ids' first appearance."""

    parts_ns: Int64s
    """An array (requests, kinds, parts)."""
    run: Int64s
    """Which run each request is of."""
    num_tokens: Int64s
    """Output tokens; -1 for unknown."""

    def samples(self, values: Int64s) -> NDArray[np.float64]:
        """One value a request, or a run's mean where there are many runs."""
        if int(self.run.max(initial=0)) + 1 < MIN_SAMPLES:
            return values.astype(np.float64)
        result: NDArray[np.float64] = np.bincount(self.run, values) / np.bincount(self.run)
        return result


def request_trees(first: Sequence[Capture], second: Sequence[Capture]) -> tuple[Node, str] | None:
    """Mean latency of a request taken apart, and who saw it; None where no observer is on both sides."""
    seen = [[latencies(capture) for capture in side] for side in (first, second)]
    for observer in OBSERVERS:
        sides = [_side(runs, observer) for runs in seen]
        one, two = sides
        if one is not None and two is not None:
            return _request_tree(one, two), observer
    return None


def _side(runs: Sequence[Sequence[Latency]], observer: str) -> RequestSide | None:
    """Requests with both latencies, first token and rest."""
    parts, run_of, tokens = [], [], []
    for number, found in enumerate(runs):
        by_kind = {one.kind: one for one in found if one.observer == observer}
        if "ttft" not in by_kind:
            continue
        ttft, decode = by_kind["ttft"], by_kind.get("decode")
        place = {} if decode is None else {name: at for at, name in enumerate(decode.request_id)}
        at = np.array([place.get(name, -1) for name in ttft.request_id], np.int64)
        both = np.zeros((len(ttft), 2, len(PARTS)), np.int64)
        both[:, 0] = ttft.parts_ns
        if decode is not None:
            both[:, 1] = np.where((at >= 0)[:, None], decode.parts_ns[np.maximum(at, 0)], 0)
        parts.append(both)
        run_of.append(np.full(len(ttft), number, np.int64))
        tokens.append(ttft.num_output_tokens)
    if not parts:
        return None
    return RequestSide(np.concatenate(parts), np.concatenate(run_of), np.concatenate(tokens))


def _request_tree(first: RequestSide, second: RequestSide) -> Node:
    children = []
    for kind, (key, label) in enumerate(_KINDS):
        parts = [
            Node(
                name,
                _LABELS[name],
                Fraction(int(first.parts_ns[:, kind, number].sum()), len(first.run)),
                Fraction(int(second.parts_ns[:, kind, number].sum()), len(second.run)),
                interval=_of_requests(first, second, (kind,), (number,)),
            )
            for number, (name, _) in enumerate(PARTS)
        ]
        every = tuple(range(len(PARTS)))
        children.append(
            parent(key, label, parts, interval=_of_requests(first, second, (kind,), every))
        )
    whole = _of_requests(first, second, (0, 1), tuple(range(len(PARTS))))
    return parent("request", "request", children, interval=whole)


def _of_requests(
    first: RequestSide, second: RequestSide, kinds: tuple[int, ...], parts: tuple[int, ...]
) -> Interval | None:
    one, two = (
        side.samples(side.parts_ns[:, list(kinds)][:, :, list(parts)].sum(axis=(1, 2)))
        for side in (first, second)
    )
    return difference(one, two)


@dataclass(frozen=True)
class StepSide:
    """The scheduler's steps of one side."""

    parts_ns: Int64s
    """An array (steps, parts) in the order of the parts of a step."""
    phase: NDArray[np.object_]
    """`prefill`, `decode` or `mixed`; empty where unknown."""


def engine_step_tree(first: Sequence[Capture], second: Sequence[Capture]) -> Node | None:
    """Mean step of the scheduler taken apart; None where a side has no step log."""
    one, two = (
        _steps([steps for c in side for steps in engine_steps(c)]) for side in (first, second)
    )
    if one is None or two is None:
        return None
    phases = sorted({*one.phase.tolist(), *two.phase.tolist()})
    children = []
    for phase in phases:
        parts = [
            Node(
                key,
                label,
                _mean(one, phase, number),
                _mean(two, phase, number),
                interval=difference(_samples(one, phase, [number]), _samples(two, phase, [number])),
            )
            for number, (key, label) in enumerate(_STEP_PARTS)
        ]
        shares = " -> ".join(
            f"{100 * float((side.phase == phase).mean()):.0f} %" for side in (one, two)
        )
        every = list(range(len(_STEP_PARTS)))
        name = f"{phase or 'other'} steps"
        children.append(
            parent(
                phase or "step", name, parts, note=f"{shares} of steps",
                interval=difference(_samples(one, phase, every), _samples(two, phase, every)),
            )
        )  # fmt: skip
    totals = [side.parts_ns.sum(axis=1).astype(np.float64) for side in (one, two)]
    return parent("engine_step", "engine step", children, interval=difference(totals[0], totals[1]))


def _mean(side: StepSide, phase: str, part: int) -> Fraction:
    return Fraction(int(side.parts_ns[side.phase == phase, part].sum()), len(side.phase))


def _samples(side: StepSide, phase: str, parts: list[int]) -> NDArray[np.float64]:
    values = side.parts_ns[:, parts].sum(axis=1)
    return np.where(side.phase == phase, values, 0).astype(np.float64)


def _steps(schedulers: Sequence[EngineSteps]) -> StepSide | None:
    known = [steps for steps in schedulers if len(steps)]
    if not known:
        return None
    parts = [
        np.stack(
            (
                steps.schedule_ns,
                steps.dispatch_ns,
                steps.execute_ns - steps.communication_ns,
                steps.communication_ns,
                steps.output_ns,
                steps.gap_before_ns,
            ),
            axis=1,
        )
        for steps in known
    ]
    phase = [
        np.where(
            steps.prefill_tokens > 0,
            np.where(steps.decode_tokens > 0, "mixed", "prefill"),
            np.where(steps.decode_tokens > 0, "decode", ""),
        ).astype(object)
        for steps in known
    ]
    return StepSide(np.concatenate(parts), np.concatenate(phase))
