"""Settings of an engine, by vLLM's names, checked before anything runs.

Other engines use the same names where they mean the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenpath.core.errors import InputError

POLICIES = ("fcfs", "priority")
EVICTIONS = ("lru", "lfu", "ttl", "cost")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What decides how an engine schedules. Defaults are vLLM's where it has one that is not derived."""

    num_blocks: int
    """KV blocks, vLLM's null block included: one less can be used. At least 2."""
    block_size: int = 16
    """Tokens of one block."""
    max_num_batched_tokens: int = 2048
    """Tokens computed in one step, at most."""
    max_num_seqs: int = 128
    """Requests running at once, at most."""
    max_model_len: int = 8192
    """Longest sequence, prompt and output."""
    policy: str = "fcfs"
    """`fcfs` or `priority`."""
    enable_chunked_prefill: bool = True
    """Whether a prompt may be spread over steps to fill the budget."""
    enable_prefix_caching: bool = True
    """Whether content of blocks is found again."""
    watermark: float = 0.0
    """Share of all blocks that an admission leaves free while others run."""
    long_prefill_token_threshold: int = 0
    """Most tokens of one request in one step; 0: no such limit."""
    long_prefill_token_threshold_adaptive: bool = False
    """Raise that limit to the fair share of the budget."""
    scheduler_reserve_full_isl: bool = True
    """Whether a request is admitted only if its whole sequence fits, not only its first chunk."""
    async_scheduling: bool = False
    """Whether a step is decided before the outputs of the one before are known."""
    max_num_active_seqs: int | None = None
    """Admit no more than this many, at most `max_num_seqs`; None: `max_num_seqs`."""
    eviction: str = "lru"
    """Which cached content is lost first: `lru` as vLLM, `lfu`, `ttl` or `cost` (see `vllm/eviction.py`)."""
    eviction_ttl_ns: int | None = None
    """How long content lives that nobody holds; only for `ttl`, which needs it."""
    eviction_cost_tokens: int = 4096
    """For `cost`: what computing a token costs, in tokens attended to (the rest of the model's work)."""
    version: str = "0.32.0"
    """Release of vLLM whose rules hold."""

    def __post_init__(self) -> None:
        """InputError for a value that no engine would run with."""
        for name, at_least in (
            ("num_blocks", 2),
            ("block_size", 1),
            ("max_num_batched_tokens", 1),
            ("max_num_seqs", 1),
            ("max_model_len", 2),
            ("long_prefill_token_threshold", 0),
            ("eviction_cost_tokens", 0),
        ):
            value = getattr(self, name)
            if value < at_least:
                raise _out_of_range(name, value, f"{at_least} or more", at_least)
        self._check_choices()
        if not 0.0 <= self.watermark < 1.0:
            nearest = 0.0 if self.watermark < 0.0 else 0.99
            raise _out_of_range("watermark", self.watermark, "0 to less than 1", nearest)
        active = self.max_num_active_seqs
        if active is not None and not 1 <= active <= self.max_num_seqs:
            nearest_active = min(max(active, 1), self.max_num_seqs)
            limit = f"1 to max_num_seqs ({self.max_num_seqs})"
            raise _out_of_range("max_num_active_seqs", active, limit, nearest_active)
        if self.max_num_batched_tokens < self.max_num_seqs:
            limit = f"max_num_seqs ({self.max_num_seqs}) or more"
            nearest = self.max_num_seqs
            raise _out_of_range(
                "max_num_batched_tokens", self.max_num_batched_tokens, limit, nearest
            )
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            limit = f"max_model_len ({self.max_model_len}) or more without chunked prefill"
            raise _out_of_range(
                "max_num_batched_tokens", self.max_num_batched_tokens, limit, self.max_model_len
            )

    def _check_choices(self) -> None:
        for name, choices in (("policy", POLICIES), ("eviction", EVICTIONS)):
            value = getattr(self, name)
            if value not in choices:
                raise _out_of_range(name, repr(value), " or ".join(choices), choices[0])
        if (self.eviction == "ttl") != (self.eviction_ttl_ns is not None):
            raise InputError(
                f"eviction is {self.eviction} and eviction_ttl_ns is {self.eviction_ttl_ns}",
                where="engine settings",
                allowed="eviction_ttl_ns with eviction ttl, and only with it",
                next_step="set eviction=ttl eviction_ttl_ns=60000000000, or neither",
            )
        if self.eviction_ttl_ns is not None and self.eviction_ttl_ns < 1:
            raise _out_of_range("eviction_ttl_ns", self.eviction_ttl_ns, "1 or more", 1)

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that requests can hold: all but the null block."""
        return self.num_blocks - 1

    @property
    def num_blocks_per_request_max(self) -> int:
        """Blocks of the longest sequence that both the model and the pool allow."""
        return min(-(-self.max_model_len // self.block_size), self.num_usable_blocks)


def _out_of_range(name: str, value: object, allowed: str, nearest: object) -> InputError:
    return InputError(
        f"{name} is {value}",
        where="engine settings",
        allowed=allowed,
        next_step=f"the nearest value that works is {name}={nearest}",
    )
