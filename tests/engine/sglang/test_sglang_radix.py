"""The radix tree against a set of prefixes, and its order of eviction in tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sglang_cases import settings

from tokenpath.engine.sglang.eviction import NEVER_FALLS, rank_of
from tokenpath.engine.sglang.radix import RadixTree
from tokenpath.engine.sglang.settings import EVICTION_POLICIES


def tree(policy: str = "lru", **changed: int) -> RadixTree:
    chosen = settings(radix_eviction_policy=policy, **changed)
    return RadixTree(rank_of(chosen), policy in NEVER_FALLS)


def keys(text: str) -> np.ndarray:
    return np.array([ord(c) for c in text], np.int64)


def add(t: RadixTree, text: str, *, owned_from: int = 0, counted_to: int = 0, priority: int = 0):
    return t.insert(keys(text), owned_from=owned_from, counted_to=counted_to, priority=priority)


def content(t: RadixTree) -> set[str]:
    """Every cached prefix, as text."""
    found = set()
    for node in t.nodes():
        text, step = "", node
        while step.parent is not None:
            text = "".join(chr(k) for k in step.key) + text
            step = step.parent
        found.update(text[: i + 1] for i in range(len(text)))
    return found


class AgainstASet(RuleBasedStateMachine):
    """Prefixes as strings in a set: slow and obvious."""

    texts = st.text("ab", max_size=9)

    def __init__(self) -> None:
        super().__init__()
        self.policy = EVICTION_POLICIES[0]
        self.tree = tree()
        self.cached: set[str] = set()
        self.locks: list[tuple[str, object]] = []

    @precondition(lambda self: not self.cached)
    @rule(policy=st.sampled_from(EVICTION_POLICIES))
    def choose(self, policy: str) -> None:
        self.tree = tree(policy)
        self.locks = []

    @rule(text=texts)
    def match(self, text: str) -> None:
        expected = max((i for i in range(len(text) + 1) if text[:i] in self.cached), default=0)
        assert self.tree.match(keys(text))[0] == expected

    @rule(text=texts, owned_from=st.integers(0, 9))
    def insert(self, text: str, owned_from: int) -> None:
        mine = [text[:i] for i in range(1, len(text) + 1)]
        duplicates = sum(p in self.cached and len(p) > owned_from for p in mine)
        assert add(self.tree, text, owned_from=owned_from).duplicate_pages == duplicates
        self.cached.update(mine)

    @rule(text=texts)
    def lock(self, text: str) -> None:
        matched, node = self.tree.match(keys(text))
        self.tree.lock(node)
        self.locks.append((text[:matched], node))

    @precondition(lambda self: self.locks)
    @rule()
    def unlock(self) -> None:
        self.tree.unlock(self.locks.pop()[1])

    @rule(pages=st.integers(0, 9))
    def evict(self, pages: int) -> None:
        before = self.tree.evictable_pages
        freed = self.tree.evict(pages)
        left = content(self.tree)
        assert left <= self.cached
        assert len(self.cached) - len(left) == freed
        assert freed >= min(pages, before)
        self.cached = left

    @invariant()
    def holds(self) -> None:
        assert content(self.tree) == self.cached
        held = {text[: i + 1] for text, _ in self.locks for i in range(len(text))}
        assert held <= self.cached
        assert self.tree.locked_pages == len(held)
        assert self.tree.evictable_pages == len(self.cached - held)


TestAgainstASet = AgainstASet.TestCase
TestAgainstASet.settings = hypothesis_settings(max_examples=60, stateful_step_count=30)


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        # three branches; "b" is used most recently, "c" has the best priority, "a" was hit twice
        ("lru", "acb"),
        ("mru", "bca"),
        ("fifo", "abc"),
        ("filo", "cba"),
        ("lfu", "cba"),  # hits 3, 2, 1
        ("slru", "cab"),  # below the threshold of two hits first, then by recency
        ("priority", "abc"),
    ],
)
def test_order_of_eviction(policy: str, order: str) -> None:
    t = tree(policy)
    add(t, "a1")
    add(t, "b1")
    add(t, "c1", priority=5)
    add(t, "a1")
    add(t, "a1")
    t.match(keys("c1"))
    add(t, "b1")
    lost = ""
    while t.evict(1):
        lost += ({"a", "b", "c"} - {text[0] for text in content(t)} - set(lost)).pop()
    assert lost == order


def test_tail_optimised_lru_first_drops_what_the_budget_does_not_need() -> None:
    # A conversation of 8 tokens may compute 3 again: the tail of 3 goes first, though it is younger.
    t = tree("tlru", tlru_threshold=3)
    add(t, "older")
    add(t, "hello")
    add(t, "hello123")
    t.match(keys("hello123"))
    assert t.evict(1) == 3
    assert "hello" in content(t)
    assert "older" in content(t)


def test_a_prefix_is_lost_after_what_follows_it() -> None:
    t = tree()
    add(t, "abc")
    add(t, "abX")
    assert t.evict(1) == 1
    assert content(t) == {"a", "ab", "abX"}
    assert t.evict(3) == 3
    assert content(t) == set()


def test_only_hits_past_what_a_request_inserted_before_are_counted() -> None:
    t = tree()
    add(t, "abcd")
    end = add(t, "abcdef", counted_to=4).node
    head = end.parent
    assert (head.hit_count, end.hit_count) == (1, 1)
    add(t, "abcdef")
    assert (head.hit_count, end.hit_count) == (2, 2)


def test_a_split_keeps_place_age_and_locks() -> None:
    t = tree()
    node = add(t, "abcd", priority=3).node
    t.lock(node)
    matched, head = t.match(keys("abX"))
    assert matched == 2
    assert (head.lock_refs, head.created, head.place, head.priority) == (
        1,
        node.created,
        node.place,
        3,
    )
    assert (len(node.key), node.parent) == (2, head)
    assert t.evict(10) == 0
    t.unlock(node)
    assert t.evict(10) == 4
