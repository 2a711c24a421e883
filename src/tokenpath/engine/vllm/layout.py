"""Where the vLLM scheduler keeps its state: named places in a few int64 tables.

Tables rather than objects, so that the same functions run as Python and as machine code. A row of
`requests`, `blocks` or `batches` is one thing; its fields lie side by side in memory. 0 stands for "no
block" in every link: block 0 is vLLM's null block, which is never used and never free.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

# state[...]: settings
BLOCK_SIZE = 0
NUM_BLOCKS = 1
MAX_NUM_SEQS = 2
MAX_NUM_ACTIVE_SEQS = 3
MAX_NUM_BATCHED_TOKENS = 4
MAX_MODEL_LEN = 5
LONG_PREFILL_TOKEN_THRESHOLD = 6
WATERMARK_BLOCKS = 7
IS_CHUNKED_PREFILL = 8
IS_PREFIX_CACHING = 9
IS_PRIORITY = 10
IS_FULL_ISL_RESERVED = 11
IS_ASYNC = 12
EVICTION = 13
TTL_NS = 14
COST_TOKENS = 15
# state[...]: what differs between versions
IS_FREE_SPLIT = 16
IS_LONG_PREFILL_ALONE_UNCAPPED = 17
IS_LONG_PREFILL_ADAPTIVE = 18
IS_UNCHUNKED_SKIPPED = 19
IS_ASYNC_GUARDED = 20
IS_ANY_VICTIM_COUNTED = 21
IS_SELF_PREEMPTION_PASSED = 22
# state[...]: counts and ends of lists
NUM_REQUESTS = 24
NUM_FREE = 25
FREE_HEAD = 26
FREE_TAIL = 27
NUM_RUNNING = 28
NUM_WAITING = 29
FRONT_RANK = 30
BACK_RANK = 31
NUM_SCHEDULED = 32
NUM_PREEMPTED = 33
NUM_FINISHED = 34
NUM_SLOTS_FREE = 35
BUCKET_MASK = 36
NUM_EVICTABLE = 37
EVICTION_CLOCK = 38
RELEASES = 39
NOW_NS = 40
NUM_EVICTED = 41
# state[...]: admission that waits for its caller to say what KV there is elsewhere
IS_ASKING = 42
KEPT_THRESHOLD = 43
KEPT_BUDGET = 44
KEPT_SKIPPED = 45
ASKED_CACHED = 46
NUM_STATE = 48

# requests[r, ...]
PROMPT_TOKENS = 0
OUTPUT_TOKENS = 1
NUM_OUTPUT = 2
NUM_COMPUTED = 3
NUM_PLACEHOLDERS = 4
NUM_IN_FLIGHT = 5
NUM_STALE = 6
NUM_HELD = 7
NUM_REGISTERED = 8
NUM_PREEMPTIONS = 9
SLOT = 10
STATUS = 11
PRIORITY = 12
ARRIVAL_NS = 13
RANK = 14
HASH_START = 15
NUM_HASHES = 16
GRANULE_TOKENS = 17
EXTERNAL = 18
NUM_REQUEST_FIELDS = 19

NOT_ASKED = -1
"""EXTERNAL of a request of which nobody has said yet."""

WAITING, RUNNING, FINISHED = 0, 1, 2

# blocks[b, ...]; PLACE is -1 where the block has no key
REF = 0
CONTENT = 1
PLACE = 2
FREE_NEXT = 3
FREE_PREV = 4
CHAIN_NEXT = 5
CHAIN_PREV = 6
RELEASED_NS = 7
NUM_BLOCK_FIELDS = 8

# scores[b, ...]
USES = 0
SCORE = 1
SCORE_ORDER = 2
HEAP_PLACE = 3
NUM_SCORE_FIELDS = 4

# buckets[h, ...]
HEAD, TAIL = 0, 1

# lists[..., i]
RUNNING_LIST = 0
PREEMPTED_LIST = 1
FINISHED_LIST = 2
SLOT_LIST = 3
SKIPPED_LIST = 4
NUM_LISTS = 5

# batches[which, i, ...]
REQUEST = 0
KIND = 1
COMPUTED_BEFORE = 2
TOKENS = 3
CACHED = 4
EMITTED = 5
IS_PREFILL = 6  # for the event loop, which knows it; the scheduler does not ask
NUM_BATCH_FIELDS = 7

KIND_RUN, KIND_NEW, KIND_RESUMED = 0, 1, 2

LRU, LFU, TTL, COST = 0, 1, 2, 3


class Memory(NamedTuple):
    """Everything that a scheduler remembers; one array each, see above."""

    state: Int64s
    """[NUM_STATE] settings, counts, ends of lists."""
    requests: Int64s
    """[capacity, NUM_REQUEST_FIELDS]; grows with the requests."""
    hashes: Int64s
    """[capacity] content ids of all requests, one after the other."""
    waiting: Int64s
    """[capacity] a binary heap of waiting requests, first to serve first."""
    blocks: Int64s
    """[num_blocks, NUM_BLOCK_FIELDS]; a block is one line of the processor's cache."""
    scores: Int64s
    """[num_blocks, NUM_SCORE_FIELDS] what blocks are worth, where the policy is not LRU."""
    buckets: Int64s
    """[power of two, 2] first and last block whose key falls there, oldest first."""
    table: Int64s
    """[max_num_seqs, blocks] the blocks of each running request, by its slot."""
    evictable: Int64s
    """[num_blocks] a binary heap of free blocks with content, where the policy is not LRU."""
    lists: Int64s
    """[NUM_LISTS, max_num_seqs] short lists of requests or slots."""
    batches: Int64s
    """[2, max_num_seqs, NUM_BATCH_FIELDS] the steps in flight."""
