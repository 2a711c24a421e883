"""Programs without a device: what named items, functions, samplers and other threads cost the main thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from explain.explaining import report_of
from ingest.traces import Trace
from tokenpath.core.finding import Finding, Kind

NUM_STEPS = 12


class Program:
    """Steps of operators under a frame of their own, as a profiler without a device records them."""

    def __init__(self) -> None:
        self.trace = Trace(device_name=None)
        self.now = 0.0

    def frame(self, name: str, length_us: float, tid: int = 100) -> None:
        self.trace.complete("python_function", name, self.now, length_us, 100, tid, {})

    def op(self, name: str, length_us: float) -> None:
        self.trace.complete("cpu_op", name, self.now, length_us, 100, 100, {})
        self.now += length_us + 5

    def detour(self, *names: str, length_us: float) -> None:
        """Frames around each other, without an operator."""
        for depth, name in enumerate(names):
            self.frame(name, length_us - depth)
            self.now += 0.1
        self.now += length_us

    def steps(
        self, detour: tuple[str, ...] = (), length_us: float = 0, stretch_us: float = 0
    ) -> None:
        for number in range(NUM_STEPS):
            begin = self.now
            if detour:
                self.detour(*detour, length_us=length_us)
            for at in range(20):
                self.op("aten::addmm", 200 + (stretch_us if at == number else 0))
                self.op("aten::gelu", 100)
            length = self.now - begin
            self.trace.complete(
                "user_annotation", f"ProfilerStep#{number}", begin, length, 100, 100, {}
            )
            self.trace.complete("python_function", "train.py(7): step", begin, length, 100, 100, {})

    def findings(self, folder: Path) -> list[Finding]:
        return [f for f in report_of(self.trace, folder).findings if f.kind is Kind.COST]


def test_a_healthy_program_has_nothing_to_fix(tmp_path: Path) -> None:
    program = Program()
    program.steps()
    assert program.findings(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "detour"),
    [
        ("gc-pause", ("Python GC",)),
        ("data-starved", ("torch/utils/data/dataloader.py(720): __next__", "set.py(3): read")),
        ("recompilation", ("torch/_dynamo/convert_frame.py(700): _compile",)),
        ("slow-host-code", ("a/b/plan.py(31): plan", "<built-in function sleep>")),
        ("slow-host-code", ("a/b/wrap.py(1): wrap", "a/b/plan.py(31): plan")),
    ],
)
def test_a_detour_in_each_step(code: str, detour: tuple[str, ...], tmp_path: Path) -> None:
    program = Program()
    program.steps(detour, 2_000)
    (finding,) = program.findings(tmp_path)
    assert finding.code == code
    assert finding.gain_ns == pytest.approx(NUM_STEPS * 2_000_000, rel=0.1)
    if code == "slow-host-code":
        assert finding.place["function"] == "plan.py(31): plan"


def test_tokens_chosen_in_python(tmp_path: Path) -> None:
    program = Program()
    for _ in range(NUM_STEPS):
        program.frame("x/next.py(5): pick", 4_000)
        program.detour("<built-in method tolist of Tensor object at 0x7f>", length_us=900)
        program.detour("<built-in function sorted>", length_us=3_000)
        program.now += 200
        program.steps()
    (finding,) = program.findings(tmp_path)
    assert finding.code == "cpu-sampling"
    assert finding.place["function"] == "next.py(5): pick"


@pytest.mark.parametrize("has_other", [True, False])
def test_another_thread_in_python(has_other: bool, tmp_path: Path) -> None:
    program = Program()
    if has_other:
        program.frame("threads.py(3): crunch", 200_000, tid=200)
    program.steps(stretch_us=5_000)
    found = program.findings(tmp_path)
    assert [f.code for f in found] == (["gil-contention"] if has_other else [])
    if has_other:
        assert found[0].place["thread"] == "100/200"


def test_the_answer_leads_with_the_first_finding(tmp_path: Path) -> None:
    program = Program()
    program.steps(("a/b/plan.py(31): plan",), 2_000)
    answer = report_of(program.trace, tmp_path).answer
    assert answer[0].startswith("First: plan.py(31): plan took 2")
    assert answer[1].startswith("No device work")


def test_first_steps_that_compile_are_warm_up(tmp_path: Path) -> None:
    program = Program()
    frame = "torch/_dynamo/convert_frame.py(700): _compile"
    program.trace.complete("user_annotation", "ProfilerStep#99", 0, 20_000, 100, 100, {})
    program.frame(frame, 19_000)
    program.now = 20_000
    program.steps()
    (finding,) = program.findings(tmp_path)
    assert finding.code == "warm-up-included"
