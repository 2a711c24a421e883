"""The tables of a scheduler at the start: settings written down, every block free."""

from __future__ import annotations

import math

import numpy as np

from tokenpath.engine.config import EVICTIONS, EngineConfig
from tokenpath.engine.scheduler import Int64s
from tokenpath.engine.vllm import layout as at
from tokenpath.engine.vllm.versions import rules_of

_FIRST_CAPACITY = 64
_LINE_BYTES = 64


def memory_for(config: EngineConfig) -> at.Memory:
    """A scheduler without requests."""
    num_buckets = 1 << (config.num_blocks - 1).bit_length()
    num_scored = config.num_blocks if config.eviction in ("lfu", "cost", "ttl") else 1
    blocks = aligned_zeros(config.num_blocks, at.NUM_BLOCK_FIELDS)
    blocks[:, at.PLACE] = -1
    blocks[:, at.FREE_NEXT] = np.arange(1, config.num_blocks + 1)
    blocks[:, at.FREE_PREV] = np.arange(-1, config.num_blocks - 1)
    blocks[-1, at.FREE_NEXT] = 0
    lists = np.zeros((at.NUM_LISTS, config.max_num_seqs), np.int64)
    lists[at.SLOT_LIST] = np.arange(config.max_num_seqs - 1, -1, -1)
    # The last column is room for a hit list as long as the longest sequence.
    table = np.zeros((config.max_num_seqs, config.num_blocks_per_request_max + 1), np.int64)
    return at.Memory(
        state=_state_for(config, num_buckets),
        requests=np.zeros((_FIRST_CAPACITY, at.NUM_REQUEST_FIELDS), np.int64),
        hashes=np.zeros(_FIRST_CAPACITY, np.int64),
        waiting=np.zeros(_FIRST_CAPACITY, np.int64),
        blocks=blocks,
        scores=np.zeros((num_scored, at.NUM_SCORE_FIELDS), np.int64),
        buckets=np.zeros((num_buckets, 2), np.int64),
        table=table,
        evictable=np.zeros(num_scored, np.int64),
        lists=lists,
        batches=np.zeros((2, config.max_num_seqs, at.NUM_BATCH_FIELDS), np.int64),
    )


def _state_for(config: EngineConfig, num_buckets: int) -> Int64s:
    rules = rules_of(config)
    state = np.zeros(at.NUM_STATE, np.int64)
    state[at.BLOCK_SIZE] = config.block_size
    state[at.NUM_BLOCKS] = config.num_blocks
    state[at.MAX_NUM_SEQS] = config.max_num_seqs
    state[at.MAX_NUM_ACTIVE_SEQS] = config.max_num_active_seqs or config.max_num_seqs
    state[at.MAX_NUM_BATCHED_TOKENS] = config.max_num_batched_tokens
    state[at.MAX_MODEL_LEN] = config.max_model_len
    state[at.LONG_PREFILL_TOKEN_THRESHOLD] = config.long_prefill_token_threshold
    state[at.WATERMARK_BLOCKS] = int(config.watermark * config.num_blocks)
    state[at.IS_CHUNKED_PREFILL] = config.enable_chunked_prefill
    state[at.IS_PREFIX_CACHING] = config.enable_prefix_caching
    state[at.IS_PRIORITY] = config.policy == "priority"
    state[at.IS_FULL_ISL_RESERVED] = config.scheduler_reserve_full_isl and rules.has_full_isl
    state[at.IS_ASYNC] = config.async_scheduling
    state[at.EVICTION] = EVICTIONS.index(config.eviction)
    state[at.TTL_NS] = config.eviction_ttl_ns or 0
    state[at.COST_TOKENS] = config.eviction_cost_tokens
    state[at.IS_FREE_SPLIT] = rules.is_free_split
    state[at.IS_LONG_PREFILL_ALONE_UNCAPPED] = rules.is_long_prefill_alone_uncapped
    state[at.IS_UNCHUNKED_SKIPPED] = rules.is_unchunked_skipped
    state[at.IS_ASYNC_GUARDED] = rules.is_async_guarded
    state[at.IS_ANY_VICTIM_COUNTED] = rules.is_any_victim_counted
    state[at.IS_SELF_PREEMPTION_PASSED] = rules.is_self_preemption_passed
    state[at.IS_LONG_PREFILL_ADAPTIVE] = config.long_prefill_token_threshold_adaptive
    state[at.NUM_FREE] = config.num_usable_blocks
    state[at.FREE_HEAD] = 1
    state[at.FREE_TAIL] = config.num_blocks - 1
    state[at.NUM_SLOTS_FREE] = config.max_num_seqs
    state[at.BUCKET_MASK] = num_buckets - 1
    return state


def aligned_zeros(*shape: int) -> Int64s:
    """Zeros that start where a line of the processor's cache starts, as numpy's need not."""
    size = math.prod(shape)
    whole = np.zeros(size + _LINE_BYTES // 8, np.int64)
    first = -whole.ctypes.data % _LINE_BYTES // 8
    return whole[first : first + size].reshape(shape)


def grown(array: Int64s, length: int) -> Int64s:
    """The array with room for `length` rows; at least twice as long if it grows at all."""
    if length <= len(array):
        return array
    larger = np.zeros((max(length, 2 * len(array)), *array.shape[1:]), np.int64)
    larger[: len(array)] = array
    return larger
