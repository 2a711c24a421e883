"""A workload through a cluster: sets up the recorder, runs the loop, and says what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenpath.core.errors import InputError, UsageError
from tokenpath.simulate.cluster import Colocated
from tokenpath.simulate.loop import run_events
from tokenpath.simulate.loop_clients import WorkloadClients
from tokenpath.simulate.recorder import DETAILS, Recorder, RunRows, ShareSink
from tokenpath.simulate.replica import Replica
from tokenpath.simulate.router import Router
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


def simulate_workload(
    workload: Workload,
    replicas: Sequence[Replica],
    router: Router | None = None,
    *,
    detail: str = "step",
    sink: ShareSink | None = None,
    round_trip_ns: int = 0,
) -> Simulated:
    """Run a workload through replicas behind a router (round robin if None is named), to the end.

    Replicas are used up: their schedulers hold the state of this run. InputError when requests are left
    that no event will ever reach.
    """
    if detail not in DETAILS:
        raise UsageError(f"detail {detail!r}", allowed=", ".join(DETAILS))
    recorder = Recorder(workload.num_requests, keeps_shares=detail != "request", sink=sink)
    clients = WorkloadClients(workload)
    cluster = Colocated(workload, replicas, recorder, router, round_trip_ns=round_trip_ns)
    end_ns = run_events(clients, cluster)
    _refuse_stuck(clients.num_sent - cluster.num_finished, cluster)
    return Simulated(
        recorder.finish(), end_ns, clients.num_sent, cluster.num_finished, cluster.refusals
    )


def _refuse_stuck(num_left: int, cluster: Colocated) -> None:
    if num_left == 0:
        return
    free = ", ".join(
        f"{endpoint.scheduler.num_free_blocks} of {endpoint.scheduler.num_usable_blocks}"
        for endpoint in cluster.endpoints
    )
    raise InputError(
        f"{num_left} requests wait for ever: no scheduler lets any of them run",
        where=f"free KV blocks: {free}",
        allowed="requests that fit the KV cache alone",
        next_step="give the engine more KV blocks, or leave out the longest requests",
    )
