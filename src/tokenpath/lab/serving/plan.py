"""Everything that decides a run: a plan is data, drawn once, and the loop does what it says."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenpath.engine.config import EngineConfig


@dataclass(frozen=True)
class StepCost:
    """Hidden latency model of a forward pass, in ns. Nobody outside the lab sees these numbers."""

    base_ns: float
    """Weights are read and kernels launched, whatever the batch."""
    prefill_token_ns: float
    """A prompt token."""
    decode_request_ns: float
    """A request that decodes, each of its tokens."""
    kv_token_ns: float
    """A token of context that a decoding request attends to."""
    pair_ns: float
    """A pair of query and key in prefill: what grows with the square of the prompt."""
    draft_ns: float = 0.0
    """Proposing one draft token for the whole batch; with speculation only."""


@dataclass(frozen=True)
class HostCost:
    """Host work of an engine core around a forward pass, in ns."""

    schedule_ns: float
    """Deciding a step."""
    schedule_request_ns: float
    """The same, a scheduled request."""
    hand_over_ns: float
    """From the decision to the worker."""
    hand_back_ns: float
    """From the worker's end to the scheduler."""
    update_ns: float
    """Processing outputs."""
    update_request_ns: float
    """The same, a request."""
    gap_ns: float
    """From there to the next decision."""


@dataclass(frozen=True)
class FrontEnd:
    """The API server: one tokeniser and one detokeniser, each with a queue."""

    tokenise_ns: float
    """A prompt, whatever its length."""
    tokenise_token_ns: float
    """A token of a prompt."""
    detokenise_token_ns: float
    """A token of an answer."""
    network_ns: float
    """Between client and server, each way."""


@dataclass(frozen=True)
class Client:
    """The load generator: one thread that sends requests and takes tokens in turn."""

    send_ns: float
    """Sending a request."""
    token_ns: float
    """Taking a token."""


@dataclass(frozen=True)
class Tier:
    """KV blocks kept outside the device."""

    bytes_per_token: int
    """KV of a token."""
    bytes_per_s: float
    """Bandwidth of the one link over which loads come, in order."""
    latency_ns: float
    """A load, whatever its size."""


@dataclass(frozen=True)
class Speculation:
    """Draft tokens, verified by the model."""

    num_drafts: int
    """Draft tokens a step and request."""
    acceptance: float
    """Probability that a draft token is accepted when those before it were."""


@dataclass(frozen=True)
class LoadSpec:
    """What clients send. Luck is drawn apart from sizes, so that plans that differ in one number differ in it alone."""

    num_requests: int
    """Requests of the measured run."""
    rate_per_s: float
    """Mean arrivals a second, where nobody waits for an answer."""
    burstiness: float
    """Shape of the gamma law of the gaps: 1 is a Poisson process, smaller is burstier."""
    prompt_tokens: float
    """Mean of the part of a prompt that is its own."""
    prompt_sigma: float
    """Sigma of its lognormal law; 0: all equal."""
    output_tokens: float
    """Mean of the output."""
    output_sigma: float
    """Sigma of its lognormal law; 0: all equal."""
    long_share: float = 0.0
    """Share of requests with a long prompt instead."""
    long_tokens: int = 0
    """How long."""
    num_groups: int = 0
    """Groups of requests, each with a prefix of its own; 0: none."""
    prefix_tokens: int = 0
    """Length of these prefixes."""
    is_salted: bool = False
    """Whether something unique (a time, an id) stands before each prefix, so that no block is ever equal."""
    num_turns: int = 1
    """Turns of a conversation; each has all before it as its prefix."""
    think_s: float = 0.0
    """Mean time between an answer and the next turn."""
    num_clients: int = 0
    """Closed loop: each client sends its next request when it has its answer; 0: open loop."""
    tier_share: float = 0.0
    """Share of requests whose context lies in a slower tier."""
    tier_tokens: int = 0
    """How many tokens of it."""
    num_failed: int = 0
    """Requests that the server refuses."""
    num_warm_up: int = 0
    """Requests sent at once before the measured run."""


@dataclass(frozen=True)
class Plan:
    """A whole scenario, faults included."""

    seed: int
    """Seed of all luck in the run."""
    model: str
    """Name of the model as served."""
    load: LoadSpec
    """What is sent."""
    engine: EngineConfig
    """Settings of each replica."""
    step: StepCost
    """Latency of its forward passes."""
    host: HostCost
    """Its host work."""
    front: FrontEnd
    """The API server."""
    client: Client
    """The load generator."""
    num_replicas: int = 1
    """Data-parallel replicas."""
    busiest: int = 0
    """The replica that gets `busiest_share`."""
    busiest_share: float | None = None
    """Share of the requests that go to it; None: the one with fewest requests is chosen."""
    is_static: bool = False
    """Batches that run to the end of their longest request, instead of iteration-level scheduling."""
    speculation: Speculation | None = None
    """Draft tokens, if any."""
    tier: Tier | None = None
    """A slower tier, if any."""
    long_lived: dict[str, int] = field(default_factory=dict)
    """Counters that were not 0 when the run began, by metric."""

    @property
    def is_async(self) -> bool:
        """Whether steps are decided while the one before still runs."""
        return self.engine.async_scheduling
