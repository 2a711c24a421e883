"""Settings of TensorRT-LLM's scheduler, under the names of its configuration."""

from __future__ import annotations

from dataclasses import dataclass

from tokenpath.core.errors import UsageError

CAPACITY_POLICIES = ("guaranteed_no_evict", "max_utilization", "static_batch")
CHUNKING_POLICIES = ("first_come_first_served", "equal_progress")
DEFAULT_RETENTION_PRIORITY = 35
"""KvCacheRetentionConfig::kDefaultRetentionPriority; priorities go from 0, lost first, to 100."""


@dataclass(frozen=True, slots=True)
class TrtllmSettings:
    """One scheduler of TensorRT-LLM 1.3 with its KV cache manager. Defaults are its own where it has one."""

    num_blocks: int
    """Blocks of the primary pool; TensorRT-LLM prints them at its start."""
    max_seq_len: int
    """Tokens of a request, prompt and output."""
    tokens_per_block: int = 32
    """Tokens of a block."""
    max_batch_size: int = 2048
    """Requests of a step, and requests taken out of the queue at once."""
    max_num_tokens: int = 8192
    """Tokens of a step."""
    capacity_scheduler_policy: str = "guaranteed_no_evict"
    """One of `CAPACITY_POLICIES`."""
    enable_chunked_context: bool = False
    """Long prompts are computed in parts."""
    context_chunking_policy: str = "first_come_first_served"
    """One of `CHUNKING_POLICIES`."""
    chunk_unit_size: int | None = None
    """Parts are multiples of this; None = `tokens_per_block`."""
    enable_block_reuse: bool = True
    """Blocks are kept for later requests with the same prefix."""
    enable_partial_reuse: bool = True
    """So are the first tokens of a block that differs later."""
    copy_on_partial_reuse: bool = True
    """They are copied where the block is held or has successors; otherwise only free leaves are used."""
    enable_prefix_aware_scheduling: bool = True
    """Estimates count cached prefixes, and a request waits for an earlier one that computes its prefix."""
    context_retention_priority: int | None = None
    """Retention priority of blocks of prompts; None = the default, and reused blocks keep theirs."""
    decode_retention_priority: int = DEFAULT_RETENTION_PRIORITY
    """Retention priority of blocks of outputs."""
    two_step_lookahead: bool = False
    """`max_utilization` keeps room for two steps; TensorRT-LLM sets it with pipeline parallelism."""
    disable_overlap_scheduler: bool = False
    """Decide a step after the results of the one before, not while it runs."""
    max_new_tokens: int | None = None
    """What every request asks for, if more than its output; None = exactly its output."""

    def __post_init__(self) -> None:
        """UsageError for what TensorRT-LLM refuses at its start."""
        _choice("capacity_scheduler_policy", self.capacity_scheduler_policy, CAPACITY_POLICIES)
        _choice("context_chunking_policy", self.context_chunking_policy, CHUNKING_POLICIES)
        positive = (
            "num_blocks",
            "max_seq_len",
            "tokens_per_block",
            "max_batch_size",
            "max_num_tokens",
        )
        for name in positive:
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}", allowed="at least 1")
        if self.enable_chunked_context and self.chunk_unit > self.max_num_tokens:
            raise UsageError(
                f"max_num_tokens ({self.max_num_tokens}) is less than one unit of a chunk",
                allowed=f"at least chunk_unit_size ({self.chunk_unit})",
            )
        if self.enable_chunked_context and self.chunk_unit % self.tokens_per_block:
            raise UsageError(
                f"chunk_unit_size is {self.chunk_unit}",
                allowed=f"a multiple of tokens_per_block ({self.tokens_per_block})",
            )
        for name in ("context_retention_priority", "decode_retention_priority"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 100:
                raise UsageError(f"{name} is {value}", allowed="0 to 100")

    @property
    def chunk_unit(self) -> int:
        """Parts of prompts are multiples of this."""
        return self.tokens_per_block if self.chunk_unit_size is None else self.chunk_unit_size


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} is {value!r}", allowed=", ".join(allowed))
