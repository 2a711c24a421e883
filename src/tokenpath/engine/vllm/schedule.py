"""One `schedule()` of vLLM's V1 scheduler (v1/core/sched/scheduler.py): running requests, then waiting ones.

There are no phases: every request has tokens to compute, and a step hands out `max_num_batched_tokens` of
them. Running requests come first; when blocks run out, the last of them gives up its own and goes back to
the front of the queue. Waiting requests are admitted in order; the first that does not fit ends admission.
"""

from __future__ import annotations

from tokenpath.engine.vllm.layout import (
    ARRIVAL_NS,
    ASKED_CACHED,
    BLOCK_SIZE,
    CACHED,
    COMPUTED_BEFORE,
    EXTERNAL,
    IS_ANY_VICTIM_COUNTED,
    IS_ASKING,
    IS_ASYNC,
    IS_ASYNC_GUARDED,
    IS_CHUNKED_PREFILL,
    IS_FULL_ISL_RESERVED,
    IS_LONG_PREFILL_ADAPTIVE,
    IS_LONG_PREFILL_ALONE_UNCAPPED,
    IS_PRIORITY,
    IS_SELF_PREEMPTION_PASSED,
    IS_UNCHUNKED_SKIPPED,
    KEPT_BUDGET,
    KEPT_SKIPPED,
    KEPT_THRESHOLD,
    KIND,
    KIND_NEW,
    KIND_RESUMED,
    KIND_RUN,
    LONG_PREFILL_TOKEN_THRESHOLD,
    MAX_MODEL_LEN,
    MAX_NUM_ACTIVE_SEQS,
    MAX_NUM_BATCHED_TOKENS,
    NOT_ASKED,
    NOW_NS,
    NUM_COMPUTED,
    NUM_FREE,
    NUM_HELD,
    NUM_IN_FLIGHT,
    NUM_OUTPUT,
    NUM_PLACEHOLDERS,
    NUM_PREEMPTED,
    NUM_PREEMPTIONS,
    NUM_RUNNING,
    NUM_SCHEDULED,
    NUM_SLOTS_FREE,
    NUM_STALE,
    NUM_WAITING,
    OUTPUT_TOKENS,
    PREEMPTED_LIST,
    PRIORITY,
    PROMPT_TOKENS,
    REQUEST,
    RUNNING,
    RUNNING_LIST,
    SKIPPED_LIST,
    SLOT,
    SLOT_LIST,
    STATUS,
    TOKENS,
    WATERMARK_BLOCKS,
    Memory,
)
from tokenpath.engine.vllm.pool import (
    find_hits,
    num_unreferenced,
    register_blocks,
    release_blocks,
    take_blocks,
    touch_hits,
)
from tokenpath.engine.vllm.queue import prepend_waiting, push_waiting, remove_waiting


def schedule(m: Memory, now_ns: int, which: int) -> int:
    """Decide a step into `batches[which]`; its number of requests.

    -1 - r, with IS_ASKING only: the caller is to write EXTERNAL of request r, and to `go_on`.
    """
    m.state[NOW_NS] = now_ns
    m.state[NUM_SCHEDULED] = 0
    m.state[NUM_PREEMPTED] = 0
    threshold = prefill_cap(m)
    budget = schedule_running(m, which, threshold, m.state[MAX_NUM_BATCHED_TOKENS])
    if m.state[NUM_PREEMPTED] == 0:
        asked = admit_waiting(m, which, threshold, budget, 0)
        if asked >= 0:
            return -1 - asked
    advance_computed(m, which)
    return m.state[NUM_SCHEDULED]


def go_on(m: Memory, which: int) -> int:
    """What `schedule` does from where it asked."""
    state = m.state
    asked = admit_waiting(m, which, state[KEPT_THRESHOLD], state[KEPT_BUDGET], state[KEPT_SKIPPED])
    if asked >= 0:
        return -1 - asked
    advance_computed(m, which)
    return m.state[NUM_SCHEDULED]


def prefill_cap(m: Memory) -> int:
    """Most tokens that one request may get in this step; 0 for no such limit."""
    threshold = m.state[LONG_PREFILL_TOKEN_THRESHOLD]
    eligible = m.state[NUM_RUNNING] + m.state[NUM_WAITING]
    if m.state[IS_LONG_PREFILL_ALONE_UNCAPPED] == 1 and eligible <= 1:
        return 0
    if threshold > 0 and m.state[IS_LONG_PREFILL_ADAPTIVE] == 1:
        return max(threshold, m.state[MAX_NUM_BATCHED_TOKENS] // eligible)
    return threshold


def num_known_tokens(m: Memory, r: int) -> int:
    """Prompt and output so far."""
    return m.requests[r, PROMPT_TOKENS] + m.requests[r, NUM_OUTPUT]


def schedule_running(m: Memory, which: int, threshold: int, budget: int) -> int:
    """Hand out tokens to running requests, in order; what is left of the budget."""
    i = 0
    while i < m.state[NUM_RUNNING] and budget > 0:
        r = m.lists[RUNNING_LIST, i]
        n = num_tokens_for_running(m, r, threshold, budget)
        if n <= 0:
            i += 1
            continue
        while not allocate_running(m, r, n):
            at = victim_of(m)
            victim = m.lists[RUNNING_LIST, at]
            remove_running(m, at)
            given_back = take_back(m, which, victim)
            budget += given_back
            if at < i and (given_back > 0 or m.state[IS_ANY_VICTIM_COUNTED] == 1):
                i -= 1
            preempt(m, victim)
            if victim == r:
                break
        if m.requests[r, STATUS] != RUNNING:
            if m.state[IS_PRIORITY] == 1 and m.state[IS_SELF_PREEMPTION_PASSED] == 1:
                # Those behind it are more urgent, and may fit into what it gave up.
                continue
            break
        add_entry(m, which, r, KIND_RUN, m.requests[r, NUM_COMPUTED], n, 0)
        budget -= n
        i += 1
    return budget


def num_tokens_for_running(m: Memory, r: int, threshold: int, budget: int) -> int:
    """Tokens that a running request is to compute now; 0 if it has none, or waits for its last one."""
    computed = m.requests[r, NUM_COMPUTED]
    placeholders = m.requests[r, NUM_PLACEHOLDERS]
    whole = m.requests[r, PROMPT_TOKENS] + m.requests[r, OUTPUT_TOKENS]
    if placeholders > 0 and m.state[IS_ASYNC_GUARDED] == 1 and computed + 2 - placeholders >= whole:
        return 0
    n = num_known_tokens(m, r) + placeholders - computed
    if 0 < threshold < n:
        n = threshold
    return min(n, budget, m.state[MAX_MODEL_LEN] - 1 - computed)


def allocate_running(m: Memory, r: int, n: int) -> bool:
    """Blocks for `n` more tokens of a running request, and their content registered; False: too few free."""
    upto = m.requests[r, NUM_COMPUTED] + n
    size = m.state[BLOCK_SIZE]
    room = m.requests[r, NUM_HELD] * size
    # Most tokens need no block, and a division takes longer than all else here.
    if upto > room:
        missing = (min(upto, m.state[MAX_MODEL_LEN]) - room + size - 1) // size
        if missing > m.state[NUM_FREE]:
            return False
        take_blocks(m, r, missing)
    register_blocks(m, r, min(upto, num_known_tokens(m, r)))
    return True


def victim_of(m: Memory) -> int:
    """Place in the running list of the request to preempt: the last; by priority, the least urgent."""
    if m.state[IS_PRIORITY] == 0:
        return m.state[NUM_RUNNING] - 1
    at = 0
    for i in range(1, m.state[NUM_RUNNING]):
        if is_less_urgent(m, m.lists[RUNNING_LIST, i], m.lists[RUNNING_LIST, at]):
            at = i
    return at


def is_less_urgent(m: Memory, a: int, b: int) -> bool:
    """Whether request `a` has a larger (priority, arrival) than `b`; equal ones are not."""
    if m.requests[a, PRIORITY] != m.requests[b, PRIORITY]:
        return m.requests[a, PRIORITY] > m.requests[b, PRIORITY]
    return m.requests[a, ARRIVAL_NS] > m.requests[b, ARRIVAL_NS]


def remove_running(m: Memory, at: int) -> None:
    """Take the request at a place out of the running list."""
    last = m.state[NUM_RUNNING] - 1
    for i in range(at, last):
        m.lists[RUNNING_LIST, i] = m.lists[RUNNING_LIST, i + 1]
    m.state[NUM_RUNNING] = last


def take_back(m: Memory, which: int, r: int) -> int:
    """Remove a request's entry from the step; its tokens go back to the budget."""
    count = m.state[NUM_SCHEDULED]
    for i in range(count):
        if m.batches[which, i, REQUEST] == r:
            tokens = m.batches[which, i, TOKENS]
            for k in range(i, count - 1):
                for field in range(m.batches.shape[2]):
                    m.batches[which, k, field] = m.batches[which, k + 1, field]
            m.state[NUM_SCHEDULED] = count - 1
            return tokens
    return 0


def preempt(m: Memory, r: int) -> None:
    """A request loses its blocks and starts over; outputs still under way are stale."""
    release_blocks(m, r)
    give_back_slot(m, r)
    m.requests[r, NUM_COMPUTED] = 0
    m.requests[r, NUM_PLACEHOLDERS] = 0
    m.requests[r, NUM_STALE] = m.requests[r, NUM_IN_FLIGHT]
    m.requests[r, NUM_PREEMPTIONS] += 1
    m.lists[PREEMPTED_LIST, m.state[NUM_PREEMPTED]] = r
    m.state[NUM_PREEMPTED] += 1
    prepend_waiting(m, r)


def give_back_slot(m: Memory, r: int) -> None:
    """A request needs no row of the block table any more."""
    m.lists[SLOT_LIST, m.state[NUM_SLOTS_FREE]] = m.requests[r, SLOT]
    m.state[NUM_SLOTS_FREE] += 1
    m.requests[r, SLOT] = -1


def admit_waiting(m: Memory, which: int, threshold: int, budget: int, num_skipped: int) -> int:
    """Admit waiting requests in order, until one does not fit: -1, or a request of which to ask."""
    while (
        budget > 0
        and m.state[NUM_WAITING] > 0
        and m.state[NUM_RUNNING] < m.state[MAX_NUM_ACTIVE_SEQS]
    ):
        r = m.waiting[0]
        if m.requests[r, NUM_STALE] > 0:
            # Its last output is still under way: others may pass it.
            num_skipped = skip_waiting(m, num_skipped)
            continue
        slot = m.lists[SLOT_LIST, m.state[NUM_SLOTS_FREE] - 1]
        num_hits = find_hits(m, r, slot, num_known_tokens(m, r))
        cached = num_hits * m.state[BLOCK_SIZE]
        computed = cached
        if m.state[IS_ASKING] == 1:
            if m.requests[r, EXTERNAL] == NOT_ASKED:
                m.state[KEPT_THRESHOLD] = threshold
                m.state[KEPT_BUDGET] = budget
                m.state[KEPT_SKIPPED] = num_skipped
                m.state[ASKED_CACHED] = cached
                return r
            # KV that comes from elsewhere needs blocks and nothing of the budget. The last token is computed.
            computed = max(cached, min(m.requests[r, EXTERNAL], num_known_tokens(m, r) - 1))
            m.requests[r, EXTERNAL] = NOT_ASKED
        n = num_known_tokens(m, r) - computed
        if 0 < threshold < n:
            n = threshold
        if m.state[IS_CHUNKED_PREFILL] == 0 and n > budget:
            if m.state[IS_UNCHUNKED_SKIPPED] == 1 and num_skipped < m.lists.shape[1]:
                num_skipped = skip_waiting(m, num_skipped)
                continue
            break
        n = min(n, budget)
        if not allocate_admitted(m, r, slot, num_hits, computed + n):
            break
        remove_waiting(m, 0)
        kind = KIND_NEW if m.requests[r, NUM_PREEMPTIONS] == 0 else KIND_RESUMED
        m.requests[r, STATUS] = RUNNING
        m.requests[r, NUM_COMPUTED] = computed
        m.lists[RUNNING_LIST, m.state[NUM_RUNNING]] = r
        m.state[NUM_RUNNING] += 1
        add_entry(m, which, r, kind, computed, n, cached)
        budget -= n
    for i in range(num_skipped):
        push_waiting(m, m.lists[SKIPPED_LIST, i])
    return -1


def skip_waiting(m: Memory, num_skipped: int) -> int:
    """Set the first waiting request aside for this step."""
    m.lists[SKIPPED_LIST, num_skipped] = m.waiting[0]
    remove_waiting(m, 0)
    return num_skipped + 1


def allocate_admitted(m: Memory, r: int, slot: int, num_hits: int, upto: int) -> bool:
    """Blocks for a request that is admitted, `upto` tokens, those hit among them; False: too few free."""
    size = m.state[BLOCK_SIZE]
    reserve = num_unreferenced(m, slot, num_hits)
    if m.state[NUM_RUNNING] > 0:
        reserve += m.state[WATERMARK_BLOCKS]
    known = num_known_tokens(m, r)
    if m.state[IS_FULL_ISL_RESERVED] == 1:
        whole = (min(known, m.state[MAX_MODEL_LEN]) + size - 1) // size - num_hits
        if whole + reserve > m.state[NUM_FREE]:
            return False
    missing = (min(upto, m.state[MAX_MODEL_LEN]) + size - 1) // size - num_hits
    if missing + reserve > m.state[NUM_FREE]:
        return False
    m.state[NUM_SLOTS_FREE] -= 1
    m.requests[r, SLOT] = slot
    touch_hits(m, r, num_hits)
    take_blocks(m, r, missing)
    register_blocks(m, r, min(upto, known))
    return True


def add_entry(m: Memory, which: int, r: int, kind: int, computed: int, n: int, cached: int) -> None:
    """Put a request into the step."""
    i = m.state[NUM_SCHEDULED]
    m.batches[which, i, REQUEST] = r
    m.batches[which, i, KIND] = kind
    m.batches[which, i, COMPUTED_BEFORE] = computed
    m.batches[which, i, TOKENS] = n
    m.batches[which, i, CACHED] = cached
    m.state[NUM_SCHEDULED] = i + 1


def advance_computed(m: Memory, which: int) -> None:
    """Count the step's tokens as computed already, so that the next step may be decided before it ends."""
    for i in range(m.state[NUM_SCHEDULED]):
        r = m.batches[which, i, REQUEST]
        n = m.batches[which, i, TOKENS]
        m.requests[r, NUM_COMPUTED] += n
        m.requests[r, NUM_IN_FLIGHT] += n
        if m.state[IS_ASYNC] == 1:
            known = num_known_tokens(m, r) + m.requests[r, NUM_PLACEHOLDERS]
            if m.requests[r, NUM_COMPUTED] >= known:
                m.requests[r, NUM_PLACEHOLDERS] += 1
