"""A request inside the scheduler, and a batch of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenpath.engine.content import page_keys
from tokenpath.engine.scheduler import EngineRequest, Int64s, Kind

if TYPE_CHECKING:
    from tokenpath.engine.sglang.radix import Node


class Sequence:
    """State of one request. Lengths are tokens from its start."""

    __slots__ = (
        "_keys",
        "committed",
        "extend_end",
        "external",
        "fill_len",
        "finished",
        "holds_row",
        "inserted",
        "kind",
        "last_node",
        "lock_node",
        "max_new_tokens",
        "num_matched_prefix_tokens",
        "num_outputs",
        "prefix_len",
        "protected",
        "queued_as",
        "request",
        "retracted",
    )

    def __init__(self, request: EngineRequest, max_new_tokens: int, root: Node) -> None:
        self.request = request
        self.max_new_tokens = max_new_tokens
        """Tokens that it asks for; what it emits is `request.output_tokens`."""
        self.num_outputs = 0
        """Tokens emitted, without those of a step whose result is not known yet."""
        self.prefix_len = 0
        """Tokens computed or cached before the chunk that was scheduled last."""
        self.extend_end = 0
        """End of that chunk."""
        self.external = 0
        """Tokens behind the prefix whose KV comes from elsewhere, as it is admitted; 0 afterwards."""
        self.fill_len = 0
        """Prompt and outputs, when it was last prepared for a prefill or a mixed batch."""
        self.committed = 0
        """Tokens that have their place in the pool."""
        self.protected = 0
        """Tokens of it that the tree owns, whole pages."""
        self.inserted = 0
        """Tokens of it that were put into the tree by this request."""
        self.last_node = root
        """Where its cached prefix ends in the tree."""
        self.lock_node: Node | None = None
        """The node that it keeps from eviction."""
        self.num_matched_prefix_tokens = 0
        """Cached tokens when the queue was last sorted."""
        self.holds_row = False
        """Whether it holds one of the `max_running_requests` rows."""
        self.queued_as = 0
        """Number of its last entry into the queue."""
        self.finished = False
        self.retracted = False
        """Retracted and not scheduled again: the result of a step still under way is thrown away."""
        self.kind = Kind.NEW
        """What it will be when it is scheduled next."""
        self._keys: Int64s | None = None

    @property
    def num_tokens(self) -> int:
        """Prompt and emitted tokens."""
        return self.request.prompt_tokens + self.num_outputs

    def keys(self, page_size: int) -> Int64s:
        """Content keys of its pages, outputs included."""
        if self._keys is None:
            self._keys = page_keys(self.request, page_size)
        return self._keys

    def finishes_next(self) -> bool:
        """Whether one more token ends it by length, as the scheduler sees it."""
        return self.num_outputs + 1 >= self.max_new_tokens

    def reset_for_retract(self) -> None:
        """It starts over, with the tokens it has emitted as part of its prompt."""
        self.prefix_len = 0
        self.inserted = 0
        self.num_matched_prefix_tokens = 0
        self.holds_row = False
        self.retracted = True
        self.kind = Kind.RESUMED


class Batch:
    """Requests that run or have run together."""

    __slots__ = ("chunked", "decoding", "is_extend", "is_full", "sequences")

    def __init__(self, sequences: list[Sequence], *, is_extend: bool = False) -> None:
        self.sequences = sequences
        self.is_extend = is_extend
        """Has a prefill in it."""
        self.is_full = False
        """As the running batch: no admission until somebody leaves."""
        self.chunked: Sequence | None = None
        """Whose prefill this batch does not end."""
        self.decoding: frozenset[Sequence] = frozenset()
        """Those that decode in a mixed batch."""

    def keep(self, exclude: frozenset[Sequence] = frozenset()) -> bool:
        """Drop the ended and the excluded; whether any was dropped."""
        before = len(self.sequences)
        self.sequences = [s for s in self.sequences if not s.finished and s not in exclude]
        return len(self.sequences) < before
