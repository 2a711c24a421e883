"""Replicas that serve, as `simulate.cluster` and `simulate.replica` say: route, decide, complete."""

from __future__ import annotations

from tokenpath.engine.vllm.complete import complete
from tokenpath.engine.vllm.layout import (
    ARRIVAL_NS,
    CACHED,
    COMPUTED_BEFORE,
    EMITTED,
    FINISHED_LIST,
    IS_PREFILL,
    KIND,
    KIND_NEW,
    KIND_RESUMED,
    NUM_BLOCKS,
    NUM_FREE,
    NUM_OUTPUT,
    NUM_PREEMPTED,
    NUM_RUNNING,
    NUM_WAITING,
    PREEMPTED_LIST,
    PROMPT_TOKENS,
    REQUEST,
    TOKENS,
)
from tokenpath.engine.vllm.queue import append_waiting
from tokenpath.engine.vllm.schedule import schedule
from tokenpath.simulate.compiled.events import push_event
from tokenpath.simulate.compiled.layout import (
    NUM_STEP,
    REPLICA_DECIDED,
    REPLICA_FIRST_FLIGHT,
    REPLICA_FLIGHTS,
    REPLICA_IS_ASKED,
    REPLICA_IS_READY,
    REPLICA_OUTSTANDING,
    REPLICA_OUTSTANDING_TOKENS,
    REPLICA_PREEMPTED,
    ROUTE_LEAST_LOAD,
    ROW_CACHED,
    ROW_ENDPOINT,
    ROW_FINISHED,
    ROW_FIRST,
    ROW_IS_REJECTED,
    ROW_LAST,
    ROW_NOT_SEEN,
    ROW_PREFILL_UNTIL,
    ROW_QUEUED,
    ROW_SCHEDULED,
    RUN_CHOSEN,
    RUN_DEPTH,
    RUN_FINISHED,
    RUN_GAP_BIN,
    RUN_GAP_LAST,
    RUN_GAP_SUM,
    RUN_IS_OVERLAPPED,
    RUN_KEEPS_SHARES,
    RUN_ROUND_TRIP,
    RUN_ROUTER,
    RUN_SHARES,
    RUN_STAGES,
    RUN_STEP_BASE,
    RUN_STEPS,
    SHARE_COMPUTED,
    SHARE_EMITTED,
    SHARE_IS_PREFILL,
    SHARE_IS_RESUMED,
    SHARE_REQUEST,
    SHARE_STEP,
    SHARE_TOKENS,
    STEP_COUNT,
    STEP_DECIDED,
    STEP_END,
    STEP_ENDPOINT,
    STEP_FEATURES,
    STEP_PREEMPTED,
    STEP_QUEUED,
    STEP_RUNNING,
    STEP_START,
    STEP_USED,
    WORK_IS_REFUSED,
    Sim,
    memory_of,
)
from tokenpath.simulate.loop import COMPLETE, RELEASE, SCHEDULE
from tokenpath.simulate.step_cost import noise_place, noisy_ns, step_latency_ns


def choose_replica(s: Sim) -> int:
    """Round robin over those that are ready, or the one with the fewest requests that have not ended."""
    if s.run[RUN_ROUTER] == ROUTE_LEAST_LOAD:
        best = -1
        for k in range(len(s.replicas)):
            if s.replicas[k, REPLICA_IS_READY] == 1 and (
                best < 0
                or s.replicas[k, REPLICA_OUTSTANDING] < s.replicas[best, REPLICA_OUTSTANDING]
            ):
                best = k
        return best
    num_ready = 0
    for k in range(len(s.replicas)):
        num_ready += s.replicas[k, REPLICA_IS_READY]
    turn = s.run[RUN_CHOSEN] % num_ready
    s.run[RUN_CHOSEN] += 1
    for k in range(len(s.replicas)):
        if s.replicas[k, REPLICA_IS_READY] == 1:
            if turn == 0:
                return k
            turn -= 1
    return -1


def place_request(s: Sim, request: int, k: int, now_ns: int) -> None:
    """Queue a request at a replica; one that can never run is refused and ends at once."""
    s.replicas[k, REPLICA_OUTSTANDING] += 1
    s.replicas[k, REPLICA_OUTSTANDING_TOKENS] += s.requests[request, PROMPT_TOKENS]
    s.rows[request, ROW_ENDPOINT] = k
    s.rows[request, ROW_QUEUED] = now_ns
    if s.work[request, WORK_IS_REFUSED] == 1:
        s.rows[request, ROW_IS_REJECTED] = 1
        end_request(s, request, k, now_ns)
        return
    s.requests[request, ARRIVAL_NS] = now_ns
    append_waiting(memory_of(s, k), request)
    ask_replica(s, k, now_ns)


def end_request(s: Sim, request: int, k: int, now_ns: int) -> None:
    """A request has ended; its client learns that."""
    s.rows[request, ROW_FINISHED] = now_ns
    s.replicas[k, REPLICA_OUTSTANDING] -= 1
    s.replicas[k, REPLICA_OUTSTANDING_TOKENS] -= s.requests[request, PROMPT_TOKENS]
    s.run[RUN_FINISHED] += 1
    push_event(s, now_ns + s.run[RUN_ROUND_TRIP], RELEASE, request)


def ask_replica(s: Sim, k: int, now_ns: int) -> None:
    """Have a replica decide once all else of this moment has happened."""
    if s.replicas[k, REPLICA_IS_ASKED] == 0 and s.replicas[k, REPLICA_FLIGHTS] < s.run[RUN_DEPTH]:
        s.replicas[k, REPLICA_IS_ASKED] = 1
        push_event(s, now_ns, SCHEDULE, k)


def decide_steps(s: Sim, k: int, now_ns: int) -> None:
    """Decide steps while the replica takes any and has any to do."""
    s.replicas[k, REPLICA_IS_ASKED] = 0
    while s.replicas[k, REPLICA_FLIGHTS] < s.run[RUN_DEPTH] and decide_step(s, k, now_ns):
        pass


def decide_step(s: Sim, k: int, now_ns: int) -> bool:
    """Decide one step; False when there is nothing to do."""
    which = (s.replicas[k, REPLICA_FIRST_FLIGHT] + s.replicas[k, REPLICA_FLIGHTS]) % s.run[
        RUN_DEPTH
    ]
    m = memory_of(s, k)
    count = 0
    while count == 0:
        count = schedule(m, now_ns, which)
        num_preempted = m.state[NUM_PREEMPTED]
        for i in range(num_preempted):
            victim = m.lists[PREEMPTED_LIST, i]
            again = max(s.requests[victim, NUM_OUTPUT] - 1, 0)
            s.rows[victim, ROW_PREFILL_UNTIL] = s.requests[victim, PROMPT_TOKENS] + again
        s.replicas[k, REPLICA_PREEMPTED] += num_preempted
        # A decision that only took blocks away may let the next one admit somebody.
        if count == 0 and num_preempted == 0:
            return False
    flight = s.flights[k, which]
    sum_features(s, k, which, count)
    features = flight[STEP_FEATURES:NUM_STEP]
    latency_ns = step_latency_ns(
        s.knots,
        s.mixed_ns,
        s.decode_ns,
        s.device,
        s.host_ns[0],
        s.host,
        s.run[RUN_IS_OVERLAPPED] == 1,
        features,
    )
    num_factors = s.noise.shape[1]
    if num_factors > 0:
        place = noise_place(k, s.replicas[k, REPLICA_DECIDED], num_factors)
        latency_ns = noisy_ns(latency_ns, s.noise[1 if features[0] > 0 else 0, place])
    s.replicas[k, REPLICA_DECIDED] += 1
    flight[STEP_ENDPOINT] = k
    flight[STEP_COUNT] = count
    flight[STEP_DECIDED] = now_ns
    run_stages(s, k, which, now_ns, latency_ns)
    flight[STEP_RUNNING] = m.state[NUM_RUNNING]
    flight[STEP_QUEUED] = m.state[NUM_WAITING]
    flight[STEP_PREEMPTED] = s.replicas[k, REPLICA_PREEMPTED]
    flight[STEP_USED] = m.state[NUM_BLOCKS] - 1 - m.state[NUM_FREE]
    s.replicas[k, REPLICA_PREEMPTED] = 0
    s.replicas[k, REPLICA_FLIGHTS] += 1
    push_event(s, flight[STEP_END], COMPLETE, k)
    return True


def sum_features(s: Sim, k: int, which: int, count: int) -> None:
    """`FEATURES` of a step, from its entries."""
    num_prefills, tokens, context, pairs = 0, 0, 0, 0
    num_decodes, decode_tokens, decode_context = 0, 0, 0
    for i in range(count):
        c = s.batches[k, which, i, COMPUTED_BEFORE]
        n = s.batches[k, which, i, TOKENS]
        is_prefill = c < s.rows[s.batches[k, which, i, REQUEST], ROW_PREFILL_UNTIL]
        s.batches[k, which, i, IS_PREFILL] = 1 if is_prefill else 0
        if is_prefill:
            num_prefills += 1
            tokens += n
            context += c
            pairs += n * c + n * (n + 1) // 2
        else:
            num_decodes += 1
            decode_tokens += n
            decode_context += c + n
    flight = s.flights[k, which]
    flight[STEP_FEATURES] = num_prefills
    flight[STEP_FEATURES + 1] = tokens
    flight[STEP_FEATURES + 2] = context
    flight[STEP_FEATURES + 3] = pairs
    flight[STEP_FEATURES + 4] = num_decodes
    flight[STEP_FEATURES + 5] = decode_tokens
    flight[STEP_FEATURES + 6] = decode_context


def run_stages(s: Sim, k: int, which: int, now_ns: int, latency_ns: int) -> None:
    """Start and end of a step: each pipeline stage takes it when it is rid of the one before."""
    num_stages = s.run[RUN_STAGES]
    share = latency_ns // num_stages
    rest = latency_ns - share * num_stages
    at_ns = max(now_ns, s.stage_free[k, 0])
    s.flights[k, which, STEP_START] = at_ns
    for stage in range(num_stages):
        # No stage takes no time: then ends of steps would no longer tell their order.
        length = max(1, share + (1 if stage < rest else 0))
        at_ns = max(at_ns, s.stage_free[k, stage]) + length
        s.stage_free[k, stage] = at_ns
    s.flights[k, which, STEP_END] = at_ns


def complete_step(s: Sim, k: int, now_ns: int) -> None:
    """The oldest step in flight has run: its row, its requests' rows, and those that ended."""
    which = s.replicas[k, REPLICA_FIRST_FLIGHT]
    s.replicas[k, REPLICA_FIRST_FLIGHT] = (which + 1) % s.run[RUN_DEPTH]
    s.replicas[k, REPLICA_FLIGHTS] -= 1
    m = memory_of(s, k)
    flight = s.flights[k, which]
    count = flight[STEP_COUNT]
    num_finished = complete(m, now_ns, which, count)
    for i in range(count):
        request = m.batches[which, i, REQUEST]
        if m.batches[which, i, KIND] == KIND_NEW:
            s.rows[request, ROW_SCHEDULED] = flight[STEP_DECIDED]
            s.rows[request, ROW_CACHED] = m.batches[which, i, CACHED]
        if m.batches[which, i, EMITTED] > 0:
            if s.rows[request, ROW_FIRST] == ROW_NOT_SEEN:
                s.rows[request, ROW_FIRST] = now_ns
            elif s.gap_bins.shape[1] > 0:
                count_gap(s, now_ns - s.rows[request, ROW_LAST])
            s.rows[request, ROW_LAST] = now_ns
    if s.run[RUN_KEEPS_SHARES] == 1:
        write_shares(s, k, which, count)
    row = s.run[RUN_STEPS]
    s.run[RUN_STEPS] = row + 1
    for field in range(NUM_STEP):
        s.steps[row, field] = flight[field]
    for i in range(num_finished):
        end_request(s, m.lists[FINISHED_LIST, i], k, now_ns)
    ask_replica(s, k, now_ns)


def count_gap(s: Sim, gap_ns: int) -> None:
    """Count a gap between tokens; most requests of a step have the same."""
    if gap_ns != s.run[RUN_GAP_LAST]:
        low, high = 0, s.gap_bins.shape[1] - 1
        while low < high:
            middle = (low + high) // 2
            if gap_ns <= s.gap_bins[0, middle]:
                high = middle
            else:
                low = middle + 1
        s.run[RUN_GAP_LAST] = gap_ns
        s.run[RUN_GAP_BIN] = low
    s.gap_bins[1, s.run[RUN_GAP_BIN]] += 1
    s.run[RUN_GAP_SUM] += gap_ns


def write_shares(s: Sim, k: int, which: int, count: int) -> None:
    """A row for each request of the step."""
    row = s.run[RUN_SHARES]
    for i in range(count):
        entry = s.batches[k, which, i]
        share = s.shares[row + i]
        share[SHARE_STEP] = s.run[RUN_STEP_BASE] + s.run[RUN_STEPS]
        share[SHARE_REQUEST] = entry[REQUEST]
        share[SHARE_TOKENS] = entry[TOKENS]
        share[SHARE_COMPUTED] = entry[COMPUTED_BEFORE]
        share[SHARE_EMITTED] = entry[EMITTED]
        share[SHARE_IS_RESUMED] = 1 if entry[KIND] == KIND_RESUMED else 0
        share[SHARE_IS_PREFILL] = entry[IS_PREFILL]
    s.run[RUN_SHARES] = row + count
