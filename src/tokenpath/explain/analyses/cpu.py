"""Captures without device work: what the program itself could have done without."""

from __future__ import annotations

from tokenpath.core.finding import Kind
from tokenpath.explain.analyses.contract import Context, Result
from tokenpath.explain.analyses.cpu_functions import functions, sampling
from tokenpath.explain.analyses.cpu_named import named
from tokenpath.explain.analyses.cpu_operators import operators
from tokenpath.explain.analyses.cpu_pauses import pauses
from tokenpath.explain.analyses.cpu_ranks import ranks
from tokenpath.explain.analyses.cpu_view import MIN_SHARE, Host, sides
from tokenpath.explain.analyses.cpu_warm_up import warm_up


def analyse(context: Context) -> Result:
    """Findings on host time; nothing where a device worked, or no process has operators."""
    if context.analysis.devices:
        return Result()
    found = sides(context.capture)
    host = Host(found, context.status, {})
    if not host.wall_ns:
        return Result()
    # Each takes its time out of what the next ones look at: the closest cause first.
    findings = [
        *warm_up(host),
        *named(host),
        *sampling(host),
        *pauses(host),
        *functions(host),
        *operators(host),
    ]
    findings += list(ranks(host, findings))
    return Result(
        [
            f
            for f in findings
            if f.kind is not Kind.COST or (f.gain_ns or 0) >= MIN_SHARE * host.wall_ns
        ]
    )
