"""Settings of the two teaching baselines."""

from __future__ import annotations

from dataclasses import dataclass

from tokenpath.core.errors import UsageError

POOLS = ("contiguous", "paged")


@dataclass(frozen=True, slots=True)
class StaticSettings:
    """Static batching: a batch starts when the one before it has ended, with whoever waits."""

    num_blocks: int
    """Blocks of the KV pool."""
    max_seq_len: int
    """Tokens of a row, prompt and output."""
    block_size: int = 16
    """Tokens of a block."""
    max_batch_size: int = 32
    """Requests of a batch."""
    pool: str = "contiguous"
    """`contiguous`: a row takes `max_seq_len` tokens from its start, as servers did before paged attention.
    `paged`: it takes the blocks that it fills."""

    def __post_init__(self) -> None:
        """UsageError for settings under which nothing can run."""
        if self.pool not in POOLS:
            raise UsageError(f"pool is {self.pool!r}", allowed=", ".join(POOLS))
        for name in ("num_blocks", "max_seq_len", "block_size", "max_batch_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}", allowed="at least 1")
        if self.pool == "contiguous" and self.blocks_for(self.max_seq_len) > self.num_blocks:
            raise UsageError(
                f"one row of max_seq_len ({self.max_seq_len}) tokens takes "
                f"{self.blocks_for(self.max_seq_len)} blocks of {self.num_blocks}",
                allowed=f"max_seq_len up to {self.num_blocks * self.block_size}, or pool 'paged'",
            )

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.block_size)


@dataclass(frozen=True, slots=True)
class WindowSettings(StaticSettings):
    """Dynamic batching: a batch starts when its first request has waited for a while, or when it is full."""

    window_ns: int = 10_000_000
    """How long the first request of a batch waits for others, if the batch does not fill before."""

    def __post_init__(self) -> None:
        """UsageError for settings under which nothing can run."""
        # The usual short form of super() does not work in a dataclass with slots.
        StaticSettings.__post_init__(self)
        if self.window_ns < 0:
            raise UsageError(f"window_ns is {self.window_ns}", allowed="0 or more")
