"""A model of a workload: its arrivals, lengths, sharing and sessions, each with its error."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tokenpath import __version__
from tokenpath.core.errors import UsageError
from tokenpath.simulate.workload.arrival_fit import ArrivalFit, fit_arrivals
from tokenpath.simulate.workload.arrivals import NS_PER_S, ArrivalProcess, AtOnce
from tokenpath.simulate.workload.chains import fit_reuse
from tokenpath.simulate.workload.describe import Description, describe
from tokenpath.simulate.workload.generate import SharedPrefix
from tokenpath.simulate.workload.length_fit import LengthFit, fit_pairs
from tokenpath.simulate.workload.lengths import PairLaw, Table
from tokenpath.simulate.workload.model import WorkloadModel
from tokenpath.simulate.workload.reuse import matches
from tokenpath.simulate.workload.sessions import Sessions
from tokenpath.simulate.workload.transform import first, select
from tokenpath.simulate.workload.workload import Int64s, Workload

ACCUMULATING_SHARE = 0.9
"""From this share of turns that repeat all before them on, sessions are fitted as conversations."""
MAX_CHECKED = 100_000
MAX_CHECKED_IDS = 20_000_000
"""Requests, and content ids, of the workload that is drawn to compare with the measured one."""


def fit(workload: Workload) -> WorkloadModel:
    """A model that draws workloads like this one. UsageError for an empty workload.

    Errors: of the arrival process and of the laws of lengths on held-out stretches (candidates with their
    scores), and of a workload drawn from the whole model against the measured one, side by side.
    """
    if not workload.num_requests:
        raise UsageError("the workload holds no request", where="workload")
    starts = workload.after < 0
    arrival: ArrivalFit | None = None
    process: ArrivalProcess = AtOnce()
    if workload.concurrency is None:
        arrival = fit_arrivals(workload.arrival_ns[starts])
        process = arrival.process
    notes: list[str] = []
    laws = fit_pairs(workload.prompt_tokens, workload.output_tokens)
    conversations = _fit_sessions(workload, notes)
    pairs: PairLaw = laws.law
    if conversations is None:
        pairs = fit_reuse(workload) or laws.law
    if arrival is not None and arrival.rounded_to_s is not None:
        notes.append(
            f"times in the source are rounded to {arrival.rounded_to_s:g} s; drawn ones are not"
        )
    model = WorkloadModel(
        name=workload.name,
        num_requests=workload.num_requests,
        arrivals=process,
        lengths=pairs,
        sessions=conversations,
        concurrency=workload.concurrency,
        provenance={
            "state": workload.state,
            "span_s": float(np.ptp(workload.arrival_ns)) / NS_PER_S,
            "tokenpath_version": __version__,
        },
        notes=tuple(notes),
    )
    errors = {
        "arrivals": _arrival_errors(arrival),
        "prompt_tokens": _length_errors(laws.prompt),
        "output_tokens": _length_errors(laws.output),
        "pairs": {"copula": laws.copula_error, "sample": laws.sample_error},
        "drawn": compare(workload, model),
    }
    return dataclasses.replace(model, errors=errors)


def compare(workload: Workload, model: WorkloadModel, seed: int = 1) -> dict[str, Any]:
    """Key figures of a workload and of one drawn from a model, by name: `{"measured": ..., "drawn": ...}`."""
    granules = 1.0
    if len(workload.hashes):
        granules += float(workload.prompt_tokens.mean()) / workload.hash_granule_tokens
    measured = first(workload, max(min(MAX_CHECKED, int(MAX_CHECKED_IDS / granules)), 1))
    drawn = model.generate(measured.num_requests, seed)
    a, b = _figures(describe(measured)), _figures(describe(drawn))
    return {name: {"measured": a[name], "drawn": b.get(name)} for name in a}


def _figures(found: Description) -> dict[str, float]:
    figures: dict[str, float] = {}
    if found.arrivals is not None:
        figures["rate_per_s"] = found.arrivals.rate_per_s
        figures["gap_cv"] = found.arrivals.gap_cv
        for entry in found.arrivals.dispersions:
            figures[f"dispersion_{entry.window_s:g}_s"] = entry.index
    for name, length in (("prompt", found.prompt), ("output", found.output)):
        if length is not None:
            figures[f"mean_{name}_tokens"] = length.mean_tokens
            figures[f"median_{name}_tokens"] = length.quantile_tokens[3]
            figures[f"p99_{name}_tokens"] = length.quantile_tokens[6]
    if found.length_correlation is not None:
        figures["length_correlation"] = found.length_correlation
    if found.reuse is not None:
        figures["ideal_hit_ratio"] = found.reuse.ideal_hit_ratio
        for kept in found.reuse.kept_for:
            figures[f"hit_ratio_kept_{kept.keep_s:g}_s"] = kept.hit_ratio
    if found.sessions is not None:
        figures["mean_turns"] = found.sessions.mean_turns
    return figures


def _arrival_errors(found: ArrivalFit | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "kind": found.kind,
        "candidates": [dataclasses.asdict(entry) for entry in found.candidates],
    }


def _length_errors(found: LengthFit) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "candidates": [dataclasses.asdict(entry) for entry in found.candidates],
    }


def _fit_sessions(workload: Workload, notes: list[str]) -> Sessions | None:
    """Conversations in which a prompt holds all before it; None, with a note, where turns do not."""
    follower = np.flatnonzero(workload.after >= 0)
    if not len(follower):
        return None
    before = workload.after[follower]
    context = workload.prompt_tokens[before] + workload.output_tokens[before]
    repeats = workload.prompt_tokens[follower] > context
    if repeats.mean() < ACCUMULATING_SHARE:
        notes.append("turns do not repeat those before them: the model draws independent requests")
        return None
    starts = np.flatnonzero(workload.after < 0)
    prefix = _fit_prefix(workload, starts)
    question = workload.prompt_tokens.copy()
    question[follower] -= np.where(repeats, context, 0)
    if prefix is not None:
        system = _mean_prefix_tokens(prefix)
        question[starts] = np.maximum(question[starts] - system, 1)
    turn = fit_pairs(question, workload.output_tokens).law
    turns = np.bincount(_root(workload))
    return Sessions(
        turns=Table.of_lengths(turns[turns > 0]),
        turn=turn,
        mean_think_s=float(workload.think_ns[follower].mean()) / NS_PER_S,
        prefix=prefix,
        granule_tokens=workload.hash_granule_tokens,
    )


def _root(workload: Workload) -> Int64s:
    """The first request of each request's chain."""
    root = np.where(workload.after < 0, np.arange(workload.num_requests), workload.after)
    while True:
        # Each pass doubles how far back a request sees.
        further = root[root]
        if np.array_equal(further, root):
            return np.asarray(root)
        root = further


def _fit_prefix(workload: Workload, starts: Int64s) -> SharedPrefix | None:
    """System prompts: first turns that begin alike, in groups of about equal size."""
    if not len(workload.hashes) or len(starts) < 2:
        return None
    opening = select(workload, starts)
    found = matches(opening)
    shared = found.granules[found.granules > 0]
    if len(shared) < len(starts) / 2:
        return None
    granules = int(np.median(shared))
    return SharedPrefix(
        num_groups=int((found.granules == 0).sum()) or 1,
        tokens=max(granules * workload.hash_granule_tokens, 1),
        granule_tokens=workload.hash_granule_tokens,
    )


def _mean_prefix_tokens(prefix: SharedPrefix) -> int:
    return prefix.tokens if isinstance(prefix.tokens, int) else 0
