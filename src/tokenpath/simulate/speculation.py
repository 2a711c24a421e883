"""Speculative decoding: a draft proposes tokens, one step verifies them, the accepted ones are kept.

A step computes 1 + k tokens of each decode request and emits 1 + a of them, where a <= k drafts in a row
were accepted. Drafts are judged in order, so acceptance is a probability per position: that of draft i,
given that all before it were accepted (Leviathan et al., Fast Inference from Transformers via Speculative
Decoding, 2023, without their assumption that all positions are alike).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.core.errors import UsageError

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Acceptance:
    """How likely each draft is accepted."""

    by_position: tuple[float, ...]
    """Of draft 1, 2, ..., given that those before it were accepted; 0 to 1."""

    def __post_init__(self) -> None:
        if not self.by_position:
            raise UsageError("no acceptance for any position", allowed="one or more, 0 to 1")
        for number, chance in enumerate(self.by_position, 1):
            if not 0 <= chance <= 1:
                raise UsageError(f"acceptance {chance} of draft {number}", allowed="0 to 1")

    @classmethod
    def of_lengths(cls, lengths: Sequence[float]) -> Acceptance:
        """From measured mean acceptance lengths with 1, 2, ... drafts.

        One more draft adds the probability that all are accepted: L(k) - L(k - 1), with L(0) = 1. Where
        measurements are not monotone that is cut to what a probability can be.
        """
        if not lengths or not all(length >= 1 for length in lengths):
            raise UsageError(
                f"acceptance lengths {list(lengths)}", allowed="one or more, each 1 or more"
            )
        chances = []
        reached, so_far = 1.0, 1.0
        for length in lengths:
            gain = min(max(length - so_far, 0.0), reached)
            chances.append(gain / reached if reached > 0 else 0.0)
            reached, so_far = gain, so_far + gain
        return cls(tuple(chances))

    def with_drafts(self, num_drafts: int) -> Acceptance:
        """The same for another number of drafts; beyond the known ones the last one's goes on."""
        if num_drafts < 1:
            raise UsageError(f"{num_drafts} drafts", allowed="1 or more")
        more = max(0, num_drafts - len(self.by_position))
        return Acceptance((*self.by_position, *self.by_position[-1:] * more)[:num_drafts])

    @property
    def num_drafts(self) -> int:
        """Drafts that a step verifies."""
        return len(self.by_position)

    @property
    def mean_length(self) -> float:
        """Tokens that a step emits on average, the verified one included: 1 + sum of P(all up to i)."""
        return 1.0 + float(np.cumprod(self.by_position).sum())


@dataclass(frozen=True)
class SpeculationSettings:
    """Speculative decoding of an engine."""

    acceptance: Acceptance
    """How likely each of the drafts is accepted; as many as positions."""
    draft_pass_ns: float = 0.0
    """Time of one pass of the draft model or head, one for each draft of a step."""
    draft_request_ns: float = 0.0
    """What it takes longer for each request in it."""
    passes_per_step: int | None = None
    """Draft passes of a step: None for one each draft; 1 for drafts that come at once (parallel heads,
    n-grams)."""
    seed: int | None = 0
    """Acceptance is drawn at random from this seed; None: every request gets the mean, without chance."""

    def extra_ns(self, num_decode_requests: int) -> int:
        """What drafting adds to a step, rounded half up."""
        if num_decode_requests == 0:
            return 0
        passes = (
            self.acceptance.num_drafts if self.passes_per_step is None else self.passes_per_step
        )
        one = self.draft_pass_ns + self.draft_request_ns * num_decode_requests
        return math.floor(passes * one + 0.5)


class Speculator:
    """Turns the tokens of a request into rounds: the scheduler sees a request that emits one a step.

    So it works with any scheduler. For its blocks to be right on average, half of the tokens that rounds
    save are put behind the prompt, where they take room and no time: blocks of an answer are counted too
    high at first and too low in the end.
    """

    def __init__(self, settings: SpeculationSettings) -> None:
        self.settings = settings
        self._reached = np.cumprod(settings.acceptance.by_position)
        self._emitted: dict[int, Int64s] = {}
        self._padding: dict[int, int] = {}

    def plan(self, request: int, output_tokens: int) -> tuple[int, int]:
        """Steps that emit, which are the prompt's and a round for every 1 + a tokens after it; padding."""
        rounds = self.num_rounds(request, output_tokens)
        self._padding[request] = (output_tokens - rounds) // 2
        return rounds, self._padding[request]

    def num_rounds(self, request: int, output_tokens: int) -> int:
        """Steps that emit, without padding."""
        if self.settings.seed is None:
            emitted = self._by_mean(output_tokens)
        else:
            emitted = self._by_chance(self.settings.seed, request, output_tokens)
        self._emitted[request] = emitted
        return len(emitted) - 1

    def emitted(self, request: int, num_rounds: int) -> int:
        """Tokens out after so many rounds; `num_rounds` must have been asked before."""
        return int(self._emitted[request][num_rounds])

    def forget(self, request: int) -> None:
        """The request has ended."""
        del self._emitted[request], self._padding[request]

    def _by_mean(self, output_tokens: int) -> Int64s:
        length = self.settings.acceptance.mean_length
        rounds = math.ceil((output_tokens - 1) / length - 1e-9)
        after = 1 + np.floor(np.arange(rounds + 1) * length + 1e-9).astype(np.int64)
        after[-1] = output_tokens
        return np.concatenate(([0], after))

    def _by_chance(self, seed: int, request: int, output_tokens: int) -> Int64s:
        # A generator for each request: its draws do not depend on when others are served.
        draws = np.random.Generator(np.random.Philox(key=[seed, request]))
        after = [1]
        while after[-1] < output_tokens:
            left = output_tokens - after[-1]
            rounds = math.ceil(left / (len(self._reached) + 1))
            # The number of drafts accepted is the number of positions whose chance exceeds one draw.
            accepted = (draws.random(rounds)[:, None] < self._reached).sum(axis=1)
            after += (after[-1] + np.cumsum(1 + accepted)).tolist()
        after = after[: int(np.searchsorted(after, output_tokens)) + 1]
        after[-1] = output_tokens
        return np.array([0, *after], np.int64)

    def without_padding(
        self, requests: Int64s, prompts: Int64s, before: Int64s, tokens: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Entries of a step as they would be without what is put behind prompts."""
        padding = np.array([self._padding[request] for request in requests.tolist()], np.int64)
        ends = [at - np.clip(at - prompts, 0, padding) for at in (before, before + tokens)]
        return ends[0], ends[1] - ends[0]

    def translate(
        self, requests: Int64s, prompts: Int64s, before: Int64s, tokens: Int64s, is_prefill: Bools
    ) -> tuple[Int64s, Int64s]:
        """What a step really computes: tokens before, and tokens, of entries in the scheduler's rounds.

        A decode entry verifies its drafts too, one without a token nothing; a prefill entry after a preemption computes all tokens that
        its rounds have brought.
        """
        begin, end = before.copy(), before + tokens
        # Prompts without a round of their own in the step stand as they are.
        for entry in np.flatnonzero(end > prompts).tolist():
            done, prompt = self._emitted[int(requests[entry])], int(prompts[entry])
            rounds_before = int(begin[entry]) - prompt
            if not is_prefill[entry]:
                # The last token out has no KV yet: computing that is what a decode round begins with.
                begin[entry] = prompt + done[rounds_before + 1] - 1
                continue
            begin[entry] = prompt + done[rounds_before] if rounds_before > 0 else begin[entry]
            end[entry] = prompt + done[int(end[entry]) - prompt]
        num_drafts = self.settings.acceptance.num_drafts
        return begin, np.where(is_prefill, end - begin, tokens + num_drafts * (tokens > 0))
