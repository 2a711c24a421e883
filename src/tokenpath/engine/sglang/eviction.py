"""Which leaf of the radix tree is lost first: the lowest of these, as SGLang offers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tokenpath.engine.sglang.settings import SglangSettings

if TYPE_CHECKING:
    from tokenpath.engine.sglang.radix import Node

Rank = tuple[float, float]
"""Compared in order; ties do not occur among leaves, as access times are all different."""

NEVER_FALLS = frozenset({"lru", "lfu", "fifo", "filo", "priority", "slru"})
"""Policies whose rank of a node only rises while it lives, so that a heap may hold old ranks."""


def rank_of(settings: SglangSettings) -> Callable[[Node], Rank]:
    """The rank function of `radix_eviction_policy`."""

    def slru(node: Node) -> Rank:
        return (float(node.hit_count >= settings.slru_protected_threshold), node.last_access)

    def tlru(node: Node) -> Rank:
        # Tail-Optimized LRU (Zhang et al., arXiv:2510.15152): what does not help the next prompt
        # of the conversation to stay under its budget goes first.
        history = node.history_pages * settings.page_size
        keep = history + settings.tlru_next_prompt_estimate - settings.tlru_threshold
        before = (node.depth_pages - len(node.key)) * settings.page_size
        return (-1.0 if before >= max(keep, 0) else 0.0, node.last_access)

    ranks: dict[str, Callable[[Node], Rank]] = {
        "lru": lambda node: (node.last_access, 0.0),
        "lfu": lambda node: (node.hit_count, node.last_access),
        "fifo": lambda node: (node.created, node.last_access),
        "mru": lambda node: (-node.last_access, 0.0),
        "filo": lambda node: (-node.created, node.last_access),
        "priority": lambda node: (node.priority, node.last_access),
        "slru": slru,
        "tlru": tlru,
    }
    return ranks[settings.radix_eviction_policy]
