"""Separate prefill and decode instances: the KV cache of each prompt crosses a link between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokenpath.core.errors import InputError, UsageError
from tokenpath.core.hardware import Hardware
from tokenpath.core.units import NS_PER_S
from tokenpath.engine.scheduler import EngineRequest
from tokenpath.simulate.cluster import Pool, Requests
from tokenpath.simulate.loop import DELIVER, RELEASE, Event
from tokenpath.simulate.recorder import NOT_SEEN, Recorder, UserTokens
from tokenpath.simulate.replica import Progress, Replica, Stage
from tokenpath.simulate.router import Endpoint, Router
from tokenpath.simulate.workload.workload import Workload

ANSWERED_BY = ("prefill", "transfer", "decode")
"""`prefill`: the prefill instance's token goes to the user at once; `transfer`: with the KV, through the
decode instance (SGLang, TensorRT-LLM); `decode`: the decode instance computes the prompt's last token again
and emits the first token itself (vLLM with a KV connector)."""

ANSWERS = {"vllm": "decode", "sglang": "transfer", "trtllm": "transfer"}
"""By engine. vLLM's proxy asks the prefill instance for one token and drops it."""

LINE_RATES: dict[str, float] = {
    "pcie3-x16": 15.754e9,
    "pcie4-x16": 31.508e9,
    "pcie5-x16": 63.015e9,
    "ethernet-25g": 3.125e9,
    "ethernet-100g": 12.5e9,
    "ethernet-200g": 25e9,
    "ethernet-400g": 50e9,
    "infiniband-hdr": 25e9,
    "infiniband-ndr": 50e9,
    "infiniband-xdr": 100e9,
}
"""Bytes per second in one direction of links that belong to a server, not to a part. PCIe: 8, 16, 32 GT/s
over 16 lanes with 128b/130b encoding (PCI-SIG base specifications 3.0, 4.0, 5.0); networks: the rate that
names them, 4 lanes for InfiniBand (IBTA roadmap)."""

LATENCY_NS = 10_000
"""What a transfer takes beside its bytes unless stated: an order of magnitude for a one-sided read of many
pieces over RDMA with its handshake, assumed and not measured."""


@dataclass(frozen=True)
class Link:
    """A link that every instance has one port of, by direction."""

    name: str
    """What it is."""
    bytes_per_s: float
    """Of one rank's port, one direction."""
    latency_ns: int = LATENCY_NS
    """From the last byte sent to the KV usable, and all that does not depend on bytes."""

    def __post_init__(self) -> None:
        if not self.bytes_per_s > 0:
            raise UsageError(f"{self.name}: {self.bytes_per_s} bytes per second", allowed="above 0")
        if self.latency_ns < 0:
            raise UsageError(f"{self.name}: latency {self.latency_ns} ns", allowed="0 or more")

    def duration_ns(self, num_bytes: float) -> int:
        """Time that the port is busy with so many bytes."""
        return round(num_bytes / self.bytes_per_s * NS_PER_S)


def find_link(name: str, hardware: Hardware | None = None, latency_ns: int = LATENCY_NS) -> Link:
    """The link of that name: `scale-up` and `scale-out` are those of the part, others LINE_RATES.

    UsageError for a name that is not known, and for a part that has no such link.
    """
    rates = dict(LINE_RATES)
    if hardware is not None:
        own = {
            "scale-up": hardware.scale_up_bytes_per_s,
            "scale-out": hardware.scale_out_bytes_per_s,
        }
        rates |= {key: rate for key, rate in own.items() if rate is not None}
    if name not in rates:
        raise UsageError(
            f"no link {name!r}" + (f" on {hardware.name}" if hardware else ""),
            allowed=", ".join(rates),
            next_step="name one of these, or state its bytes per second",
        )
    return Link(name, rates[name], latency_ns)


class Ports:
    """The ports of a link: a transfer needs one of each end, in the order in which transfers are asked for."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._free_ns: dict[tuple[str, int], int] = {}

    def send(self, source: int, target: int, num_bytes: float, now_ns: int) -> int:
        """When the bytes have arrived, if they are sent as soon as both ports are free."""
        ends = (("out", source), ("in", target))
        begin = max(now_ns, *(self._free_ns.get(end, 0) for end in ends))
        done = begin + self._link.duration_ns(num_bytes)
        for end in ends:
            self._free_ns[end] = done
        return done + self._link.latency_ns


@dataclass(frozen=True)
class TransferSettings:
    """How KV gets from prefill to decode instances."""

    link: Link
    """What it crosses; each replica has one port of it for each of its tensor-parallel ranks."""
    kv_bytes: Callable[[int], float]
    """KV bytes of a prompt of so many tokens on one rank: `ModelShape.kv_bytes` with dtype and tp."""
    answered_by: str = "transfer"
    """Who emits the user's first token, one of ANSWERED_BY."""
    sent_before_end: float = 0.0
    """Share of a prompt's KV that is sent while the prefill goes on (layer by layer), 0 to below 1."""
    decode_queue_limit: int | None = None
    """A transfer starts only while fewer than so many requests a decode scheduler are on their way or in
    queues there; the others keep waiting at the prefill side, in order. None: no limit."""

    def __post_init__(self) -> None:
        if self.answered_by not in ANSWERED_BY:
            raise UsageError(f"answered_by {self.answered_by!r}", allowed=", ".join(ANSWERED_BY))
        if not 0 <= self.sent_before_end < 1:
            raise UsageError(
                f"sent_before_end is {self.sent_before_end}", allowed="0 to less than 1"
            )
        if self.decode_queue_limit is not None and self.decode_queue_limit < 1:
            raise UsageError(
                f"decode_queue_limit is {self.decode_queue_limit}", allowed="1 or more"
            )


class Disaggregated:
    """Prefill replicas hand each request on to a decode replica.

    A prefill replica computes the prompt and one token. Its blocks are free for others from then on, which
    is early by the transfer. The decode scheduler sees a prompt whose KV is there already, all but one token:
    that one alone counts against its budget of tokens for a step (where it is an `AskingScheduler`, as all engines
    are). After a preemption it computes the prompt itself. Replicas are numbered through: prefill first.
    """

    def __init__(
        self,
        workload: Workload,
        prefill: Sequence[Replica],
        decode: Sequence[Replica],
        recorder: Recorder,
        settings: TransferSettings,
        *,
        prefill_router: Router | None = None,
        decode_router: Router | None = None,
        round_trip_ns: int = 0,
    ) -> None:
        """`recorder` has two stages."""
        self._requests = Requests(workload)
        self._settings, self._recorder = settings, recorder
        self._round_trip_ns = round_trip_ns
        self._repeats_last = settings.answered_by == "decode"
        self._output = workload.output_tokens
        prompt = workload.prompt_tokens + (0 if self._repeats_last else 1)
        loaded = Progress(prompt, np.zeros_like(prompt), workload.prompt_tokens.copy(), prompt - 1)
        prompts = Progress.of(workload.prompt_tokens)
        self._prefill = Pool(
            prefill, Stage(0, prompts, recorder, not self._repeats_last), prefill_router
        )
        self._decode = Pool(
            decode,
            Stage(1, loaded, recorder),
            decode_router,
            first_replica=len(prefill),
            first_endpoint=len(self._prefill.endpoints),
        )
        self._num_prefill = len(prefill)
        self._ports = Ports(settings.link)
        self._held: deque[int] = deque()
        self._coming = [0] * len(self._decode.endpoints)
        self._user_token_ns = np.full(workload.num_requests, NOT_SEEN)
        self.num_finished = 0
        """Requests that ended, refused ones included."""
        self.refusals: list[tuple[int, str]] = []
        """Requests that no scheduler could ever run, and why."""

    @property
    def endpoints(self) -> list[Endpoint]:
        """Every scheduler, by number."""
        return [*self._prefill.endpoints, *self._decode.endpoints]

    @property
    def num_waiting(self) -> int:
        """Requests in queues, prompts that wait for a decode replica included."""
        return self._prefill.num_waiting + len(self._held) + self._decode.num_waiting

    @property
    def num_running(self) -> int:
        """Requests admitted and not ended."""
        return self._prefill.num_running + self._decode.num_running

    def start(self) -> list[Event]:
        """Replicas that join later."""
        return self._prefill.start() + self._decode.start()

    def join(self, replica: int, _now_ns: int) -> list[Event]:
        """Its schedulers take requests from now on."""
        self._pool(replica).join(replica)
        return []

    def arrive(self, request: int, now_ns: int) -> list[Event]:
        """Route the request to a prefill replica."""
        asked = replace(self._requests.engine_request(request, now_ns), output_tokens=1)
        return self._add(self._prefill, asked, now_ns)

    def schedule(self, replica: int, now_ns: int) -> list[Event]:
        """Decide steps; a decode replica that has admitted requests may let others come."""
        events = self._pool(replica).schedule(replica, now_ns)
        return events + self._send_held(now_ns)

    def complete(self, replica: int, now_ns: int) -> list[Event]:
        """The oldest step in flight has run: prompts are handed on, answers are done."""
        pool = self._pool(replica)
        finished = pool.complete(replica, now_ns)
        events: list[Event] = []
        if pool is self._decode:
            events += self._end(finished, now_ns)
        else:
            for request in finished:
                events += self._hand_on(request, now_ns)
            events += self._send_held(now_ns)
        return events + pool.ask(replica, now_ns)

    def deliver(self, request: int, now_ns: int) -> list[Event]:
        """The KV is there: queue the rest of the request at its decode replica."""
        endpoint = self._decode.endpoint_of(request)
        self._coming[endpoint.number - self._decode.first_endpoint] -= 1
        if self._settings.answered_by == "transfer":
            self._user_token_ns[request] = now_ns
        events = self._add(self._decode, self._rest_of(request, now_ns), now_ns, endpoint)
        return events + self._send_held(now_ns)

    def user_tokens(self) -> UserTokens:
        """What users got, at the end of the run."""
        rows = self._recorder.requests[1]
        if self._repeats_last:
            return UserTokens(rows.first_token_ns, rows.output_tokens)
        return UserTokens(
            self._user_token_ns, rows.output_tokens + (self._user_token_ns != NOT_SEEN)
        )

    def _pool(self, replica: int) -> Pool:
        return self._prefill if replica < self._num_prefill else self._decode

    def _rest_of(self, request: int, now_ns: int) -> EngineRequest:
        whole = self._requests.engine_request(request, now_ns)
        if self._repeats_last:
            return whole
        return replace(
            whole, prompt_tokens=whole.prompt_tokens + 1, output_tokens=whole.output_tokens - 1
        )

    def _add(
        self, pool: Pool, asked: EngineRequest, now_ns: int, endpoint: Endpoint | None = None
    ) -> list[Event]:
        if endpoint is None:
            endpoint = pool.choose(asked, self._requests.session[asked.index])
        try:
            return pool.add(asked, endpoint, now_ns)
        except InputError as error:
            self.refusals.append((asked.index, error.what))
            return self._end([asked.index], now_ns)

    def _hand_on(self, request: int, now_ns: int) -> list[Event]:
        if self._settings.answered_by == "prefill":
            self._user_token_ns[request] = now_ns
        if self._output[request] == 1 and not self._repeats_last:
            self._user_token_ns[request] = now_ns
            return self._end([request], now_ns)
        self._held.append(request)
        return []

    def _send_held(self, now_ns: int) -> list[Event]:
        """Start transfers in the order in which prompts were done, as far as decode replicas take them."""
        events: list[Event] = []
        while self._held and self._takes_more():
            request = self._held.popleft()
            rest = self._rest_of(request, now_ns)
            endpoint = self._decode.choose(rest, self._requests.session[request])
            self._coming[endpoint.number - self._decode.first_endpoint] += 1
            prompt = rest.prompt_tokens - (0 if self._repeats_last else 1)
            num_bytes = self._settings.kv_bytes(prompt) * (1 - self._settings.sent_before_end)
            source = self._prefill.replica_of(self._prefill.endpoint_of(request))
            target = self._decode.replica_of(endpoint)
            events.append((self._ports.send(source, target, num_bytes, now_ns), DELIVER, request))
        return events

    def _takes_more(self) -> bool:
        limit = self._settings.decode_queue_limit
        if limit is None:
            return True
        waiting = [
            coming + endpoint.scheduler.num_waiting
            for coming, endpoint in zip(self._coming, self._decode.endpoints, strict=True)
            if endpoint.is_ready
        ]
        return sum(waiting) < limit * len(waiting)

    def _end(self, finished: Sequence[int], now_ns: int) -> list[Event]:
        self.num_finished += len(finished)
        return [(now_ns + self._round_trip_ns, RELEASE, request) for request in finished]
