"""Why a job hangs: who did not come to which collective, from the flight recorders of its ranks."""

from __future__ import annotations

from collections.abc import Sequence

from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.report import Cell, ShownTable, TableColumn, Unit
from tokenpath.core.units import format_bytes
from tokenpath.explain.analyses.contract import Context, Result
from tokenpath.explain.analyses.hang_groups import Entry, Stop, find_stops

MAX_NAMED = 8
"""Ranks that a sentence names."""
_COLUMNS = (
    TableColumn("group", "group", Unit.TEXT),
    TableColumn("sequence", "number", Unit.COUNT),
    TableColumn("op", "collective", Unit.TEXT),
    TableColumn("waiting", "ranks in it", Unit.TEXT),
    TableColumn("missing", "ranks not there", Unit.TEXT),
    TableColumn("without_dump", "no dump", Unit.TEXT),
)


def analyse(context: Context) -> Result:
    """The collectives that did not get through and their causes; nothing without a recorder's dump."""
    capture = context.capture
    if capture["collective"]["state"].null_count == capture.num_rows("collective"):
        return Result()
    stops = find_stops(capture)
    if not stops:
        return Result()
    roots = _roots(stops)
    findings = [_finding(context, stop, len(stops) - len(roots)) for stop in roots]
    return Result(findings, [_table(stops)])


def _roots(stops: Sequence[Stop]) -> list[Stop]:
    """The stops that no other one explains.

    A rank that is missing in one group because it waits in another one is held up there: that group's stop
    comes first. Of stops for want of the same ranks the one with fewest missing says most. Stops that hold up
    each other in a circle are all kept.
    """
    waits_in: dict[int, list[Stop]] = {}
    for stop in stops:
        for entry in stop.waiting:
            waits_in.setdefault(entry.rank, []).append(stop)
    roots: dict[object, Stop] = {}
    for number, stop in enumerate(stops):
        blockers = frozenset(
            rank
            for rank in stop.missing
            if not any(other is not stop for other in waits_in.get(rank, ()))
        )
        if stop.missing and not blockers:
            continue
        key: object = blockers if blockers and not stop.disagreeing else number
        if key not in roots or len(stop.missing) < len(roots[key].missing):
            roots[key] = stop
    return list(roots.values()) or list(stops)


def _finding(context: Context, stop: Stop, num_explained: int) -> Finding:
    what = f"{stop.op} {stop.sequence:,} of group {stop.group or 'unnamed'}"
    disagreeing = stop.disagreeing
    if disagreeing:
        code = "collective-mismatch"
        sentence = (
            f"{_ranks([entry.rank for entry in disagreeing])} came to {what} with another call than the "
            f"others: {_told(disagreeing[0])} against {_told(_usual(stop))}"
        )
        culprits = [entry.rank for entry in disagreeing]
        falsifier = "all ranks ask for the same operation and size under this number"
        fix = (
            "find the branch that depends on the rank or its data: a skipped parameter, an uneven last "
            "batch, another order of collectives"
        )
        confidence = 0.9
    elif stop.missing:
        code = "missing-rank"
        last = [f"{stop.last_of[rank]:,}" for rank in stop.missing if rank in stop.last_of]
        sentence = (
            f"{_ranks(stop.missing)} never came to {what}"
            + (f" (last there: {', '.join(dict.fromkeys(last[:MAX_NAMED]))})" if last else "")
            + f", in which {_ranks([entry.rank for entry in stop.waiting])} wait"
        )
        culprits = list(stop.missing)
        falsifier = "the rank's dump, written later, holds the collective"
        fix = (
            "look at what this rank's host did: its log and stack (py-spy dump), an exception, data loading, "
            "a checkpoint; the ranks that time out are the victims"
        )
        confidence = 0.85
    else:
        code = "stuck-collective"
        behind = [entry.rank for entry in stop.waiting if entry.state == "scheduled"]
        ahead = [entry.rank for entry in stop.waiting if entry.state == "started"]
        culprits = behind if ahead and behind else []
        sentence = f"all ranks seen came to {what} and it did not get through"
        if culprits:
            sentence += (
                f": {_ranks(ahead)} began it on the device, {_ranks(behind)} did not: their devices are busy "
                "with something before it"
            )
        elif stop.without_dump:
            sentence += f"; {_ranks(stop.without_dump)} of the group wrote no dump"
            culprits = list(stop.without_dump)
        falsifier = "the collective gets through when it is tried alone between the same ranks"
        fix = (
            "a kernel before it that never ends on these ranks, a dead process, or the link between them: "
            "NCCL_DEBUG=INFO, Xid errors in the kernel log, nccl-tests on these ranks"
        )
        confidence = 0.6 if culprits else 0.4
    if num_explained:
        sentence += (
            f"; {num_explained} more group{'s' if num_explained > 1 else ''} wait for its ranks"
        )
    place = {"group": stop.group} if stop.group else {}
    if len(culprits) == 1 and culprits[0] >= 0:
        place["rank"] = str(culprits[0])
    rows = [entry.row for entry in (*disagreeing, *stop.waiting)]
    return Finding(
        code=code,
        sentence=sentence,
        kind=Kind.COST,
        value=float(len(stop.waiting)),
        unit="ranks that wait",
        duration_ns=None,
        share=None,
        gain_ns=None,
        gain_method=None,
        status=context.status,
        evidence=(Evidence("collective", tuple(rows[:5]), len(rows)),),
        falsifier=falsifier,
        fix=fix,
        details={
            "sequence": stop.sequence,
            "op": str(stop.op),
            "ranks": culprits,
            "waiting": [entry.rank for entry in stop.waiting],
            "missing": list(stop.missing),
            "without_dump": list(stop.without_dump),
        },
        place=place,
        confidence=confidence,
        effort="code",
    )


def _usual(stop: Stop) -> Entry:
    """A part as most ranks have it."""
    odd = {entry.row for entry in stop.disagreeing}
    return next(entry for entry in stop.entries if entry.row not in odd)


def _told(entry: Entry) -> str:
    size = "" if entry.payload_bytes is None else f" of {format_bytes(entry.payload_bytes)}"
    return f"{entry.op}{size}" + (f" {entry.dtype}" if entry.dtype else "")


def _ranks(ranks: Sequence[int]) -> str:
    known = [str(rank) for rank in sorted(ranks) if rank >= 0]
    unknown = len(ranks) - len(known)
    shown = ", ".join(known[:MAX_NAMED])
    if len(known) > MAX_NAMED:
        shown += f" and {len(known) - MAX_NAMED} more"
    parts = [f"rank{'s' if len(known) > 1 else ''} {shown}"] if known else []
    parts += [f"{unknown} dump{'s' if unknown > 1 else ''} of unknown rank"] if unknown else []
    return " and ".join(parts)


def _table(stops: Sequence[Stop]) -> ShownTable:
    rows: list[Sequence[Cell]] = [
        (
            stop.group or None,
            stop.sequence,
            str(stop.op),
            _ranks([entry.rank for entry in stop.waiting]) or None,
            _ranks(stop.missing) or None,
            _ranks(stop.without_dump) or None,
        )
        for stop in stops
    ]
    return ShownTable(
        "stops",
        "First collective of each group that did not get through",
        _COLUMNS,
        rows,
        len(rows),
    )
