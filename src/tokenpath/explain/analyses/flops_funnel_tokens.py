"""Which share of the computed tokens nobody asked for: padding, recomputation, rejected drafts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import covered, union
from tokenpath.explain.analyses.attention_stalls import numbers
from tokenpath.explain.analyses.graph_padding import Batches, decode_batches
from tokenpath.explain.analysis import Analysis


@dataclass(frozen=True)
class TokenShares:
    """Shares of the tokens, 0 to 1, each of what the one before has left."""

    padding: float
    """Rows without a request."""
    recompute: float
    """Prompt tokens computed again after a preemption."""
    rejected: float
    """Tokens of drafts that were not accepted."""
    is_draft: NDArray[np.bool_]
    """Whether each kernel was launched within a range that is called draft."""
    unknown: tuple[str, ...]
    """Those that the capture does not tell; their share is 0."""


def token_shares(capture: Capture, analysis: Analysis) -> TokenShares:
    """The shares over the steps of the window; zero where steps or requests are not recorded."""
    unknown = []
    is_draft = _drafted(capture)
    if is_draft is None:
        unknown.append("draft")
        is_draft = np.zeros(capture.num_rows("kernel"), bool)
    steps = np.unique(
        np.concatenate(
            [
                capture.ids("kernel", "step_id")[device.work.row[device.work.in_window()]]
                for device in analysis.devices
            ]
        )
    )
    steps = steps[steps != NO_ID]
    if len(steps) == 0:
        return TokenShares(0.0, 0.0, 0.0, is_draft, (*unknown, "padding", "recompute", "rejected"))
    batches = decode_batches(capture)
    if not np.isfinite(batches.real[steps]).any():
        unknown.append("padding")
    if capture.num_rows("request_step") == 0:
        unknown += ["recompute", "rejected"]
    again, rejected = _requests(capture, steps)
    return TokenShares(_padding(capture, steps, batches), again, rejected, is_draft, tuple(unknown))


def _drafted(capture: Capture) -> NDArray[np.bool_] | None:
    """Kernels whose launch lies in a host range with `draft` in its name; None without such a range."""
    codes, names = capture.codes("range", "name")
    named = np.array(["draft" in name.lower() for name in names] or [False])
    chosen = (codes >= 0) & named[codes] & (capture.ids("range", "device_id") == NO_ID)
    if not chosen.any():
        return None
    start, end = capture.int64("range", "start_ns"), capture.int64("range", "end_ns")
    within = union(start[chosen], end[chosen])
    call = capture.ids("kernel", "api_call_id")
    launched = np.zeros(len(call), np.int64)
    if capture.num_rows("api_call"):
        launched = capture.int64("api_call", "start_ns")[np.maximum(call, 0)]
    result: NDArray[np.bool_] = (call >= 0) & (covered(launched, launched + 1, within) > 0)
    return result


def _padding(capture: Capture, steps: np.ndarray, batches: Batches) -> float:
    extra = np.nansum((batches.padded - batches.real)[steps])
    tokens = np.zeros(len(steps))
    for column in ("num_prefill_tokens", "num_decode_tokens"):
        tokens += capture.int64("step", column, 0)[steps]
    known = np.where(tokens > 0, tokens, np.nan_to_num(batches.real[steps]))
    total = float(known.sum() + extra)
    return float(extra) / total if total else 0.0


def _requests(capture: Capture, steps: np.ndarray) -> tuple[float, float]:
    """(computed again, rejected) from the requests of these steps or of their scheduler's rows."""
    if capture.num_rows("request_step") == 0:
        return 0.0, 0.0
    twin = capture.ids("step", "scheduler_step_id")[steps]
    wanted = np.union1d(steps, twin[twin != NO_ID])
    step = capture.ids("request_step", "step_id")
    chosen = np.isin(step, wanted)
    tokens = capture.int64("request_step", "num_tokens")
    phase, phases = capture.codes("request_step", "phase")
    prefill = np.array([name == "prefill" for name in phases] or [False])[phase]
    again = _again(capture, step, tokens, prefill)
    emitted = numbers(capture, "request_step", "num_emitted")
    decode = chosen & ~prefill & np.isfinite(emitted)
    rejected = np.maximum(tokens - emitted, 0.0)[decode & (tokens > 1)].sum()
    total = float(tokens[chosen].sum())
    if total <= 0:
        return 0.0, 0.0
    share = float(again[chosen].sum()) / total
    left = total - float(again[chosen].sum())
    return share, float(rejected) / left if left > 0 else 0.0


def _again(
    capture: Capture, step: np.ndarray, tokens: np.ndarray, prefill: np.ndarray
) -> np.ndarray:
    """For each row the tokens that its request had computed in an earlier step."""
    before = numbers(capture, "request_step", "num_computed_before")
    request, _ = capture.codes("request_step", "request_id")
    start = capture.int64("step", "start_ns")[step]
    again = np.zeros(len(step))
    order = np.lexsort((start, request))
    reached, owner = 0.0, NO_ID
    # One row a request and step: thousands, not millions, where a profiler ran as well.
    for at in order.tolist():
        if request[at] != owner:
            owner, reached = int(request[at]), 0.0
        if not np.isfinite(before[at]):
            continue
        end = before[at] + tokens[at]
        if prefill[at]:
            again[at] = max(0.0, min(end, reached) - before[at])
        reached = max(reached, end)
    return again
