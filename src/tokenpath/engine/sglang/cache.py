"""The KV pool of SGLang: free pages, and the radix tree that keeps pages of the past."""

from __future__ import annotations

from tokenpath.core.errors import InputError
from tokenpath.engine.sglang.eviction import NEVER_FALLS, rank_of
from tokenpath.engine.sglang.radix import RadixTree
from tokenpath.engine.sglang.sequence import Sequence
from tokenpath.engine.sglang.settings import SglangSettings


def pages_of(tokens: int, page_size: int) -> int:
    """Pages that hold so many tokens."""
    return -(-tokens // page_size)


class Cache:
    """Free pages plus tree. A request owns the pages behind its prefix; the tree owns the prefix."""

    def __init__(self, settings: SglangSettings) -> None:
        self.page_size = settings.page_size
        self.disabled = settings.disable_radix_cache
        self.num_pages = settings.max_total_tokens // settings.page_size
        self.free_pages = self.num_pages
        policy = settings.radix_eviction_policy
        self.tree = RadixTree(rank_of(settings), policy in NEVER_FALLS)

    @property
    def available_tokens(self) -> int:
        """Tokens of free pages."""
        return self.free_pages * self.page_size

    @property
    def available_and_evictable_tokens(self) -> int:
        """Tokens of pages that are free or would be free after evicting all that nobody holds."""
        return (self.free_pages + self.tree.evictable_pages) * self.page_size

    def match(self, sequence: Sequence, limit_tokens: int | None = None) -> None:
        """Take the longest cached prefix, of at most `limit_tokens`, as the prefix of a queued request."""
        limit = sequence.num_tokens if limit_tokens is None else limit_tokens
        if self.disabled:
            sequence.prefix_len, sequence.last_node = 0, self.tree.root
        else:
            pages, sequence.last_node = self.tree.match(
                sequence.keys(self.page_size)[: limit // self.page_size]
            )
            sequence.prefix_len = pages * self.page_size
        sequence.num_matched_prefix_tokens = min(sequence.prefix_len, sequence.num_tokens - 1)

    def touch(self, sequence: Sequence) -> None:
        """The cached prefix of a queued request counts as used."""
        self.tree.match(sequence.keys(self.page_size)[: sequence.num_tokens // self.page_size])

    def evict_to_free(self, num_tokens: int) -> None:
        """Evict until `num_tokens` are available or nothing more can be evicted."""
        shortfall = num_tokens - self.available_tokens
        if shortfall > 0 and not self.disabled:
            self.free_pages += self.tree.evict(pages_of(shortfall, self.page_size))

    def allocate_extend(self, sequences: list[Sequence]) -> None:
        """Pages for the tokens of a prefill batch. InputError where SGLang would stop (out of memory)."""
        size = self.page_size
        new_tokens = sum(s.extend_end - s.prefix_len for s in sequences)
        # The paged allocator asks for one page a request too many; the plain one for exactly its tokens.
        self.evict_to_free(new_tokens if size == 1 else new_tokens + len(sequences) * size)
        pages = sum(pages_of(s.extend_end, size) - pages_of(s.prefix_len, size) for s in sequences)
        self._take(pages, "prefill")
        for s in sequences:
            s.committed = s.extend_end

    def allocate_decode(self, sequences: list[Sequence]) -> None:
        """Pages for one more token of each."""
        self.evict_to_free(len(sequences) * self.page_size)
        pages = sum(1 for s in sequences if s.committed % self.page_size == 0)
        self._take(pages, "decode")
        for s in sequences:
            s.committed += 1

    def decode_fits(self, sequences: list[Sequence]) -> bool:
        """Whether one more token of each fits, after evicting for it."""
        pages = sum(1 for s in sequences if s.committed % self.page_size == 0)
        self.evict_to_free(pages * self.page_size)
        return self.free_pages >= pages

    def checkpoint(self, sequence: Sequence, up_to: int) -> None:
        """Put the first `up_to` tokens into the tree, as far as pages are full, and hold them there."""
        if self.disabled or up_to <= 0:
            return
        size = self.page_size
        keys = sequence.keys(size)[: up_to // size]
        priority = sequence.request.priority
        inserted = self.tree.insert(
            keys,
            owned_from=sequence.protected // size,
            counted_to=sequence.inserted // size,
            priority=priority,
        )
        self.free_pages += inserted.duplicate_pages
        sequence.inserted = max(sequence.inserted, len(keys) * size)
        prompt_pages = sequence.request.prompt_tokens // size
        if 0 < prompt_pages < len(keys):
            # A second insert cuts the tree at the end of the prompt: outputs may go without it.
            self.tree.insert(
                keys[:prompt_pages],
                owned_from=prompt_pages,
                counted_to=prompt_pages,
                priority=priority + 1,
            )
        self._unlock(sequence)
        sequence.protected = len(keys) * size
        sequence.last_node = inserted.node
        self.hold(sequence)

    def hold(self, sequence: Sequence) -> None:
        """The request keeps its prefix from eviction."""
        self.tree.lock(sequence.last_node)
        sequence.lock_node = sequence.last_node

    def release(self, sequence: Sequence, *, keep: bool) -> None:
        """Give all pages of a request back; with `keep` its tokens stay in the tree."""
        if keep:
            self.checkpoint(sequence, sequence.committed)
        own_from = sequence.protected // self.page_size
        self.free_pages += pages_of(sequence.committed, self.page_size) - own_from
        self._unlock(sequence)
        sequence.committed = 0
        sequence.protected = 0

    def _unlock(self, sequence: Sequence) -> None:
        if sequence.lock_node is not None:
            self.tree.unlock(sequence.lock_node)
            sequence.lock_node = None

    def _take(self, pages: int, what: str) -> None:
        if pages > self.free_pages:
            raise InputError(
                f"the {what} batch needs {pages} pages and {self.free_pages} are free: SGLang stops here",
                allowed=f"{self.num_pages} pages of {self.page_size} tokens in all",
                next_step="raise max_total_tokens or schedule_conservativeness",
            )
        self.free_pages -= pages
