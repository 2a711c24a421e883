"""The radix tree of cached prefixes: match, insert, lock, evict. Lengths are pages.

What SGLang 0.5.23 keeps for a model with full attention and no host tier: `UnifiedRadixCache` and its tree
core. Only counts of pages matter to a scheduler, so nodes hold keys and no addresses.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tokenpath.engine.content import common_pages
from tokenpath.engine.scheduler import NO_HASHES, Int64s
from tokenpath.engine.sglang.eviction import Rank


class Node:
    """A segment of one or more cached prefixes."""

    __slots__ = (
        "children",
        "created",
        "depth_pages",
        "history_pages",
        "hit_count",
        "in_heap",
        "key",
        "last_access",
        "lock_refs",
        "number",
        "parent",
        "place",
        "priority",
    )

    def __init__(self, parent: Node | None, key: Int64s, now: float, priority: float) -> None:
        self.number = now
        """When it was made; no two nodes have the same."""
        self.parent = parent
        self.key = key
        self.children: dict[int, Node] = {}
        self.lock_refs = 0
        self.last_access = now
        self.created = now + 1.0
        self.hit_count = 0
        self.priority = priority
        self.place = self.created
        """Orders the children of a node; a node that splits off the head of another takes its place."""
        self.depth_pages: int = len(key) + (parent.depth_pages if parent is not None else 0)
        """Pages from the root to its end."""
        self.history_pages = 0
        """The deepest end that its branch ever had."""
        self.in_heap = False


@dataclass(frozen=True, slots=True)
class Inserted:
    """What an insert did."""

    node: Node
    """Where the inserted prefix ends."""
    duplicate_pages: int
    """Pages that the tree had already and that the caller therefore gives back."""


def _own(keys: Int64s) -> Int64s:
    """A copy, so that a short node does not keep a long request's keys alive; not of one number repeated."""
    return keys if keys.strides[0] == 0 else keys.copy()


class RadixTree:
    """Cached prefixes, with the order of their use."""

    def __init__(self, rank: Callable[[Node], Rank], rank_never_falls: bool) -> None:
        self._rank = rank
        self._rank_never_falls = rank_never_falls
        self._clock = 1.0
        self.root = Node(None, NO_HASHES, self._tick(2), float("-inf"))
        self.evictable_pages = 0
        """Pages of nodes that no request holds."""
        self.locked_pages = 0
        """Pages of nodes that a request holds."""
        self._leaves: set[Node] = set()
        self._heap: list[tuple[Rank, float, float, Node]] = []

    def _tick(self, times: int = 1) -> float:
        now = self._clock
        self._clock += times
        return now

    def match(self, keys: Int64s) -> tuple[int, Node]:
        """Pages of the longest cached prefix, and the node that ends with it.

        All nodes on the way count as used now. A node of which only the head matches is split.
        """
        if not len(keys):
            return 0, self.root
        node, matched = self.root, 0
        while matched < len(keys):
            child = node.children.get(int(keys[matched]))
            if child is None:
                break
            common = common_pages(child.key, keys[matched:])
            matched += common
            if common < len(child.key):
                node = self._split(node, child, common)
                break
            node = child
        now = self._tick()
        step: Node | None = node
        while step is not None:
            step.last_access = now
            now -= 0.00001  # a prefix is a little older than what follows it
            step = step.parent
        return matched, node

    def insert(
        self, keys: Int64s, *, owned_from: int, counted_to: int, priority: float
    ) -> Inserted:
        """Add a prefix. Pages from `owned_from` on are the caller's: those already cached are duplicates.

        Nodes that end at or before `counted_to` were counted as a hit of this request already.
        """
        self.root.last_access = self._tick()
        self.root.priority = max(self.root.priority, priority)
        node, done, duplicates = self.root, 0, 0
        while done < len(keys):
            child = node.children.get(int(keys[done]))
            if child is None:
                break
            child.last_access = self._tick()
            common = common_pages(child.key, keys[done:])
            if common < len(child.key):
                child = self._split(node, child, common)
            child.priority = max(child.priority, priority)
            duplicates += max(common - max(owned_from - done, 0), 0)
            done += common
            if done > counted_to:
                child.hit_count += 1
            node = child
        if done < len(keys):
            node = self._add_leaf(node, _own(keys[done:]), priority)
            if len(keys) > counted_to:
                node.hit_count += 1
        return Inserted(node, duplicates)

    def lock(self, node: Node) -> None:
        """A request holds the prefix that ends with `node`: nothing of it is evicted."""
        step = node
        while step.parent is not None:
            if step.lock_refs == 0:
                self.evictable_pages -= len(step.key)
                self.locked_pages += len(step.key)
                self._leaves.discard(step)
            step.lock_refs += 1
            step = step.parent

    def unlock(self, node: Node) -> None:
        """Undo one `lock`."""
        step = node
        while step.parent is not None:
            step.lock_refs -= 1
            if step.lock_refs == 0:
                self.evictable_pages += len(step.key)
                self.locked_pages -= len(step.key)
                self._note_leaf(step)
            step = step.parent

    def evict(self, num_pages: int) -> int:
        """Lose leaves in order of rank until `num_pages` are free or none is left; pages freed."""
        if not self._rank_never_falls:
            self._rebuild_heap()
        freed = 0
        while freed < num_pages and self._heap:
            rank, last_access, _, node = heapq.heappop(self._heap)
            if node not in self._leaves:
                node.in_heap = False
            elif (rank, last_access) != (self._rank(node), node.last_access):
                heapq.heappush(self._heap, self._entry(node))
            else:
                node.in_heap = False
                freed += len(node.key)
                self._remove(node)
        return freed

    def nodes(self) -> Iterable[Node]:
        """All nodes but the root."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def _entry(self, node: Node) -> tuple[Rank, float, float, Node]:
        return (self._rank(node), node.last_access, node.number, node)

    def _rebuild_heap(self) -> None:
        for entry in self._heap:
            entry[-1].in_heap = False
        for leaf in self._leaves:
            leaf.in_heap = True
        self._heap = [self._entry(leaf) for leaf in self._leaves]
        heapq.heapify(self._heap)

    def _note_leaf(self, node: Node) -> None:
        """Keep the set of evictable leaves right after a change of `node`."""
        if node.parent is None or node.lock_refs or node.children:
            self._leaves.discard(node)
            return
        self._leaves.add(node)
        if not node.in_heap:
            node.in_heap = True
            heapq.heappush(self._heap, self._entry(node))

    def _split(self, parent: Node, child: Node, head_pages: int) -> Node:
        """Cut a child of `parent` in two; the new node is the head, `child` the rest."""
        head = Node(parent, _own(child.key[:head_pages]), self._tick(2), child.priority)
        head.created = child.created
        head.place = child.place
        head.hit_count = child.hit_count
        head.lock_refs = child.lock_refs
        head.history_pages = child.history_pages
        parent.children[int(head.key[0])] = head
        child.key = _own(child.key[head_pages:])
        child.parent = head
        child.last_access = self._tick()
        head.children[int(child.key[0])] = child
        self._note_leaf(child)
        return head

    def _add_leaf(self, parent: Node, key: Int64s, priority: float) -> Node:
        leaf = Node(parent, key, self._tick(2), priority)
        parent.children[int(key[0])] = leaf
        step: Node | None = leaf
        while step is not None and step.history_pages < leaf.depth_pages:
            step.history_pages = leaf.depth_pages
            step = step.parent
        self.evictable_pages += len(key)
        self._note_leaf(leaf)
        self._leaves.discard(parent)
        return leaf

    def _remove(self, leaf: Node) -> None:
        parent = leaf.parent or self.root
        del parent.children[int(leaf.key[0])]
        self._leaves.discard(leaf)
        self.evictable_pages -= len(leaf.key)
        self._note_leaf(parent)
