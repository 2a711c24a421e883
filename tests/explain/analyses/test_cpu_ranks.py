"""Ranks on hosts alone: who arrives last, who has more to do, messages that are small or late."""

from __future__ import annotations

from pathlib import Path

from ingest.traces import Trace
from tokenpath.api import explain
from tokenpath.core.finding import Finding, Kind

NUM_STEPS = 10


def rank_trace(
    rank: int, late_us: float, rows: int, messages: int, overlap: bool, elements: int
) -> Trace:
    """Steps of a backward pass and collectives; every rank waits for the last one, which is 3 ms late at most."""
    trace, now = Trace(device_name=None, rank=rank, world_size=2, base_time_ns=0), 100.0
    for number in range(NUM_STEPS):
        begin = now
        now += late_us
        shapes = {"Input Dims": [[rows, 64], [64, 64]], "Input type": ["float", "float"]}
        name = "autograd::engine::evaluate_function: MmBackward0"
        trace.complete("cpu_op", name, now, 8_000, 100, 100, {})
        trace.complete("cpu_op", "aten::mm", now + 10, 7_900, 100, 100, shapes)
        first = now + (4_000 if overlap else 8_010)
        now = max(now + 8_010, begin + 11_010)
        for at in range(messages):
            start = first if at == 0 else now
            end = now + 300
            sizes = {"Input Dims": [[elements]], "Input type": ["float"]}
            trace.complete("cpu_op", "c10d::allreduce_", start, 20, 100, 100, sizes)
            trace.complete(
                "user_annotation", "gloo:all_reduce", start + 5, end - start - 5, 100, 300, {}
            )
            wait = "<built-in method wait of Work object at 0x7f>"
            trace.complete("python_function", wait, max(start + 21, now), 270, 100, 100, {})
            now = end + 10
        trace.complete(
            "user_annotation", f"ProfilerStep#{number}", begin, now - begin, 100, 100, {}
        )
    return trace


def findings(
    folder: Path, late: tuple[float, float] = (0, 0), rows: tuple[int, int] = (64, 64),
    messages: int = 1, overlap: bool = True, elements: int = 1 << 20,
) -> list[Finding]:  # fmt: skip
    """What is found in two ranks."""
    paths = [
        rank_trace(r, late[r], rows[r], messages, overlap, elements).write(folder / f"rank{r}.json")
        for r in (0, 1)
    ]
    return [f for f in explain(paths).report.findings if f.kind is Kind.COST]


def test_level_ranks_have_nothing_to_fix(tmp_path: Path) -> None:
    assert not findings(tmp_path, late=(3_000, 3_000))


def test_the_last_to_arrive_is_named(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, late=(0, 3_000))
    assert (finding.code, finding.place) == ("straggler", {"rank": "1"})
    assert finding.gain_ns == 2 * NUM_STEPS * 3_000_000


def test_a_rank_with_more_data_is_no_straggler(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, late=(3_000, 0), rows=(96, 64))
    assert (finding.code, finding.place) == ("rank-imbalance", {"rank": "0"})


def test_many_small_messages(tmp_path: Path) -> None:
    found = findings(tmp_path, late=(3_000, 3_000), messages=20, elements=256)
    assert [f.code for f in found] == ["small-messages"]
    assert 0.8 <= (found[0].gain_ns or 0) / (2 * NUM_STEPS * 20 * 280_000) <= 1.1


def test_communication_after_the_backward_pass(tmp_path: Path) -> None:
    found = findings(tmp_path, late=(3_000, 3_000), messages=6, overlap=False)
    assert [f.code for f in found] == ["late-communication"]
