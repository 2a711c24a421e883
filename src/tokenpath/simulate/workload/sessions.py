"""Multi-turn sessions: each prompt repeats what was said before and adds a question."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tokenpath.core.errors import UsageError
from tokenpath.simulate.workload.arrivals import ArrivalProcess, check_count
from tokenpath.simulate.workload.chance import Floats, Purpose, stream, uniforms
from tokenpath.simulate.workload.content import GRANULE_TOKENS, id_ranges, ids_of_parts
from tokenpath.simulate.workload.generate import (
    Length,
    SharedPrefix,
    draw_groups,
    whole_ns,
)
from tokenpath.simulate.workload.lengths import PairLaw, law_of
from tokenpath.simulate.workload.workload import NO_REQUEST, Int64s, Workload


@dataclass(frozen=True, slots=True)
class Sessions:
    """How conversations go. Lengths are those of one turn: the question and its answer."""

    turns: Length
    """Questions of a session, at least 1 (a law of whole numbers)."""
    turn: PairLaw
    """Tokens of a question and of its answer."""
    mean_think_s: float = 0.0
    """Mean time from an answer's end to the next question; exponential, 0 for none."""
    prefix: SharedPrefix | None = None
    """System prompts before the first question."""
    max_context_tokens: int | None = None
    """A session ends before the turn whose prompt and answer would exceed this; its first turn is always asked."""
    granule_tokens: int = GRANULE_TOKENS
    """Tokens of a granule of content."""

    def __post_init__(self) -> None:
        if not 0 <= self.mean_think_s < math.inf:
            raise UsageError(
                f"{self.mean_think_s:g} s to think", where="think time", allowed="from 0 on, finite"
            )


@dataclass(frozen=True, slots=True)
class Transcript:
    """Sessions laid out turn by turn, a session's turns together and in order."""

    session: Int64s
    """Session of each turn, not falling."""
    turn: Int64s
    """Number of the turn in its session, from 0 on."""
    prompt_tokens: Int64s
    """Everything before the turn, and its question."""
    output_tokens: Int64s
    """The answer."""


def sessions(
    arrivals: ArrivalProcess,
    num_sessions: int,
    spec: Sessions,
    *,
    concurrency: int | None = None,
    seed: int = 0,
) -> Workload:
    """Sessions that begin as the process says; each turn after the first waits for the answer before it.

    With `concurrency` so many sessions' first turns are in flight at most (see `Workload`).
    """
    check_count(num_sessions, "sessions")
    turns = law_of(spec.turns).at(uniforms(stream(seed, Purpose.TURNS), num_sessions))
    check_count(float(turns.sum()))
    session = np.repeat(np.arange(num_sessions), turns)
    pairs = spec.turn.draw(seed, len(session))
    system = np.zeros(num_sessions, np.int64)
    group = np.arange(num_sessions)
    if spec.prefix is not None:
        group = draw_groups(spec.prefix, num_sessions, seed)
        law = law_of(spec.prefix.tokens)
        per_group = law.at(uniforms(stream(seed, Purpose.PREFIX), spec.prefix.num_groups))
        system = per_group[group]
    said = transcript(session, turns, system, pairs.prompt_tokens, pairs.output_tokens)
    chance = stream(seed, Purpose.THINK)
    think: Floats = chance.standard_exponential(len(session)) * spec.mean_think_s
    start = whole_ns(arrivals.times_s(stream(seed, Purpose.ARRIVAL), num_sessions))
    fits = np.ones(len(session), bool)
    if spec.max_context_tokens is not None:
        # Contexts only grow: what does not fit is the end of a session.
        total = said.prompt_tokens + said.output_tokens
        fits = (total <= spec.max_context_tokens) | (said.turn == 0)
    kept = Transcript(
        said.session[fits], said.turn[fits], said.prompt_tokens[fits], said.output_tokens[fits]
    )
    name = f"{num_sessions:,} sessions, {arrivals.label}, {len(kept.turn):,} requests"
    return of_transcript(
        name, kept, start, whole_ns(think)[fits], group, system, spec.granule_tokens,
        concurrency=concurrency,
    )  # fmt: skip


def transcript(
    session: Int64s, turns: Int64s, system: Int64s, question: Int64s, answer: Int64s
) -> Transcript:
    """Prompts of the turns: the system prompt, all questions and answers before, and the question."""
    first = np.cumsum(turns) - turns
    said = np.cumsum(question + answer)
    before = np.concatenate(([0], said))[first]
    prompt = system[session] + said - answer - before[session]
    turn = np.arange(len(session)) - first[session]
    return Transcript(session, turn, prompt, answer)


def of_transcript(
    name: str,
    said: Transcript,
    start_ns: Int64s,
    think_ns: Int64s,
    group: Int64s,
    system: Int64s,
    granule_tokens: int,
    *,
    state: str = "synthetic",
    concurrency: int | None = None,
) -> Workload:
    """The workload of a transcript. `start_ns`, `group` and `system` (tokens) have one entry a session."""
    shared = system // granule_tokens
    num_groups = int(group.max()) + 1 if len(group) else 0
    per_group = np.zeros(num_groups, np.int64)
    per_group[group] = shared
    num_sessions = len(group)
    total = (said.prompt_tokens + said.output_tokens) // granule_tokens
    own = total - shared[said.session]
    most = np.zeros(num_sessions, np.int64)
    np.maximum.at(most, said.session, own)
    own_first = id_ranges(most, int(per_group.sum()))
    content = ids_of_parts(
        [id_ranges(per_group)[group][said.session], own_first[said.session]],
        [shared[said.session], own],
        granule_tokens,
    )
    count = len(said.session)
    follows = said.turn > 0
    return Workload(
        name=name,
        state=state,
        arrival_ns=start_ns[said.session],
        prompt_tokens=said.prompt_tokens,
        output_tokens=said.output_tokens,
        priority=np.zeros(count, np.int64),
        after=np.where(follows, np.arange(count) - 1, NO_REQUEST),
        think_ns=np.where(follows, think_ns, 0),
        session=said.session,
        hash_start=content.hash_start,
        hashes=content.hashes,
        hash_granule_tokens=granule_tokens,
        concurrency=concurrency,
    )
