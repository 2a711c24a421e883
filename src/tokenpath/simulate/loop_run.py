"""A workload through a cluster: sets up the recorder, runs the loop, and says what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tokenpath.core.errors import InputError, UsageError
from tokenpath.engine.config import EngineConfig
from tokenpath.simulate.cluster import Colocated
from tokenpath.simulate.compiled.run import CompiledRun
from tokenpath.simulate.loop import run_events
from tokenpath.simulate.loop_clients import WorkloadClients
from tokenpath.simulate.loop_overload import Overload, OverloadWatch, look_every
from tokenpath.simulate.recorder import DETAILS, Recorder, RunRows, ShareSink
from tokenpath.simulate.replica import Replica, ReplicaSettings
from tokenpath.simulate.router import Endpoint, Router
from tokenpath.simulate.step_model import StepCurve
from tokenpath.simulate.transfer import Disaggregated, TransferSettings
from tokenpath.simulate.workload.workload import Workload


@dataclass(frozen=True)
class Simulated:
    """What came of a run."""

    rows: RunRows
    """What happened."""
    end_ns: int
    """Time of the last event."""
    num_sent: int
    """Requests that clients sent."""
    num_finished: int
    """Those that ended, refused ones included."""
    refusals: Sequence[tuple[int, str]]
    """Requests that the engine refused, as it could never have run them, and why."""
    overload: Overload | None
    """Whether requests arrive faster than they can be served; None: not as far as seen."""
    loaded_tokens: Mapping[str, int]
    """Tokens loaded from each tier of KV below the GPU; empty where there is none."""


def simulate_workload(
    workload: Workload,
    replicas: Sequence[Replica],
    router: Router | None = None,
    *,
    detail: str = "step",
    sink: ShareSink | None = None,
    round_trip_ns: int = 0,
    stops_on_overload: bool = True,
) -> Simulated:
    """Run a workload through replicas behind a router (round robin if None is named), to the end.

    An overloaded open loop of many requests is stopped early and says so, unless `stops_on_overload` is off.
    Replicas are used up: their schedulers hold the state of this run. InputError when requests are left
    that no event will ever reach.
    """
    recorder = _recorder(workload, detail, sink)
    cluster = Colocated(workload, replicas, recorder, router, round_trip_ns=round_trip_ns)
    return _run(workload, cluster, recorder, replicas, stops_on_overload)


def simulate_vllm(
    workload: Workload,
    config: EngineConfig,
    curve: StepCurve,
    replicas: Sequence[ReplicaSettings],
    router: Router | None = None,
    *,
    detail: str = "step",
    sink: ShareSink | None = None,
    round_trip_ns: int = 0,
    stops_on_overload: bool = True,
    num_runs: int = 1,
) -> Simulated:
    """What `simulate_workload` gives for plain replicas of vLLM, to the bit, by the compiled loop.

    `num_runs`: how many runs like this one there will be, which decides whether compiling pays.
    """
    run = CompiledRun(
        workload,
        config,
        curve,
        replicas,
        router,
        round_trip_ns=round_trip_ns,
        look_every=look_every(workload),
        keeps_shares=_keeps_shares(detail),
        sink=sink,
        num_runs=num_runs,
    )
    watch = OverloadWatch(workload, run, run, stops=stops_on_overload)
    end_ns = run.run(watch)
    if watch.found is None or not watch.found.is_stopped:
        _refuse_stuck(run.num_sent - run.num_finished, run.endpoints)
    counts = run.num_sent, run.num_finished, run.refusals
    return Simulated(run.rows(), end_ns, *counts, watch.found, {})


def simulate_disaggregated(
    workload: Workload,
    prefill: Sequence[Replica],
    decode: Sequence[Replica],
    transfer: TransferSettings,
    *,
    prefill_router: Router | None = None,
    decode_router: Router | None = None,
    detail: str = "step",
    sink: ShareSink | None = None,
    round_trip_ns: int = 0,
    stops_on_overload: bool = True,
) -> Simulated:
    """The same with separate prefill and decode replicas and a transfer of KV between them."""
    recorder = _recorder(workload, detail, sink, num_stages=2)
    cluster = Disaggregated(
        workload,
        prefill,
        decode,
        recorder,
        transfer,
        prefill_router=prefill_router,
        decode_router=decode_router,
        round_trip_ns=round_trip_ns,
    )
    replicas = [*prefill, *decode]
    done = _run(workload, cluster, recorder, replicas, stops_on_overload)
    return replace(done, rows=replace(done.rows, users=cluster.user_tokens()))


def _recorder(
    workload: Workload, detail: str, sink: ShareSink | None, num_stages: int = 1
) -> Recorder:
    return Recorder(workload.num_requests, num_stages, _keeps_shares(detail), sink)


def _keeps_shares(detail: str) -> bool:
    if detail not in DETAILS:
        raise UsageError(f"detail {detail!r}", allowed=", ".join(DETAILS))
    return detail != "request"


def _run(
    workload: Workload,
    cluster: Colocated | Disaggregated,
    recorder: Recorder,
    replicas: Sequence[Replica],
    stops_on_overload: bool,
) -> Simulated:
    clients = WorkloadClients(workload)
    watch = OverloadWatch(workload, clients, cluster, stops=stops_on_overload)
    end_ns = run_events(clients, cluster, watch)
    if watch.found is None or not watch.found.is_stopped:
        _refuse_stuck(clients.num_sent - cluster.num_finished, cluster.endpoints)
    loaded: Counter[str] = Counter()
    for replica in replicas:
        if replica.tiers is not None:
            loaded.update(replica.tiers.loaded_tokens)
    return Simulated(
        recorder.finish(),
        end_ns,
        clients.num_sent,
        cluster.num_finished,
        cluster.refusals,
        watch.found,
        loaded,
    )


def _refuse_stuck(num_left: int, endpoints: Sequence[Endpoint]) -> None:
    if num_left == 0:
        return
    free = ", ".join(
        f"{endpoint.scheduler.num_free_blocks} of {endpoint.scheduler.num_usable_blocks}"
        for endpoint in endpoints
    )
    raise InputError(
        f"{num_left} requests wait for ever: no scheduler lets any of them run",
        where=f"free KV blocks: {free}",
        allowed="requests that fit the KV cache alone",
        next_step="give the engine more KV blocks, or leave out the longest requests",
    )
