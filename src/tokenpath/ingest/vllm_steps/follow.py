"""Each request followed from step to step: what went before a share, its phase, and the sums of each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.compiled import compiled
from tokenpath.ingest.vllm_steps.record import NULL, RUN, Int32s, Int64s

NUM_SUMS = 6
"""Of prefill, then of decode: requests, tokens computed, tokens computed before."""

_NULL, _RUN = NULL, RUN


@dataclass(frozen=True)
class Progress:
    """Each share with what went before it, and each step with its sums."""

    is_decode: NDArray[np.bool_]
    """Decode: at least one output token, and all tokens but the last output were computed before. Then
    one token is left to compute (more with speculation). All else is prefill, the recompute of a
    preempted request too, which the engine itself counts as generation. Of a request whose prompt is
    unknown (recording began when it ran) a share is decode if it computes one token and is not the first
    one after the queue."""
    outputs_before: Int64s
    """Tokens emitted before the step."""
    first_share: Int64s
    """First share of each request, -1 for none."""
    sums: Int64s
    """NUM_SUMS of each step."""


def follow(
    request: Int64s,
    step: Int64s,
    kind: Int32s,
    numbers: tuple[Int64s, Int64s, Int64s],
    prompt: Int64s,
    num_steps: int,
) -> Progress:
    """Shares in the order of the file, each with its request and step.

    `numbers` are tokens computed before, tokens computed and tokens emitted; `prompt` is each request's.
    """
    size = len(request)
    is_decode, outputs_before = np.zeros(size, np.uint8), np.zeros(size, np.int64)
    first_share, emitted = np.full(len(prompt), -1), np.zeros(len(prompt), np.int64)
    sums = np.zeros((num_steps, NUM_SUMS), np.int64)
    _follow(size)(
        request, step, kind, *numbers, prompt,
        is_decode, outputs_before, first_share, emitted, sums,
    )  # fmt: skip
    return Progress(is_decode.view(np.bool_), outputs_before, first_share, sums)


@compiled
def _follow(
    request: Int64s,
    step: Int64s,
    kind: Int32s,
    before: Int64s,
    tokens: Int64s,
    emitted: Int64s,
    prompt: Int64s,
    is_decode: NDArray[np.uint8],
    outputs_before: Int64s,
    first_share: Int64s,
    so_far: Int64s,
    sums: Int64s,
) -> int:
    for share in range(len(request)):
        row = request[share]
        outputs = so_far[row]
        if first_share[row] < 0:
            first_share[row] = share
        if prompt[row] == _NULL:
            decodes = kind[share] == _RUN and tokens[share] == 1
        else:
            decodes = outputs >= 1 and before[share] == prompt[row] + outputs - 1
        outputs_before[share] = outputs
        so_far[row] = outputs + emitted[share]
        column = 0
        context = before[share]
        if decodes:
            is_decode[share] = 1
            column = 3
            context += tokens[share]
        at = step[share]
        sums[at, column] += 1
        sums[at, column + 1] += tokens[share]
        sums[at, column + 2] += context
    return 0
