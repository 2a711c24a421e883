"""Host threads and device streams of all ranks, in one order of time.

Every turn takes the earliest of: a thread's next instruction, a stream's next start or end. At equal times
devices go before hosts and lower numbers first, so a run is a function of its arrays. Valid as plain Python
and as numba code; times are integer nanoseconds, factors are floats.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.compiled import compiled

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

NEVER = 1 << 62
QUEUE_SLOTS = 1024
"""Launches that may wait on a device; CUDA's software queue holds about as many."""

# Instructions: columns of `code` are operation, two arguments and a length in ns.
SPEND, BEGIN, END, LAUNCH, LAUNCH_BLOCKING = 0, 1, 2, 3, 4
SYNC_EVENT, SYNC_STREAM, SYNC_DEVICE = 5, 6, 7
ACQUIRE, RELEASE, SIGNAL, WAIT_SIGNAL, SLEEP_UNTIL = 8, 9, 10, 11, 12

# Work: columns of `works` are stream, kind, length, latency from the call, gap after the work before it,
# an argument (event or collective) and whether it takes a slot of the launch queue.
KERNEL, COLLECTIVE, COPY, RECORD, WAIT = 0, 1, 2, 3, 4


@compiled
def run_loop(
    code: I64,
    of_thread: I64,
    off_cpu: I64,
    works: I64,
    of_stream: I64,
    queue: I64,
    collectives: I64,
    members: I64,
    speed_at: I64,
    speed: F64,
    taken: I64,
    ranks: I64,
    slow: F64,
    event_at: I64,
    signal_at: I64,
    threads: I64,
    streams: I64,
    rates: F64,
    marks: I64,
    call_times: I64,
    work_times: I64,
) -> int:
    """See `run.py` for the arrays; 0 when every thread ended, else 1 + the thread that is stuck."""
    num_threads = threads.shape[0]
    num_streams = streams.shape[0]
    now = 0
    num_alive = 0
    for th in range(num_threads):
        num_alive += 1 - threads[th, 10]
    num_dirty = num_streams
    for s in range(num_streams):
        marks[s, 0] = s
        marks[s, 1] = 1
    while True:
        # -- streams whose head changed: when will it start?
        while num_dirty > 0:
            num_dirty -= 1
            s = marks[num_dirty, 0]
            marks[s, 1] = 0
            if streams[s, 0] == 1:
                continue
            streams[s, 1] = NEVER
            if streams[s, 2] == streams[s, 3]:
                continue
            w = queue[of_stream[s, 0] + streams[s, 2]]
            kind = works[w, 1]
            begin = max(work_times[w, 0], streams[s, 4])
            if kind == WAIT:
                if event_at[works[w, 5]] < 0:
                    continue
                begin = max(begin, event_at[works[w, 5]])
            elif kind != RECORD:
                begin = max(work_times[w, 0], streams[s, 4] + works[w, 4])
                r = of_stream[s, 1]
                k = ranks[r, 5]
                while k < ranks[r, 6] and taken[k, 1] <= now:
                    k += 1
                ranks[r, 5] = k
                while k < ranks[r, 6] and taken[k, 0] <= begin:
                    if begin < taken[k, 1] and kind != COPY:
                        begin = taken[k, 1]
                    k += 1
            streams[s, 1] = max(begin, now)
        # -- what is next?
        best = NEVER
        which = -1
        for s in range(num_streams):
            if streams[s, 1] < best:
                best = streams[s, 1]
                which = s
        is_thread = False
        for th in range(num_threads):
            if threads[th, 0] < best:
                best = threads[th, 0]
                which = th
                is_thread = True
        if which < 0:
            break
        now = best
        if not is_thread:
            s = which
            r = of_stream[s, 1]
            w = queue[of_stream[s, 0] + streams[s, 2]]
            kind = works[w, 1]
            toggled = 0
            finished = True
            if streams[s, 0] == 1:
                # -- work ends
                work_times[w, 2] = now
                streams[s, 0] = 0
                streams[s, 4] = now
                if kind == KERNEL:
                    ranks[r, 1] -= 1
                    toggled = 1 if ranks[r, 1] == 0 else 0
                elif kind == COLLECTIVE:
                    ranks[r, 2] -= 1
                    toggled = 1 if ranks[r, 2] == 0 else 0
            elif kind == RECORD:
                work_times[w, 1] = now
                work_times[w, 2] = now
                event_at[works[w, 5]] = now
                for other in range(num_streams):
                    if (
                        streams[other, 1] == NEVER
                        and streams[other, 0] == 0
                        and marks[other, 1] == 0
                    ):
                        marks[num_dirty, 0] = other
                        marks[other, 1] = 1
                        num_dirty += 1
            elif kind == WAIT:
                work_times[w, 1] = now
                work_times[w, 2] = now
                streams[s, 4] = max(streams[s, 4], now)
            else:
                # -- work starts
                finished = False
                work_times[w, 1] = now
                streams[s, 0] = 1
                if works[w, 6] == 1:
                    ranks[r, 0] -= 1
                    for th in range(num_threads):
                        if threads[th, 2] == LAUNCH and threads[th, 3] == r:
                            threads[th, 2] = -1
                            threads[th, 0] = now
                            break
                length = float(works[w, 2])
                if kind == KERNEL:
                    k = ranks[r, 3]
                    while k + 1 < ranks[r, 4] and speed_at[k + 1] <= now:
                        k += 1
                    ranks[r, 3] = k
                    length *= speed[k]
                    ranks[r, 1] += 1
                    toggled = 1 if ranks[r, 1] == 1 else 0
                    rates[s, 0] = length
                    rates[s, 1] = slow[r, 0] if ranks[r, 2] > 0 else 1.0
                    streams[s, 5] = now
                    streams[s, 1] = now + int(length * rates[s, 1])
                elif kind == COPY:
                    streams[s, 1] = now + int(length)
                else:
                    c = works[w, 5]
                    members[collectives[c, 1] + collectives[c, 2]] = s
                    collectives[c, 2] += 1
                    ranks[r, 2] += 1
                    toggled = 1 if ranks[r, 2] == 1 else 0
                    streams[s, 1] = NEVER
                    if collectives[c, 2] == collectives[c, 0]:
                        # All arrived: the bytes move, at the pace of the slowest rank.
                        pace = 1.0
                        for m in range(collectives[c, 1], collectives[c, 1] + collectives[c, 0]):
                            of = of_stream[members[m], 1]
                            if ranks[of, 1] > 0:
                                pace = max(pace, slow[of, 1])
                        for m in range(collectives[c, 1], collectives[c, 1] + collectives[c, 0]):
                            other = members[m]
                            own = works[queue[of_stream[other, 0] + streams[other, 2]], 2]
                            rates[other, 0] = float(collectives[c, 3])
                            rates[other, 1] = pace
                            streams[other, 5] = now
                            streams[other, 1] = now + int(collectives[c, 3] * pace) + own
            if finished:
                streams[s, 2] += 1
                if marks[s, 1] == 0:
                    marks[num_dirty, 0] = s
                    marks[s, 1] = 1
                    num_dirty += 1
                for th in range(num_threads):
                    waits = threads[th, 2]
                    if waits < 0 or threads[th, 4] != r:
                        continue
                    done = False
                    if waits == SYNC_EVENT:
                        done = event_at[threads[th, 3]] >= 0
                    elif waits in (SYNC_STREAM, LAUNCH_BLOCKING):
                        done = streams[threads[th, 3], 2] >= threads[th, 5]
                    elif waits == SYNC_DEVICE:
                        done = True
                        for other in range(num_streams):
                            if of_stream[other, 1] == r and streams[other, 2] < streams[other, 3]:
                                done = False
                    if done:
                        threads[th, 2] = -1
                        threads[th, 0] = now
            if toggled == 1 and (slow[r, 0] != 1.0 or slow[r, 1] != 1.0):
                # -- compute and communication of this rank slow each other down
                for other in range(num_streams):
                    if of_stream[other, 1] != r or streams[other, 0] == 0 or other == s:
                        continue
                    held = queue[of_stream[other, 0] + streams[other, 2]]
                    if works[held, 1] == KERNEL and kind == COLLECTIVE:
                        pace = slow[r, 0] if ranks[r, 2] > 0 else 1.0
                        rates[other, 0] -= (now - streams[other, 5]) / rates[other, 1]
                        rates[other, 1] = pace
                        streams[other, 5] = now
                        streams[other, 1] = now + max(0, int(rates[other, 0] * pace))
                    elif works[held, 1] == COLLECTIVE and kind == KERNEL:
                        c = works[held, 5]
                        if streams[other, 1] == NEVER:
                            continue
                        pace = 1.0
                        for m in range(collectives[c, 1], collectives[c, 1] + collectives[c, 0]):
                            of = of_stream[members[m], 1]
                            if ranks[of, 1] > 0:
                                pace = max(pace, slow[of, 1])
                        for m in range(collectives[c, 1], collectives[c, 1] + collectives[c, 0]):
                            member = members[m]
                            mine = queue[of_stream[member, 0] + streams[member, 2]]
                            if streams[member, 0] == 0 or works[mine, 5] != c:
                                continue
                            if works[mine, 1] != COLLECTIVE or rates[member, 0] <= 0.0:
                                continue
                            rates[member, 0] -= (now - streams[member, 5]) / rates[member, 1]
                            rates[member, 1] = pace
                            streams[member, 5] = now
                            ending = int(max(0.0, rates[member, 0]) * pace)
                            streams[member, 1] = now + ending + works[mine, 2]
            continue
        # -- a thread's next instruction
        th = which
        pc = threads[th, 1]
        r = threads[th, 4]
        if pc >= of_thread[th, 1]:
            threads[th, 0] = NEVER
            num_alive -= 1 - threads[th, 10]
            if num_alive == 0:
                # Daemon threads end with the process.
                for other in range(num_threads):
                    threads[other, 0] = NEVER
                    threads[other, 2] = -1
            if ranks[r, 7] == th:
                # Who ends gives the lock to one that waits.
                ranks[r, 7] = -1
                for other in range(num_threads):
                    if threads[other, 2] == ACQUIRE and threads[other, 4] == r:
                        ranks[r, 7] = other
                        threads[other, 2] = -1
                        threads[other, 0] = now
                        break
            continue
        what = code[pc, 0]
        first = code[pc, 1]
        if threads[th, 6] == 0:
            call_times[pc, 0] = now
            threads[th, 6] = 1
        blocked = False
        if what in (LAUNCH, LAUNCH_BLOCKING):
            if threads[th, 7] == 1:
                threads[th, 7] = 0  # the copy is done
            elif ranks[r, 0] >= QUEUE_SLOTS:
                threads[th, 2] = LAUNCH
                threads[th, 3] = r
                blocked = True
            else:
                for w in range(first, first + code[pc, 2]):
                    s = works[w, 0]
                    work_times[w, 0] = now + works[w, 3]
                    queue[of_stream[s, 0] + streams[s, 3]] = w
                    streams[s, 3] += 1
                    if works[w, 6] == 1:
                        ranks[r, 0] += 1
                    if marks[s, 1] == 0 and streams[s, 0] == 0:
                        marks[num_dirty, 0] = s
                        marks[s, 1] = 1
                        num_dirty += 1
                if what == LAUNCH_BLOCKING:
                    s = works[first, 0]
                    threads[th, 2] = LAUNCH_BLOCKING
                    threads[th, 3] = s
                    threads[th, 5] = streams[s, 3]
                    threads[th, 7] = 1
                    blocked = True
        elif what == SYNC_EVENT:
            if event_at[first] < 0:
                threads[th, 2] = SYNC_EVENT
                threads[th, 3] = first
                blocked = True
        elif what == SYNC_STREAM:
            if streams[first, 2] < streams[first, 3]:
                threads[th, 2] = SYNC_STREAM
                threads[th, 3] = first
                threads[th, 5] = streams[first, 3]
                blocked = True
        elif what == SYNC_DEVICE:
            for s in range(num_streams):
                if of_stream[s, 1] == r and streams[s, 2] < streams[s, 3]:
                    blocked = True
            if blocked:
                threads[th, 2] = SYNC_DEVICE
        elif what == ACQUIRE:
            if ranks[r, 7] >= 0 and ranks[r, 7] != th:
                threads[th, 2] = ACQUIRE
                blocked = True
            else:
                ranks[r, 7] = th
        elif what == RELEASE:
            ranks[r, 7] = -1
            for step in range(1, num_threads):
                other = (th + step) % num_threads
                if threads[other, 2] == ACQUIRE and threads[other, 4] == r:
                    ranks[r, 7] = other
                    threads[other, 2] = -1
                    threads[other, 0] = now
                    break
        elif what == SIGNAL:
            signal_at[first] = now
            for other in range(num_threads):
                if threads[other, 2] == WAIT_SIGNAL and threads[other, 3] == first:
                    threads[other, 2] = -1
                    threads[other, 0] = now
        elif what == WAIT_SIGNAL and signal_at[first] < 0:
            threads[th, 2] = WAIT_SIGNAL
            threads[th, 3] = first
            blocked = True
        if blocked:
            threads[th, 0] = NEVER
            continue
        after = now + code[pc, 3]
        if what == SLEEP_UNTIL:
            after = max(now, code[pc, 3])
        k = threads[th, 8]
        while k < threads[th, 9] and off_cpu[k, 0] < after:
            # A thread that wakes while its core is taken waits for the rest.
            after += max(0, off_cpu[k, 0] + off_cpu[k, 1] - max(now, off_cpu[k, 0]))
            k += 1
        threads[th, 8] = k
        call_times[pc, 1] = after
        threads[th, 6] = 0
        threads[th, 1] = pc + 1
        threads[th, 0] = after
    for th in range(num_threads):
        if threads[th, 1] < of_thread[th, 1] and threads[th, 10] == 0:
            return 1 + th
    return 0
