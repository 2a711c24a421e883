"""Small random traces, and damage done to their bytes."""

from __future__ import annotations

import random
import sys
from decimal import Decimal
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ingest.traces import Raw, Trace

_STYLES = ("kineto", "kineto", "compact", "pretty", "array")
_NAMES = ("gemm", "ncclDevKernel_AllReduce", "void at::native::x<4>", "é\t", "", "k" * 300, "a\\b")
_TOKENS = (
    b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\x00", b"\xff", b"null", b"NaN", b"-", b".", b"e9",
    b"1e999", b"9223372036854775808", b"-1", b"0", b"\\u12", b"\\ud800", b" ", b"\n", b'"ph": "B"',
    b'"ts": 0', b'"dur": -5', b'"pid": 1', b'"args": {}', b"true", b"[[[[[[", b"}}", b'"name"',
    b'{"ph": "X", "name": "new", "pid": 1, "tid": 1, "ts": 1, "dur": 1}', b'"External id": null,',
    b'"stream": "7"', b'"ph": "C"', b'"cat": "kernel"', b'"cat": "cuda_profiler_range"',
)  # fmt: skip


def random_trace(random_: random.Random) -> bytes:
    """A trace as some profiler might have left it, valid JSON."""
    base = random_.choice((None, None, 1_743_521_598_000_000_000, 7))
    rank = random_.choice((None, 0, 3))
    trace = Trace(base_time_ns=base, rank=rank, trace_id=random_.choice((None, "ID")))
    at = random_.choice((Decimal(0), Decimal("3676599926233.705"), Decimal("1712195495505582.987")))
    for number in range(random_.randrange(1, 25)):
        at += Decimal(random_.randrange(0, 20_000)) / 1000
        dur = Decimal(random_.randrange(0, 9000)) / 1000
        _add(trace, random_, number, at, dur)
    if random_.random() < 0.3:
        random_.shuffle(trace.events)
    return trace.bytes(random_.choice(_STYLES))


def _add(trace: Trace, random_: random.Random, number: int, at: Decimal, dur: Decimal) -> None:
    name = random_.choice(_NAMES)
    kind = random_.randrange(16)
    if kind < 5:
        op = random_.choice((None, "aten::mm"))
        more = {"stream": random_.choice((7, 7, 20)), "device": random_.choice((0, 0, 1))}
        more |= {"launch_dur_us": dur, "op": op}
        trace.launched(name, launch_us=at, start_us=at + 9, dur_us=dur, **more)
    elif kind == 5:
        trace.call("cudaGraphLaunch", at, dur, correlation=number)
        for node in range(random_.randrange(4)):
            trace.kernel(name, at + 5 + node, 1, correlation=number, **{"graph node id": node})
    elif kind == 6:
        trace.frame(name, at, dur, python_id=number, parent=random_.choice((None, number - 1)))
    elif kind == 7:
        trace.range(
            random_.choice(("ProfilerStep#1", "execute_context_1(4)_generation_2(2)")), at, dur
        )
    elif kind == 8:
        trace.sync("Stream Sync", at, dur, correlation=number)
    elif kind == 9:
        trace.memory(at, random_.randrange(-99, 99))
    elif kind == 10:
        trace.memcpy(at, dur, correlation=number).memset(at, dur)
    elif kind == 11:
        trace.flow("s", number, at, 100, 100).flow("f", number, at, 0, 7)
    elif kind == 12:
        trace.counter("queue", at, depth=number)
    elif kind == 13:
        for phase, time in (("B", at), ("E", at + dur)):
            trace.event(ph=phase, name=name, pid=1, tid="t", ts=time)
    elif kind == 14:
        dims = [[number, 3], [], "x"]
        trace.op(name, at, dur, dims=dims, types=["float"], **{"Sequence number": number})
    else:
        numbers = ("0.5", "31.030304", "0.030303031206130981", "1e400", "NaN", "null")
        trace.kernel(name, at, dur, **{"blocks per SM": Raw(random_.choice(numbers))})


def damage(data: bytes, random_: random.Random) -> bytes:
    """The bytes with up to three wounds."""
    wounded = bytearray(data)
    for _ in range(random_.choice((0, 1, 1, 1, 2, 3))):
        at = random_.randrange(len(wounded) + 1)
        wound = random_.randrange(8)
        if wound == 0:
            wounded[at : at + 1] = bytes([random_.randrange(256)])
        elif wound == 1:
            del wounded[at : at + random_.randrange(1, 40)]
        elif wound == 2:
            wounded[at:at] = random_.choice(_TOKENS)
        elif wound == 3:
            token = random_.choice(_TOKENS)
            wounded[at : at + len(token)] = token
        elif wound == 4 and random_.random() < 0.3:
            del wounded[at:]
        elif wound == 5:
            piece = wounded[at : at + random_.randrange(200)]
            other = random_.randrange(len(wounded) + 1)
            wounded[other:other] = piece
        elif wound == 6:
            digits = [i for i, byte in enumerate(wounded) if 48 <= byte <= 57]
            if digits:
                wounded[random_.choice(digits)] = 48 + random_.randrange(10)
        elif wound == 7:
            quote = wounded.find(random_.choice((b'"', b",", b":", b"}", b"]")), at)
            if quote >= 0:
                del wounded[quote]
    return bytes(wounded)
