"""The load of inference-perf's `shared_prefix` data generator, request by request.

Read from kubernetes-sigs/inference-perf: `datagen/**/shared_prefix_datagen.py`, `loadgen/load_timer.py`,
`apis/user_session.py` (v0.2 to v0.6). What matters for an engine:

- all prompts are made once, shuffled, and sent round and round: after the first round every prompt has been
  seen, and an engine with a prefix cache computes little of it;
- its `constant` arrivals are exponential gaps stretched to the duration, as bursty as Poisson;
- with `enable_multi_turn_chat` (v0.3 on) a prompt is one session's whole history and its question again, sent
  when the session's answer before is there; the client's clock starts after that wait.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpath.core.errors import UsageError
from tokenpath.simulate.workload.arrivals import check_count, check_positive
from tokenpath.simulate.workload.chance import Floats, Purpose, split, stream
from tokenpath.simulate.workload.content import (
    GRANULE_TOKENS,
    id_ranges,
    ids_of_parts,
)
from tokenpath.simulate.workload.generate import of_columns, whole_ns
from tokenpath.simulate.workload.lengths import Pairs
from tokenpath.simulate.workload.workload import NO_REQUEST, Int64s, Workload


@dataclass(frozen=True, slots=True)
class LoadStage:
    """A stage of inference-perf: int(rate * duration) requests."""

    rate_per_s: float
    """Requests a second."""
    duration_s: float
    """Seconds."""

    def __post_init__(self) -> None:
        check_positive("rate", self.rate_per_s, "requests a second")
        check_positive("duration", self.duration_s, "seconds")

    @property
    def num_requests(self) -> int:
        """Requests of the stage."""
        return int(self.rate_per_s * self.duration_s)


@dataclass(frozen=True, slots=True)
class SharedPrefixChat:
    """The `shared_prefix` section of inference-perf, lengths fixed."""

    num_unique_system_prompts: int
    """System prompts (its `num_groups`)."""
    num_users_per_system_prompt: int
    """Prompts, or sessions, of each (its `num_prompts_per_group`)."""
    system_prompt_tokens: int
    """Its `system_prompt_len`."""
    question_tokens: int
    """Its `question_len`."""
    output_tokens: int
    """Its `output_len`, the `max_tokens` of each request."""
    multi_turn: bool = False
    """Its `enable_multi_turn_chat` as v0.3 and later do it. v0.2 knows no such setting and sends single turns;
    so did the tool behind measured runs that name it but whose prompts do not grow."""
    retokenised: float = 1.0
    """Tokens that the server sees over those that were drawn: random tokens do not survive decoding and encoding
    (before v0.6 about 1.04 with Llama tokenisers; later versions correct it)."""

    def __post_init__(self) -> None:
        numbers = (
            self.num_unique_system_prompts,
            self.num_users_per_system_prompt,
            self.question_tokens,
            self.output_tokens,
        )
        if min(numbers) < 1 or self.system_prompt_tokens < 0:
            raise UsageError(
                "a number is below 1",
                where="shared prefix",
                allowed="groups, users and tokens from 1 on",
            )
        check_positive("retokenised", self.retokenised, "a factor")


def inference_perf(
    stages: list[LoadStage],
    chat: SharedPrefixChat,
    *,
    arrival: str = "constant",
    between_stages_s: float = 1.0,
    max_model_tokens: int | None = None,
    granule_tokens: int = GRANULE_TOKENS,
    seed: int = 0,
) -> Workload:
    """All stages as one workload; stage k holds the `num_requests` after those of the stages before.

    `arrival` is `constant` or `poisson` as the tool understands them. The tool waits for the last answer of a
    stage and then for `between_stages_s`; here the next stage begins so long after the end of the one before,
    so choose it longer where the last answers take long. Turns that would exceed `max_model_tokens` fail at once in the tool and are left out.
    """
    if arrival not in ("constant", "poisson"):
        raise UsageError(f"{arrival!r}", where="arrival", allowed="constant, poisson")
    check_count(float(sum(stage.rate_per_s * stage.duration_s for stage in stages)))
    num_users = chat.num_unique_system_prompts * chat.num_users_per_system_prompt
    draw = constant_times_s if arrival == "constant" else poisson_times_s
    times, place, stage_of = [], [], []
    begin = 0.0
    for number, (stage, rng) in enumerate(
        zip(stages, split(stream(seed, Purpose.ARRIVAL), len(stages)), strict=True)
    ):
        moments = draw(stage, rng)
        times.append(begin + moments)
        place.append(np.arange(stage.num_requests))
        stage_of.append(np.full(stage.num_requests, number))
        begin += max([stage.duration_s, *moments[-1:].tolist()]) + between_stages_s
    index = np.concatenate([np.empty(0, np.int64), *place])
    arrival_ns = whole_ns(np.concatenate([np.empty(0), *times]))
    order = stream(seed, Purpose.ORDER).permutation(num_users)
    user = order[index % num_users]
    name = (
        f"inference-perf {arrival}, {len(index):,} requests of {num_users:,} users "
        f"in {chat.num_unique_system_prompts:,} groups"
    )
    if not chat.multi_turn:
        return _single_turns(name, arrival_ns, user, chat, granule_tokens)
    # Sessions begin anew with each stage: the tool forgets them when a stage ends.
    session = user + num_users * np.concatenate([np.empty(0, np.int64), *stage_of])
    return _multi_turns(
        name, arrival_ns, user, session, index // num_users, num_users, chat, granule_tokens,
        max_model_tokens,
    )  # fmt: skip


def _single_turns(
    name: str, arrival_ns: Int64s, user: Int64s, chat: SharedPrefixChat, granule_tokens: int
) -> Workload:
    system, question = _tokens(chat)
    count = len(user)
    shared, whole = system // granule_tokens, (system + question) // granule_tokens
    num_groups = chat.num_unique_system_prompts
    content = ids_of_parts(
        [
            (user // chat.num_users_per_system_prompt) * shared,
            num_groups * shared + user * (whole - shared),
        ],
        [np.full(count, shared), np.full(count, whole - shared)],
        granule_tokens,
    )
    pairs = Pairs(np.full(count, system + question), np.full(count, chat.output_tokens))
    return of_columns(name, "synthetic", arrival_ns, pairs, content)


def _multi_turns(
    name: str,
    arrival_ns: Int64s,
    user: Int64s,
    session: Int64s,
    turn: Int64s,
    num_users: int,
    chat: SharedPrefixChat,
    granule_tokens: int,
    max_model_tokens: int | None,
) -> Workload:
    system, question = _tokens(chat)
    prompt = system + question + turn * (question + chat.output_tokens)
    follower = turn > 0
    # The tool numbers sessions and prompts alike, so a session's turns are num_users requests apart.
    after = np.where(follower, np.arange(len(user)) - num_users, NO_REQUEST)
    if max_model_tokens is not None:
        fits = prompt + chat.output_tokens <= max_model_tokens
        number = np.cumsum(fits) - 1
        arrival_ns, user, session, prompt = (
            column[fits] for column in (arrival_ns, user, session, prompt)
        )
        follower, after = follower[fits], after[fits]
        after = np.where(follower, number[after], NO_REQUEST)
    shared = np.full(len(user), system // granule_tokens)
    own = (prompt + chat.output_tokens) // granule_tokens - shared
    compact, session = np.unique(session, return_inverse=True)
    most = np.zeros(len(compact), np.int64)
    np.maximum.at(most, session, own)
    own_first = id_ranges(most, chat.num_unique_system_prompts * (system // granule_tokens))
    group = user // chat.num_users_per_system_prompt
    content = ids_of_parts([group * shared, own_first[session]], [shared, own], granule_tokens)
    count = len(user)
    return Workload(
        name=name,
        state="synthetic",
        arrival_ns=arrival_ns,
        prompt_tokens=prompt,
        output_tokens=np.full(count, chat.output_tokens),
        priority=np.zeros(count, np.int64),
        after=after,
        think_ns=np.zeros(count, np.int64),
        session=session,
        hash_start=content.hash_start,
        hashes=content.hashes,
        hash_granule_tokens=granule_tokens,
    )


def constant_times_s(stage: LoadStage, rng: np.random.Generator) -> Floats:
    """Its ConstantLoadTimer: exponential gaps, stretched so that the last request comes as the stage ends."""
    gaps = rng.standard_exponential(stage.num_requests)
    return np.asarray(np.cumsum(gaps) * (stage.duration_s / max(gaps.sum(), 1e-300)))


def poisson_times_s(stage: LoadStage, rng: np.random.Generator) -> Floats:
    """Its PoissonLoadTimer: a Poisson number of requests each second, the last as the second ends."""
    counts: list[Int64s] = []
    num_drawn = 0
    while num_drawn < stage.num_requests:
        more = rng.poisson(stage.rate_per_s, int(stage.duration_s) + 16)
        counts.append(more)
        num_drawn += int(more.sum())
    if not counts:
        return np.empty(0)
    per_second = np.concatenate(counts)
    busy = np.flatnonzero(per_second)
    held = per_second[busy]
    reached = np.cumsum(rng.standard_exponential(num_drawn))
    ends = reached[np.cumsum(held) - 1]
    begins = np.concatenate(([0.0], ends[:-1]))
    width = np.repeat(ends - begins, held)
    moments = np.repeat(busy, held) + (reached - np.repeat(begins, held)) / width
    return np.asarray(moments[: stage.num_requests])


def _tokens(chat: SharedPrefixChat) -> tuple[int, int]:
    system = round(chat.system_prompt_tokens * chat.retokenised)
    whole = (chat.system_prompt_tokens + chat.question_tokens) * chat.retokenised
    return system, round(whole) - system
