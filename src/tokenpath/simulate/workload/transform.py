"""Workloads from workloads: a stretch of one, the first requests, faster or slower arrivals."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tokenpath.core.errors import UsageError
from tokenpath.simulate.workload.arrivals import NS_PER_S, check_positive
from tokenpath.simulate.workload.content import Content
from tokenpath.simulate.workload.rows import ReadWorkload
from tokenpath.simulate.workload.workload import NO_REQUEST, Int64s, Workload


def cut(workload: Workload, begin_s: float = 0.0, duration_s: float | None = None) -> Workload:
    """Requests sent within a stretch, which becomes the whole: its begin is time 0.

    A later turn belongs to where its session's first turn in the stretch lies.
    """
    if begin_s < 0 or (
        duration_s is not None and not (math.isfinite(duration_s) and duration_s > 0)
    ):
        raise UsageError(
            "no stretch of time", where="workload", allowed="begin from 0 on, duration above 0"
        )
    begin_ns = round(begin_s * NS_PER_S)
    inside = workload.arrival_ns >= begin_ns
    if duration_s is not None:
        inside &= workload.arrival_ns < begin_ns + round(duration_s * NS_PER_S)
    kept = select(workload, np.flatnonzero(inside))
    return dataclasses.replace(kept, arrival_ns=kept.arrival_ns - begin_ns)


def first(workload: Workload, num_requests: int) -> Workload:
    """The first so many requests."""
    if num_requests < 0:
        raise UsageError(f"{num_requests} requests", where="workload", allowed="from 0 on")
    return select(workload, np.arange(min(num_requests, workload.num_requests)))


def scale_rate(workload: Workload, factor: float) -> Workload:
    """The same requests in the same order, so many times as fast; think times stay."""
    check_positive("factor", factor, "times the rate")
    arrival_ns = np.rint(workload.arrival_ns / factor).astype(np.int64)
    name = f"{workload.name}, {factor:g} times as fast"
    return dataclasses.replace(workload, name=name, arrival_ns=arrival_ns)


def select(workload: Workload, index: Int64s) -> Workload:
    """Requests by index, ascending. Those whose predecessor is left out have none and keep their time."""
    number = np.full(workload.num_requests, NO_REQUEST, np.int64)
    number[index] = np.arange(len(index))
    after = workload.after[index]
    after = np.where(after >= 0, number[np.maximum(after, 0)], NO_REQUEST) if len(index) else after
    content = select_content(workload, index)
    ids = workload.request_ids
    return dataclasses.replace(
        workload,
        arrival_ns=workload.arrival_ns[index],
        prompt_tokens=workload.prompt_tokens[index],
        output_tokens=workload.output_tokens[index],
        priority=workload.priority[index],
        after=after,
        think_ns=np.where(after >= 0, workload.think_ns[index], 0),
        session=workload.session[index],
        hash_start=content.hash_start,
        hashes=content.hashes,
        request_ids=None if ids is None else tuple(ids[place] for place in index.tolist()),
    )


def select_content(workload: Workload, index: Int64s) -> Content:
    """Content ids of some requests, in the order of `index`."""
    counts = np.diff(workload.hash_start)[index]
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    shift = np.repeat(workload.hash_start[:-1][index] - (ends - counts), counts)
    return Content(
        np.concatenate((np.zeros(1, np.int64), ends)),
        workload.hashes[np.arange(total) + shift],
        workload.hash_granule_tokens,
    )


def cut_read(read: ReadWorkload, begin_s: float | None, duration_s: float | None) -> ReadWorkload:
    """`cut` of what a reader returned; as it is where no stretch is named."""
    if begin_s is None and duration_s is None:
        return read
    return dataclasses.replace(read, workload=cut(read.workload, begin_s or 0.0, duration_s))
