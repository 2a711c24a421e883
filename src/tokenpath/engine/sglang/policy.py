"""Order of the queue."""

from __future__ import annotations

from tokenpath.engine.content import token_key
from tokenpath.engine.sglang.cache import Cache
from tokenpath.engine.sglang.radix import Node, RadixTree
from tokenpath.engine.sglang.sequence import Sequence
from tokenpath.engine.sglang.settings import SglangSettings

QUEUE_MATCHED_AT_MOST = 128
"""WAITING_QUEUE_PREFIX_MATCH_MAX: with a longer queue `lpm` leaves the order as it is."""
REFRESH_INTERVAL = 32
"""WAITING_PREFIX_REFRESH_INTERVAL, in passes."""


class QueuePolicy:
    """Sorts the queue before each prefill pass."""

    def __init__(self, settings: SglangSettings, cache: Cache) -> None:
        self._settings = settings
        self._cache = cache
        policy = settings.schedule_policy
        cache_aware = policy in ("lpm", "dfs-weight")
        self.name = "fcfs" if cache_aware and settings.disable_radix_cache else policy
        self._refresh_calls = 0

    def priority(self, sequence: Sequence) -> int:
        """Priority such that lower is served first."""
        sign = 1 if self._settings.schedule_low_priority_values_first else -1
        return sign * sequence.request.priority

    def sort(self, queue: list[Sequence]) -> None:
        """Sort in place; ties keep their order."""
        matched = self.name == "dfs-weight" or (
            self.name == "lpm" and len(queue) <= QUEUE_MATCHED_AT_MOST
        )
        by_priority = self._settings.enable_priority_scheduling
        if self.name == "fcfs":
            if by_priority:
                queue.sort(key=lambda s: (self.priority(s), s.queued_as))
        elif self.name == "lof":
            queue.sort(key=lambda s: (self.priority(s) if by_priority else 0, -s.max_new_tokens))
        elif self.name == "lpm" and matched:
            late = self._match(queue)
            queue.sort(key=lambda s: (s in late, 0 if s in late else -s.num_matched_prefix_tokens))
        elif self.name == "dfs-weight":
            self._match(queue)
            queue[:] = dfs_weight_order(self._cache.tree, queue)
        if not matched:
            self._refresh(queue)

    def _match(self, queue: list[Sequence]) -> set[Sequence]:
        """Match all; those that had better wait for an earlier one that computes their prefix.

        Only requests with (nearly) no cached prefix are compared, and only on whether they share the
        first `deprioritize_threshold` tokens: what a radix tree of the queue would answer.
        """
        check = self._settings.in_batch_prefix_caching_check_threshold
        shared = self._settings.in_batch_prefix_caching_deprioritize_threshold
        late: set[Sequence] = set()
        seen: set[int] = set()
        for sequence in queue:
            self._cache.match(sequence)
            if sequence.prefix_len > check:
                continue
            if shared <= 0:
                late.add(sequence)
            elif sequence.num_tokens >= shared:
                key = token_key(sequence.request, shared - 1)
                if key in seen:
                    late.add(sequence)
                else:
                    seen.add(key)
        return late

    def _refresh(self, queue: list[Sequence]) -> None:
        """Every so often the prefixes of the queue count as used, that of its head last."""
        if (
            not queue
            or not self._settings.enable_waiting_prefix_refresh
            or self._settings.radix_eviction_policy != "lru"
            or self._cache.disabled
        ):
            return
        due = self._refresh_calls % REFRESH_INTERVAL == 0
        self._refresh_calls += 1
        if due:
            for sequence in reversed(queue[:QUEUE_MATCHED_AT_MOST]):
                self._cache.touch(sequence)


def dfs_weight_order(tree: RadixTree, queue: list[Sequence]) -> list[Sequence]:
    """The queue in depth-first order of where prefixes end, the heaviest branch first, parents last.

    The weight of a node is the number of requests whose prefix ends in or below it. Only branches with
    requests are walked.
    """
    here: dict[Node, list[Sequence]] = {}
    for sequence in queue:
        here.setdefault(sequence.last_node, []).append(sequence)
    weight: dict[Node, int] = {}
    children: dict[Node, list[Node]] = {}
    for node, sequences in here.items():
        step: Node | None = node
        child: Node | None = None
        while step is not None:
            if child is not None and weight[child] == len(sequences):
                children.setdefault(step, []).append(child)  # reached for the first time
            weight[step] = weight.get(step, 0) + len(sequences)
            child, step = step, step.parent
    order: list[Sequence] = []
    stack = [(tree.root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.extend(here.get(node, ()))
            continue
        stack.append((node, True))
        branches = sorted(children.get(node, ()), key=lambda c: (-weight[c], c.place))
        stack.extend((branch, False) for branch in reversed(branches))
    return order
