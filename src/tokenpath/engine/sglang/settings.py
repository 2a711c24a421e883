"""Settings of SGLang's scheduler, under the names of its command line."""

from __future__ import annotations

from dataclasses import dataclass

from tokenpath.core.errors import UsageError

SCHEDULE_POLICIES = ("fcfs", "lpm", "dfs-weight", "lof")
EVICTION_POLICIES = ("lru", "lfu", "fifo", "mru", "filo", "priority", "slru", "tlru")
RETRACTION_POLICIES = ("length", "priority")
PRIORITY_POLICIES = ("fcfs", "lof")
"""Policies beside which SGLang lets requests have priorities: with others, two could preempt each other for ever."""


@dataclass(frozen=True, slots=True)
class SglangSettings:
    """One scheduler of SGLang 0.5.23. Defaults are its own where it has a fixed one."""

    max_total_tokens: int
    """Tokens that the KV pool holds; SGLang prints it as `max_total_num_tokens`."""
    max_running_requests: int
    """Requests that hold a row of the pool at once."""
    context_length: int
    """Tokens of the model's context."""
    page_size: int = 1
    """Tokens of a page. The pool has `max_total_tokens // page_size` pages."""
    schedule_policy: str = "fcfs"
    """Order of the queue: one of `SCHEDULE_POLICIES`. SGLang's `random` has no rule to reproduce."""
    chunked_prefill_size: int | None = 8192
    """Prompt tokens of one batch; None = chunked prefill off. SGLang chooses it by GPU memory."""
    max_prefill_tokens: int = 16384
    """Prompt tokens of one batch, whether chunked or not."""
    prefill_max_requests: int | None = None
    """Requests of one prefill batch; None = no limit."""
    enable_mixed_chunk: bool = False
    """Decodes ride along in prefill batches. Without effect when chunked prefill is off."""
    prefill_decode_interval: int = 0
    """Decode rounds between two prefill batches; 0 = off."""
    prefill_decode_interval_min_bs: int = 0
    """The interval applies from this many running requests on."""
    disable_overlap_schedule: bool = False
    """Decide a step after the results of the one before, not while it runs."""
    schedule_conservativeness: float = 1.0
    """Scales the share of the outputs still to come for which admission keeps room."""
    ignore_eos: bool = False
    """Requests end at their `max_new_tokens` only, and say so: room is kept for all of it."""
    disable_radix_cache: bool = False
    """Nothing is shared and nothing is kept after a request."""
    radix_eviction_policy: str = "lru"
    """Which leaf of the tree is lost first: one of `EVICTION_POLICIES`."""
    slru_protected_threshold: int = 2
    """`slru`: hits from which a node is protected."""
    tlru_threshold: int = 0
    """`tlru`: prompt tokens that may be computed again within the latency target."""
    tlru_next_prompt_estimate: int = 0
    """`tlru`: tokens by which the next prompt of a conversation is expected to grow."""
    enable_priority_scheduling: bool = False
    """Sort the queue by priority first (`fcfs`, `lof`), and preempt for it."""
    schedule_low_priority_values_first: bool = True
    """As `EngineRequest.priority` says. SGLang's own default is the opposite direction."""
    disable_priority_preemption: bool = False
    """Priority sorts the queue but takes nothing from running requests."""
    priority_scheduling_preemption_threshold: int = 10
    """A request preempts those whose priority is worse by more than this."""
    retraction_policy: str = "length"
    """Who is retracted when decode runs out of memory: one of `RETRACTION_POLICIES`."""
    max_new_tokens: int | None = None
    """What every request asks for, if more than its output; None = exactly its output."""
    clip_max_new_tokens_estimation: int = 4096
    """Outputs longer than this count as this long (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION)."""
    init_new_token_ratio: float = 0.7
    """SGLANG_INIT_NEW_TOKEN_RATIO."""
    min_new_token_ratio_factor: float = 0.14
    """SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR."""
    new_token_ratio_decay_steps: int = 600
    """SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS."""
    retract_decode_steps: int = 20
    """SGLANG_RETRACT_DECODE_STEPS."""
    in_batch_prefix_caching_check_threshold: int = 32
    """A queued request whose cached prefix is no longer than this is compared with the queue; -1 = off."""
    in_batch_prefix_caching_deprioritize_threshold: int = 32
    """A queued request that shares at least this much with an earlier one waits for it."""
    enable_waiting_prefix_refresh: bool = True
    """Under `fcfs` and `lru`, the cached prefixes of the queue count as used every 32nd pass."""

    def __post_init__(self) -> None:
        """UsageError for what SGLang refuses at its start."""
        _choice("schedule_policy", self.schedule_policy, SCHEDULE_POLICIES)
        _choice("radix_eviction_policy", self.radix_eviction_policy, EVICTION_POLICIES)
        _choice("retraction_policy", self.retraction_policy, RETRACTION_POLICIES)
        if self.enable_priority_scheduling:
            _choice("schedule_policy beside priorities", self.schedule_policy, PRIORITY_POLICIES)
        for name in ("max_total_tokens", "max_running_requests", "context_length", "page_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}", allowed="at least 1")
        if self.max_total_tokens < self.page_size:
            raise UsageError(
                f"max_total_tokens ({self.max_total_tokens}) is less than a page",
                allowed=f"at least page_size ({self.page_size})",
            )
        chunk = self.chunked_prefill_size
        if chunk is not None and (chunk < 1 or chunk % self.page_size):
            raise UsageError(
                f"chunked_prefill_size is {chunk}",
                allowed=f"None (off) or a multiple of page_size ({self.page_size})",
                next_step=f"the nearest is {max(chunk // self.page_size, 1) * self.page_size}",
            )
        if self.schedule_conservativeness < 0:
            raise UsageError(
                f"schedule_conservativeness is {self.schedule_conservativeness}",
                allowed="0 or more",
            )


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} is {value!r}", allowed=", ".join(allowed))
