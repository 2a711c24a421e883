"""Why the host was late: each cause by its company, with its place; plain launching stays launch-bound."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from explain.explaining import report_of
from ingest.traces import Trace
from tokenpath.core.finding import Finding, Kind
from tokenpath.core.report import Report

CODES = (
    *("gc-pause", "gil-contention", "slow-host-code", "cpu-sampling", "recompilation"),
    *("data-starved", "host-oversubscribed"),
)
STEP_US = 3_000
NAMES = ("aten::mm", "aten::add_", "aten::mul", "aten::silu", "aten::rms_norm", "aten::view")


class Loop:
    """Steps of an eager loop: a frame around operators with a launch each; the device keeps up at once."""

    def __init__(self, num_steps: int = 40) -> None:
        self.trace = Trace()
        self.now = 0.0
        self.num_steps = num_steps
        self.correlation = 0

    def launch(self, name: str, extra_us: float = 0.0, native_us: float = 0.0) -> None:
        """An operator with a launch; `extra_us` passes in it before the call, `native_us` in the call."""
        begin = self.now
        call = begin + 6 + extra_us
        self.correlation += 1
        self.trace.complete("cpu_op", name, begin, 16 + extra_us + native_us, 100, 100, {})
        self.trace.complete(
            "cuda_runtime", "cudaLaunchKernel", call, 5 + native_us, 100, 100,
            {"correlation": self.correlation},
        )  # fmt: skip
        self.trace.kernel(f"k_{name}", call + 4 + native_us, 8, correlation=self.correlation)
        self.now = begin + 20 + extra_us + native_us

    def step(
        self, extra_us: dict[int, float] | None = None, native_us: dict[int, float] | None = None
    ) -> None:
        """Thirty operators."""
        begin = self.now
        for number in range(30):
            name = NAMES[number % len(NAMES)]
            self.launch(name, (extra_us or {}).get(number, 0.0), (native_us or {}).get(number, 0.0))
        self.frame("model_runner.py(88): execute_model", begin, self.now)

    def frame(self, name: str, begin: float, end: float, tid: int = 100) -> None:
        """A Python frame."""
        self.trace.complete("python_function", name, begin, end - begin, 100, tid, {})

    def done(self) -> Trace:
        """With the loop around all."""
        self.frame("core.py(10): run_loop", -10, self.now + 10)
        return self.trace


def named(report: Report) -> list[Finding]:
    return [f for f in report.findings if f.code in CODES]


def total(report: Report, code: str) -> int:
    return sum(f.duration_ns or 0 for f in report.findings if f.code == code)


def test_plain_launching_stays_launch_bound(tmp_path: Path) -> None:
    loop = Loop()
    for _ in range(40):
        loop.step()
    report = report_of(loop.done(), tmp_path)
    assert not named(report)
    assert total(report, "launch-bound") > 0


def test_rare_pauses_of_one_length_are_the_collector(tmp_path: Path) -> None:
    loop = Loop()
    for number in range(40):
        loop.step({number % 29: 4_000.0} if number % 8 == 3 else None)
    report = report_of(loop.done(), tmp_path)
    (finding,) = named(report)
    assert finding.code == "gc-pause"
    assert finding.place["thread"] == "100/100"
    assert finding.duration_ns == pytest.approx(5 * 4_000_000, rel=0.05)
    assert finding.part_of_ns == {"launch-bound": finding.duration_ns}


def test_another_thread_that_runs_python_holds_the_lock(tmp_path: Path) -> None:
    loop = Loop()
    for number in range(40):
        if number % 8 == 3:
            loop.frame("tokenizer.py(3): encode", loop.now, loop.now + 4_200, tid=200)
        loop.step({2: 4_000.0} if number % 8 == 3 else None)
    (finding,) = named(report_of(loop.done(), tmp_path))
    assert finding.code == "gil-contention"
    assert finding.place["thread"] == "100/200"


def test_a_function_between_steps_is_named(tmp_path: Path) -> None:
    loop = Loop()
    for _ in range(40):
        loop.frame("/opt/x/scheduler.py(301): schedule", loop.now, loop.now + 1_500)
        loop.now += 1_500
        loop.step()
    (finding,) = named(report_of(loop.done(), tmp_path))
    assert finding.code == "slow-host-code"
    assert finding.place["function"] == "scheduler.py(301): schedule"
    assert finding.duration_ns == pytest.approx(39 * 1_500_000, rel=0.1)


def test_pauses_of_all_lengths_in_native_calls_too_are_the_system(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    loop = Loop()
    for _ in range(40):
        at, length = int(random.integers(30)), 400 + float(random.exponential(2_000))
        if random.random() < 0.4:
            loop.step(native_us={at: length})
        else:
            loop.step({at: length})
    (finding,) = named(report_of(loop.done(), tmp_path))
    assert finding.code == "host-oversubscribed"


def test_a_thread_that_only_stands_in_its_start_holds_no_lock(tmp_path: Path) -> None:
    loop = Loop()
    for number in range(40):
        loop.step({7: 2_000} if number % 8 == 3 else None)
    for depth, name in enumerate(("_bootstrap", "_bootstrap_inner", "run")):
        loop.frame(f"threading.py({1032 + depth}): {name}", depth, loop.now - depth, tid=101)
    assert "gil-contention" not in [f.code for f in named(report_of(loop.done(), tmp_path))]


def test_sampling_on_the_host(tmp_path: Path) -> None:
    loop = Loop()
    for _ in range(20):
        loop.step()
        for name in ("aten::softmax", "aten::sort", "aten::cumsum", "aten::multinomial"):
            loop.trace.complete("cpu_op", name, loop.now, 200, 100, 100, {})
            loop.now += 205
    (finding,) = named(report_of(loop.done(), tmp_path))
    assert finding.code == "cpu-sampling"
    assert finding.duration_ns == pytest.approx(19 * 820_000, rel=0.1)


def copied(loop: Loop, direction: str, copy_us: float) -> None:
    """A pageable copy that the call waits for."""
    loop.correlation += 1
    loop.trace.complete(
        "cuda_runtime", "cudaMemcpyAsync", loop.now, copy_us + 12, 100, 100,
        {"correlation": loop.correlation},
    )  # fmt: skip
    loop.trace.complete(
        "gpu_memcpy", f"Memcpy {direction}", loop.now + 8, copy_us, 0, 7,
        {"correlation": loop.correlation, "stream": 7, "device": 0},
    )  # fmt: skip
    loop.now += copy_us + 15


def test_pageable_copies_hold_the_host(tmp_path: Path) -> None:
    loop = Loop()
    for _ in range(20):
        copied(loop, "HtoD (Pageable -> Device)", 800)
        loop.step()
    (finding,) = (
        f
        for f in report_of(loop.done(), tmp_path).findings
        if f.place and f.code == "blocking-copy"
    )
    assert finding.duration_ns == pytest.approx(20 * 800_000, rel=0.1)
    assert finding.place["thread"] == "100/100"


def test_logits_on_their_way_are_part_of_sampling(tmp_path: Path) -> None:
    loop = Loop()
    for _ in range(20):
        loop.step()
        copied(loop, "DtoH (Device -> Pageable)", 500)
        for name in ("aten::softmax", "aten::multinomial"):
            loop.trace.complete("cpu_op", name, loop.now, 400, 100, 100, {})
            loop.now += 405
    report = report_of(loop.done(), tmp_path)
    (finding,) = named(report)
    assert finding.duration_ns == pytest.approx(19 * 1_310_000, rel=0.1)
    assert "exposed-copy" not in [f.code for f in report.findings]


@pytest.mark.parametrize(
    ("code", "frame"),
    [
        ("recompilation", "torch/_inductor/compile_fx.py(700): compile_fx_inner"),
        ("data-starved", "torch/utils/data/dataloader.py(630): __next__"),
        ("gc-pause", "<built-in function collect>"),
    ],
)
def test_what_is_named_by_the_program(code: str, frame: str, tmp_path: Path) -> None:
    loop = Loop()
    for number in range(40):
        if number % 10 == 5:
            loop.frame(frame, loop.now, loop.now + 9_000)
            loop.now += 9_000
        loop.step()
    report = report_of(loop.done(), tmp_path)
    (finding,) = named(report)
    assert finding.code == code
    assert finding.duration_ns == pytest.approx(4 * 9_000_000, rel=0.05)
    # What is explained more closely is no longer launch-bound as well.
    share = sum(
        f.share or 0
        for f in report.findings
        if f.kind is Kind.COST and f.code in (code, "launch-bound")
    )
    assert share <= 1


def test_workers_of_a_loader(tmp_path: Path) -> None:
    data = os.environ.get("TOKENPATH_REFERENCE_DATA")
    if data is None:
        pytest.skip("TOKENPATH_REFERENCE_DATA is not set")
    from tokenpath.api import explain

    folder = Path(data) / "traces" / "kineto"
    (without,) = (folder / "resnet50_num_workers_0").iterdir()
    (four,) = (folder / "resnet50_num_workers_4").iterdir()
    assert named(explain([without]).report)[0].code == "data-starved"
    assert "data-starved" not in [f.code for f in named(explain([four]).report)]
