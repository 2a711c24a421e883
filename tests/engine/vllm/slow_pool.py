"""A block pool as slow and plain as its description, to hold the fast one against."""

from __future__ import annotations

from dataclasses import dataclass, field

BLOCK = 4


@dataclass
class SlowPool:
    """Blocks by number; everything is looked up by going through all of them."""

    num_blocks: int
    policy: str
    ttl_ns: int
    cost_tokens: int
    now_ns: int = 0
    clock: int = 0
    releases: int = 0
    empty: list[int] = field(default_factory=list)
    key: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Content by block, in the order in which it was registered."""
    ref: dict[int, int] = field(default_factory=dict)
    uses: dict[int, int] = field(default_factory=dict)
    order: dict[int, int] = field(default_factory=dict)
    score: dict[int, int] = field(default_factory=dict)
    released_ns: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.empty = list(range(1, self.num_blocks))

    def num_free(self) -> int:
        return len(self.empty) + sum(self.ref[b] == 0 for b in self.key)

    def find(self, keys: list[tuple[int, ...]]) -> list[int]:
        hits: list[int] = []
        for wanted in keys:
            owners = [b for b, key in self.key.items() if key == wanted and not self.is_old(b)]
            if not owners:
                break
            hits.append(owners[0])
        return hits

    def is_old(self, b: int) -> bool:
        if self.policy != "ttl" or self.ref[b] > 0:
            return False
        return self.now_ns - self.released_ns[b] >= self.ttl_ns

    def acquire(self, keys: list[tuple[int, ...]], count: int) -> list[int] | None:
        """Hits, then new blocks: `count` in all, registered as far as there are keys."""
        hits = self.find(keys)[: count - 1]
        if count - len(hits) + sum(self.ref[b] == 0 for b in hits) > self.num_free():
            return None
        for b in hits:
            self.ref[b] += 1
            self.uses[b] += 1
        blocks = hits + [self.take() for _ in range(count - len(hits))]
        for b, key in list(zip(blocks, keys, strict=False))[len(hits) :]:
            self.key[b] = key
            self.uses[b] = 1
        return blocks

    def take(self) -> int:
        if self.empty:
            b = self.empty.pop(0)
        else:
            free = [b for b in self.key if self.ref[b] == 0]
            b = min(free, key=lambda b: (self.score[b], self.order[b]))
            if self.policy == "cost":
                self.clock = self.score[b]
            del self.key[b]
        self.ref[b] = 1
        return b

    def release(self, blocks: list[int]) -> None:
        first: list[int] = []
        for i in reversed(range(len(blocks))):
            b = blocks[i]
            self.ref[b] -= 1
            if self.ref[b] > 0:
                continue
            if b not in self.key:
                first.append(b)
                continue
            self.releases += 1
            self.order[b] = self.releases
            self.released_ns[b] = self.now_ns
            self.score[b] = self.score_of(b, i, len(blocks))
        self.empty[:0] = first

    def score_of(self, b: int, i: int, held: int) -> int:
        if self.policy == "lfu":
            return self.uses[b]
        if self.policy == "cost":
            # Tokens from here to the end, each with what it costs and the tokens it attends to.
            tokens = range(i * BLOCK, held * BLOCK)
            pairs = ((held * BLOCK) ** 2 - (i * BLOCK) ** 2) // 2
            return self.clock + self.uses[b] * (len(tokens) * self.cost_tokens + pairs)
        return 0
