"""What sources say of shared prefixes, of evicted blocks, and of slower tiers of the KV cache."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.explain.analyses.scheduler_service import Service

_PREFIX = re.compile(
    r"(?:^|[._-])prefix[._-]?(?:len|length|tokens)$|shared[._-]prefix(?:[._-](?:len|tokens))?$|prefix_repetition_prefix_len$|system_prompt_len$",
    re.IGNORECASE,
)
_NUM_PREFIXES = re.compile(r"num[._-](?:prefixes|prefix[._-]prompts|groups)$", re.IGNORECASE)
_TIER = re.compile(
    r"kv_connector|kv_transfer_config|kv_offload|cpu_offload_gb|lmcache|hicache|mooncake|nixl",
    re.IGNORECASE,
)
SAME_LENGTH = 0.8
"""So many of the hits have one length where requests share one prefix and nothing else."""
MIN_LOG_ODDS = 3.0
"""Misses that thin out are 20 times as likely as misses at a steady rate, which new prompts would be."""
MIN_HITS = 10
"""With fewer hits before the cache is full nothing is said of how many prefixes there are."""
_OFF = frozenset({"", "none", "null", "false", "0", "0.0", "{}"})
_OUTSIDE = re.compile(
    r'"(?:source|cache_source|cache_tier|medium)": ?"(?:host|cpu|disk|storage|p2p|external\w*)"',
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Prefix:
    """A prefix that the load's settings say requests share."""

    tokens: int
    """Its length."""
    num_prefixes: int
    """How many there are."""
    stated_by: str
    """Name of the setting."""


def shared_prefix(capture: Capture) -> Prefix | None:
    """From settings of load generators; None where none states one."""
    rows = capture["setting"].to_pylist()
    numbers = {
        row["name"]: int(row["value"])
        for row in rows
        if row["value"].isdigit() and int(row["value"])
    }
    found = [name for name in numbers if _PREFIX.search(name.replace("-", "_"))]
    if not found:
        return None
    longest = max(found, key=lambda name: numbers[name])
    several = [numbers[name] for name in numbers if _NUM_PREFIXES.search(name.replace("-", "_"))]
    return Prefix(numbers[longest], max(several, default=1), longest)


def avoidable_misses(shared: Int64s, cached: Int64s, num_prefixes: int) -> Int64s:
    """Tokens that each request, in order of arrival, would have found had everything shared been kept.

    The first request of each prefix computes it for the others. Which one a request has is not stated: of n equally
    likely prefixes the first i requests meet n (1 - (1 - 1/n)^i), and so many misses are nobody's fault.
    """
    missed = np.maximum(shared - cached, 0)
    missed[2 * cached >= shared] = 0
    met = num_prefixes * (1 - (1 - 1 / num_prefixes) ** np.arange(1, len(missed) + 1))
    first = 0
    for at in np.flatnonzero(missed).tolist():
        if first < round(met[at]):
            missed[at] = 0
            first += 1
    result: Int64s = missed
    return result


def inferred_prefix(service: Service) -> Prefix | None:
    """Shared prefixes from what requests found: their length, and how many there are; None where too little shows.

    Hits of most requests have the same length. Until as many tokens were computed as the KV cache holds nothing can
    have been evicted: of n equally likely prefixes m requests meet n (1 - (1 - 1/n)^m) by then, each a miss, and n
    solves that. Requests that share nothing look like ever new prefixes, but their misses do not thin out.
    """
    if service.kv_tokens is None:
        return None
    order = np.argsort(service.started, kind="stable")
    cached, prompt = service.cached[order], service.prompt[order]
    lengths, counts = np.unique(cached[cached > 0], return_counts=True)
    if len(lengths) == 0 or counts.max() < max(MIN_HITS, SAME_LENGTH * counts.sum()):
        return None
    length = int(lengths[counts.argmax()])
    can = prompt > length
    computed = np.cumsum((prompt - cached + service.output[order])[can])
    window = cached[can][computed <= service.kv_tokens] >= length
    num_met = int((~window).sum())
    if int(window.sum()) < MIN_HITS or num_met < 2:
        return None
    low, high = float(num_met), 1e6
    for _ in range(60):
        middle = (low + high) / 2
        if _met(middle, len(window)) < num_met:
            low = middle
        else:
            high = middle
    # The chance of a miss under ever fewer new prefixes, against one that stays as it is.
    thinning = np.power(1 - 1 / low, np.arange(len(window), dtype=np.float64)).astype(np.float64)
    steady = np.full(len(window), num_met / len(window), np.float64)
    odds = _log_chance(window, thinning) - _log_chance(window, steady)
    if odds < MIN_LOG_ODDS:
        return None
    return Prefix(length, round(low), "found by most requests with a hit")


def _log_chance(is_hit: NDArray[np.bool_], miss: NDArray[np.float64]) -> float:
    miss = np.clip(miss, 1e-6, 1 - 1e-6)
    return float(np.log(np.where(is_hit, 1 - miss, miss)).sum())


def _met(num_prefixes: float, num_requests: int) -> float:
    return num_prefixes * (1 - (1 - 1 / num_prefixes) ** num_requests)


def evicted_tokens(capture: Capture) -> int:
    """Tokens of blocks that were stored on the device, removed there and stored again."""
    if not capture.num_rows("kv_event"):
        return 0
    actions, names = capture.codes("kv_event", "action")
    media, media_names = capture.codes("kv_event", "medium")
    on_device = np.array([name == "gpu" for name in media_names] or [False])
    is_here = (media < 0) | on_device[np.maximum(media, 0)]
    wanted = is_here & np.isin(
        actions, [at for at, name in enumerate(names) if name in ("stored", "removed")]
    )
    hashes = capture["kv_event"]["block_hash"].combine_chunks().dictionary_encode()
    block = hashes.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    rows = np.flatnonzero(wanted & (block >= 0))
    engine = capture.ids("kv_event", "engine_id")[rows].astype(np.int64)
    order = np.lexsort((rows, capture.int64("kv_event", "at_ns")[rows], block[rows], engine))
    rows, engine = rows[order], engine[order]
    is_stored = (
        actions[rows] == names.index("stored")
        if "stored" in names
        else np.zeros(len(rows), np.bool_)
    )
    if len(rows) < 2:
        return 0
    same = (block[rows][1:] == block[rows][:-1]) & (engine[1:] == engine[:-1])
    again = same & is_stored[1:] & ~is_stored[:-1]
    tokens = capture.int64("kv_event", "num_tokens", 0)[rows][1:]
    return int(tokens[again].sum())


def uses_tier(capture: Capture) -> bool:
    """Whether some source says that KV comes from elsewhere than the device."""
    for row in capture["setting"].to_pylist():
        if _TIER.search(row["name"]) and row["value"].lower() not in _OFF:
            return True
    _, media = capture.codes("kv_event", "medium")
    _, labels = capture.codes("counter_sample", "labels")
    _, names = capture.codes("counter_sample", "name")
    stated = any(_OUTSIDE.search(label) for label in labels) or "requests.kv_fetch" in names
    return stated or any(name in ("host", "disk") for name in media)
