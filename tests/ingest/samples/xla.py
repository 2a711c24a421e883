"""JAX/XLA profiles in both forms."""

from __future__ import annotations

from pathlib import Path

from ingest.samples import Sample
from ingest.xplanes import XPlane, environment, write_space, write_trace

START = 1_700_000_000_000_000_000
_DETAILS = "regs:32 static_shared:16 dynamic_shared:48 grid:4,2,1 block:128,1,1 occ_pct:50"
_GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"


def gpu() -> XPlane:
    plane = XPlane("/device:GPU:1", stats={"core_count": 132, "memory_size": 80 * 2**30})
    kernel = plane.event(
        _GEMM,
        2_000_999,
        1_500_001,
        correlation_id=7,
        group_id=3,
        kernel_details=_DETAILS,
        hlo_op="dot.1",
        hlo_module="jit_f",
    )
    copy = plane.event("MemcpyH2D", 0, 1000, memcpy_details="kind_src:host size:64 dest:0 async:1")
    plane.line("Stream #5(Compute)", copy, kernel, line_id=5, timestamp_ns=100)
    step = plane.event("3", 0, 4_000_000, group_id=3, step_name="3")
    aggregate = b"\x08\x01\x28\x05"
    return plane.line("Steps", step, line_id=9, timestamp_ns=100).line("odd", aggregate, line_id=10)


def host() -> XPlane:
    plane = XPlane("/host:CPU")
    call = plane.event("cuLaunchKernel", 1_000_000, 300_000, correlation_id=7)
    around = plane.event("PjitFunction(f)", 500_000, 2_000_000)
    frame = plane.event("$model.py:3 forward", 400_000, 2_500_000)
    taken = plane.event("MemoryAllocation", 1, 0, allocation_bytes=512, addr=4096)
    freed = plane.event("MemoryDeallocation", 600_000, 0, addr=4096)
    return plane.line("python", frame, around, call, taken, freed, line_id=77)


def space(folder: Path) -> Path:
    programs = XPlane("/host:metadata")
    programs.event("jit_f(1)", 0, 0)
    return write_space(
        folder / "host.xplane.pb", gpu(), host(), programs, environment(START), host="worker-1"
    )


def trace(folder: Path) -> Path:
    kernel = {
        "name": _GEMM,
        "ts": 2.100999,
        "dur": 1.500001,
        "args": {"correlation_id": "7", "kernel_details": _DETAILS, "hlo_op": "dot.1"},
    }
    call = {"name": "cuLaunchKernel", "ts": 1.1, "dur": 0.3, "args": {"correlation_id": "7"}}
    processes = {
        "/device:GPU:1": {
            "Stream #5(Compute)": [kernel],
            "Framework Ops": [{**kernel, "args": {}}],
        },
        "/host:CPU": {"python": [call]},
    }
    return write_trace(folder / "host.trace.json", processes)


def planted_space(folder: Path, secret: str) -> Path:
    device = XPlane("/device:TPU:0", stats={"device_type_string": secret})
    op = device.event(secret, 0, 5, display=secret, tf_op=secret, hlo_category=secret)
    device.line("XLA Ops", op).line(secret, device.event(secret + " ", 0, 5))
    own = XPlane("/host:CPU", stats={"note": secret})
    own.line(secret, own.event(secret, 0, 5, step_num=1), own.event("$" + secret, 0, 5))
    other = XPlane(secret)
    other.line("a", other.event("x", 0, 1))
    return write_space(folder / "t.xplane.pb", device, own, other, host=secret, errors=(secret,))


def planted_trace(folder: Path, secret: str) -> Path:
    event = {"name": secret, "ts": 1, "dur": 1, "args": {"tf_op": secret, "long_name": secret}}
    processes = {
        "/device:GPU:0": {"Stream #1": [event], secret: [event]},
        secret: {secret: [event]},
    }
    return write_trace(folder / "t.json", processes)


def many_space(folder: Path, num_events: int) -> Path:
    plane = XPlane("/device:GPU:0")
    events = [
        plane.event("k", number * 1000, 500, correlation_id=number, kernel_details=_DETAILS)
        for number in range(num_events)
    ]
    return write_space(folder / "t.xplane.pb", plane.line("Stream #1", *events))


def many_trace(folder: Path, num_events: int) -> Path:
    rows = [
        {"name": "k", "ts": number, "dur": 0.5, "args": {"correlation_id": str(number)}}
        for number in range(num_events)
    ]
    return write_trace(folder / "t.json", {"/device:GPU:0": {"Stream #1": rows}})


SAMPLES = [
    Sample(
        "xplane",
        "xplane",
        space,
        {
            ("kernel", "name", "stream_id", "start_ns", "end_ns", "kind", "family", "step_id"): [
                ("MemcpyH2D", 5, START + 100, START + 101, "memcpy", "memcpy", None),
                (_GEMM, 5, START + 2_100, START + 3_601, "compute", "gemm", 0),
            ],
            ("kernel", "bytes", "correlation_id", "registers_per_thread", "occupancy_percent"): [
                (64, None, None, None),
                (None, 7, 32, 50.0),
            ],
            ("kernel", "grid", "block", "shared_memory_bytes"): [
                (None, None, None),
                ([4, 2, 1], [128, 1, 1], 64),
            ],
            ("range", "name", "start_ns", "domain"): [("jit_f/dot.1", START + 2_100, "HLO")],
            ("step", "name", "number", "start_ns", "end_ns"): [
                ("3", 3, START + 100, START + 4_100)
            ],
            ("device", "index", "num_sms"): [(1, 132)],
            ("thread", "pid", "tid", "name"): [("/host:CPU", "77", "python")],
            ("api_call", "name", "start_ns", "end_ns", "correlation_id"): [
                ("cuLaunchKernel", START + 1_000, START + 1_300, 7)
            ],
            ("op", "name", "start_ns"): [("PjitFunction(f)", START + 500)],
            ("frame", "name", "start_ns"): [("model.py:3 forward", START + 400)],
            ("memory_event", "action", "bytes", "address", "at_ns"): [
                ("alloc", 512, 4096, START),
                ("free", -512, 4096, START + 600),
            ],
            ("source", "clock", "clock_offset_ns", "host"): [("epoch", START, "host-0")],
            ("setting", "name", "value"): [
                ("Task Environment.profile_start_time", str(START)),
                ("device:GPU:1.core_count", "132"),
                ("device:GPU:1.memory_size", str(80 * 2**30)),
            ],
        },
        {"cut below a nanosecond": 2, "aggregate without a time": 1, "HLO program": 1},
        planted_space,
        many_space,
    ),
    Sample(
        "xla-json",
        "xla-json",
        trace,
        {
            ("kernel", "name", "stream_id", "start_ns", "end_ns", "kind", "family"): [
                (_GEMM, 1, 2_100, 3_601, "compute", "gemm")
            ],
            ("range", "name", "domain"): [("dot.1", "HLO")],
            ("api_call", "name", "start_ns", "end_ns", "correlation_id"): [
                ("cuLaunchKernel", 1_100, 1_400, 7)
            ],
            ("source", "clock"): ["monotonic"],
        },
        {"metadata": 5, "repeats other timelines": 1, "cut below a nanosecond": 2},
        planted_trace,
        many_trace,
    ),
]
