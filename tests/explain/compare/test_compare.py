"""Two captures: the parts add up, noise is no difference, and the cause is named."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explain.analyses.rank_programs import Rows, capture, program
from explain.serving import SOURCE
from tokenpath.api.compare import Comparison, compare
from tokenpath.capture.capture import Capture, build_table
from tokenpath.cli.compare import split_runs
from tokenpath.cli.main import main
from tokenpath.core.errors import UsageError
from tokenpath.explain.analysis import analyse
from tokenpath.explain.compare.nodes import Node, apportion, walk, way_down, whole_ns
from tokenpath.explain.compare.noise import difference
from tokenpath.explain.request import WindowRequest


def stepped(
    slow: Callable[[int, str], float] = lambda rank, family: 1.0,
    *,
    seed: int = 0,
    num_steps: int = 12,
    gap_ns: int = 0,
    name: Callable[[int, str], str] = lambda rank, family: f"{family}_kernel",
    num_ranks: int = 2,
) -> Capture:
    """Ranks that run the same program, its steps marked."""
    made = capture(
        program(
            num_ranks,
            num_steps,
            host_ns=lambda rank, step: gap_ns,
            speed=slow,
            name=name,
            seed=seed,
        )
    )
    return with_steps(made, num_steps, num_ranks)


def with_steps(made: Capture, num_steps: int, num_ranks: int) -> Capture:
    """A step from each first kernel of a rank to its collective."""
    start, end = made.int64("kernel", "start_ns"), made.int64("kernel", "end_ns")
    source = made.ids("kernel", "source_id")
    step_of = np.zeros(len(start), np.int32)
    rows: list[dict[str, Any]] = []
    for rank in range(num_ranks):
        mine = np.flatnonzero(source == rank)
        mine = mine[np.argsort(start[mine], kind="stable")]
        for number, part in enumerate(np.array_split(mine, num_steps)):
            step_of[part] = len(rows)
            rows.append(
                {
                    "source_id": rank, "start_ns": int(start[part].min()),
                    "end_ns": int(end[part].max()), "name": f"step {number}", "engine": "vllm",
                    "observer": "profiler", "phase": "decode",
                }
            )  # fmt: skip
    kernel = made["kernel"]
    at = kernel.schema.get_field_index("step_id")
    kernel = kernel.set_column(at, kernel.schema.field(at), pa.array(step_of))
    step = build_table("step", {key: [row[key] for row in rows] for key in rows[0]})
    return made.replace({"kernel": kernel, "step": step})


def root_of(comparison: Comparison) -> Node:
    assert comparison.compared.device is not None
    return comparison.compared.device


def path(root: Node) -> list[str]:
    return [node.key for node in way_down(root).steps]


def test_a_slower_kernel_is_found_and_measured() -> None:
    slower = stepped(lambda rank, family: 1.5 if family == "moe" else 1.0)
    found = compare(stepped(), slower)
    root = root_of(found)
    assert float(root.difference_ns) == pytest.approx(20_000, rel=0.1)
    assert path(root)[:2] == ["compute", "moe"]
    assert root.is_noise is False
    (sentence,) = found.report.answer
    assert "more per step" in sentence
    assert "compute > moe" in sentence


def test_a_gap_is_found_by_its_cause() -> None:
    found = compare(stepped(), stepped(gap_ns=30_000))
    assert path(root_of(found))[0] == "idle"
    assert float(root_of(found).difference_ns) == pytest.approx(30_000, rel=0.1)


@settings(max_examples=4)
@given(
    seeds=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    factor=st.floats(0.5, 2.0),
    steps=st.tuples(st.integers(1, 8), st.integers(1, 8)),
)
def test_parts_add_up_exactly(
    seeds: tuple[int, int], factor: float, steps: tuple[int, int]
) -> None:
    first = stepped(seed=seeds[0], num_steps=steps[0])
    second = stepped(
        lambda rank, family: factor if family == "gemm" else 1.0,
        seed=seeds[1],
        num_steps=steps[1],
        name=lambda rank, family: f"{family}_v2" if family == "norm" else f"{family}_kernel",
    )
    forth, back = compare(first, second), compare(second, first)
    for root in (*forth.compared.roots, *back.compared.roots):
        assert root.residuals() == {}
        whole = whole_ns(root)
        for node, _ in walk(root):
            if node.children:
                for side in range(3):
                    parts = sum(whole[id(child)][side] for child in node.children)
                    assert parts == whole[id(node)][side]
    assert root_of(forth).difference_ns == -root_of(back).difference_ns
    wall = sum(
        (device.work.span_ns for device in analyse(first, WindowRequest()).devices),
    )
    assert root_of(forth).first_ns == Fraction(wall, 2 * steps[0])


def test_a_capture_does_not_differ_from_itself() -> None:
    made = stepped()
    root = root_of(compare(made, made))
    assert all(node.difference_ns == 0 for node, _ in walk(root))
    assert root.is_noise


def test_another_run_of_the_same_is_no_difference() -> None:
    shown = [
        compare(stepped(seed=2 * n), stepped(seed=2 * n + 1)).report.answer[0] for n in range(5)
    ]
    assert sum(text.startswith("No difference shown") for text in shown) >= 4


def test_kernels_with_other_names_keep_their_role() -> None:
    """Another vendor's names: the same families, so the same difference in the same place."""
    renamed = stepped(
        lambda rank, family: 1.5 if family == "moe" else 1.0,
        name=lambda rank, family: f"Cijk_{family}",
    )
    plain = stepped(lambda rank, family: 1.5 if family == "moe" else 1.0)
    one, two = (root_of(compare(stepped(), other)) for other in (plain, renamed))
    assert one.difference_ns == two.difference_ns
    assert path(one)[:2] == path(two)[:2] == ["compute", "moe"]


def test_ranks_in_another_order_change_nothing() -> None:
    """Four ranks of which one is slow: which of them it is does not matter to the mean."""
    whole = {
        slow: root_of(
            compare(
                stepped(num_ranks=4),
                stepped(lambda rank, family, slow=slow: 1.4 if rank == slow else 1.0, num_ranks=4),
            )
        )
        for slow in (0, 3)
    }
    assert float(whole[0].difference_ns) == pytest.approx(float(whole[3].difference_ns), rel=0.05)


def test_several_runs_are_the_samples() -> None:
    first = [stepped(seed=n) for n in range(4)]
    second = [stepped(seed=n, gap_ns=20_000) for n in range(4, 8)]
    found = compare(first, second)
    assert root_of(found).is_noise is False
    assert not [note for note in found.report.notes if note.code == "noise-unknown"]


def test_other_work_is_said() -> None:
    rows = program(2, 6)
    more = Rows([*rows.kernel], [*rows.collective])
    for row in rows.kernel:
        if row["family"] == "gemm":
            more.kernel.append(row | {"stream_id": 9})
    first, second = (with_steps(capture(one), 6, 2) for one in (rows, more))
    found = compare(first, second)
    assert "different-work" in {note.code for note in found.report.notes}


def test_without_steps_noise_is_unknown() -> None:
    rows = Rows()
    for at in range(3):
        rows.work(0, 100_000 * at, 50_000, "gemm")
    found = compare(capture(rows), capture(rows))
    assert "noise-unknown" in {note.code for note in found.report.notes}
    assert root_of(found).interval is None


def test_phases_are_kept_apart() -> None:
    """Every third step is a prefill; in B all of them take longer."""

    def mixed(gap_ns: int) -> Capture:
        made = with_steps(
            capture(
                program(2, 24, host_ns=lambda rank, step: gap_ns if step % 3 == 0 and step else 0)
            ),
            24,
            2,
        )
        step = made["step"]
        phase = ["prefill" if row % 24 % 3 == 2 else "decode" for row in range(step.num_rows)]
        at = step.schema.get_field_index("phase")
        column = pa.array(phase).dictionary_encode()
        return made.replace({"step": step.set_column(at, step.schema.field(at), column)})

    root = root_of(compare(mixed(0), mixed(50_000)))
    assert {node.key for node in root.children} == {"prefill", "decode"}
    assert root.residuals() == {}
    # The wait before a step lies behind the last work of the step before it.
    assert path(root)[:2] == ["prefill", "idle"]


def test_steps_on_one_side_only_are_left_out() -> None:
    rows = program(2, 12)
    made = capture(rows)
    found = compare(made, with_steps(made, 12, 2))
    assert all(node.difference_ns == 0 for node, _ in walk(root_of(found)))
    assert found.compared.unit == "recording"


def requests(queue_ns: int, seed: int) -> Capture:
    """Requests as an engine saw them: queue, then the rest."""
    random = np.random.default_rng(seed)
    num = 60
    arrival = np.arange(num) * 100_000_000
    queued = queue_ns + random.integers(0, 2_000_000, num)
    first = arrival + queued + 30_000_000 + random.integers(0, 1_000_000, num)
    times = {
        "queued_ns": arrival, "arrival_ns": arrival, "scheduled_ns": arrival + queued,
        "first_token_ns": first, "last_token_ns": first + 200_000_000,
    }  # fmt: skip
    table = build_table(
        "request",
        {
            "source_id": np.zeros(num, np.int32),
            "request_id": [f"r{number}" for number in range(num)],
            "observer": ["engine"] * num,
            "output_tokens": np.full(num, 20),
            "prompt_tokens": np.full(num, 100),
            **times,
        },
    )
    source = build_table("source", {key: [value] for key, value in SOURCE.items()})
    return Capture({"source": source, "request": table})


def test_a_stage_of_the_request_is_named() -> None:
    found = compare(requests(10_000_000, 1), requests(350_000_000, 2))
    root = found.compared.requests
    assert root is not None
    assert root.residuals() == {}
    assert path(root) == ["ttft", "queue"]
    assert float(root.difference_ns) == pytest.approx(340_000_000, rel=0.01)
    assert "in time to first token > queue" in found.report.answer[0]
    same = compare(requests(10_000_000, 1), requests(10_000_000, 3))
    assert same.report.answer[0].startswith("No difference shown per request (engine)")


def test_sides_with_nothing_in_common() -> None:
    with pytest.raises(UsageError, match="nothing in common"):
        compare(requests(0, 1), stepped())


@settings(max_examples=40)
@given(
    parts=st.lists(st.fractions(-1000, 1000, max_denominator=97), min_size=1, max_size=8),
    whole=st.integers(-3, 3),
)
def test_apportioned_parts_add_up(parts: list[Fraction], whole: int) -> None:
    total = round(sum(parts, Fraction(0)))
    found = apportion(total, parts)
    assert sum(found) == total
    assert all(abs(one - part) < 2 for one, part in zip(found, parts, strict=True))


def test_intervals_hold_as_often_as_they_say() -> None:
    random = np.random.default_rng(5)
    held = 0
    for _ in range(400):
        first, second = random.exponential(1.0, 12), random.exponential(1.0, 25)
        found = difference(first, second)
        assert found is not None
        held += found.holds(0.0)
    assert 0.92 <= held / 400 <= 0.99


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tokenpath.capture.parquet import write_capture

    for name, made in (("a", stepped()), ("b", stepped(gap_ns=30_000))):
        write_capture(made, tmp_path / name)
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert main(["compare", a, "--against", b]) == 0
    shown = capsys.readouterr().out
    assert "more per step" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert main(["compare", a, "+", a, "--against", b, "--json"]) == 0
    assert '"difference_ns"' in capsys.readouterr().out
    assert main(["compare", a, "+", "--against", b]) == 2


def test_runs_are_separated_by_a_plus() -> None:
    assert split_runs(["a", "b", "+", "c"]) == [["a", "b"], ["c"]]
    with pytest.raises(UsageError):
        split_runs(["+", "a"])


def real(reference_data: Path, first: str, second: str) -> Comparison:
    folder = reference_data / "traces"
    return compare(folder / first, folder / second)


def test_the_data_loader_was_the_cause(reference_data: Path) -> None:
    """ResNet with 0 and 4 workers: with none, the device waits while batches are put together."""
    found = real(reference_data, "kineto/resnet50_num_workers_0", "kineto/resnet50_num_workers_4")
    assert round(float(root_of(found).difference_ns)) == -194_927_000
    (sentence,) = found.report.answer
    assert "in idle > in a framework op > aten::_cat" in sentence


def test_recordings_of_equal_length_are_compared_by_work(reference_data: Path) -> None:
    """300 ms each, 17 and 15 blocks: per block the second takes 13 % longer, most of it idle."""
    found = real(reference_data, "nsys/mfu_2gpu_before.sqlite", "nsys/mfu_2gpu_after.sqlite")
    root = root_of(found)
    assert float(root.second_ns / root.first_ns) == pytest.approx(17 / 15, rel=0.01)
    assert path(root)[0] == "idle"
    assert root.is_noise is False


def test_across_vendors(reference_data: Path) -> None:
    name = "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    found = real(reference_data, f"tracelens/h100/{name}", f"tracelens/mi300/{name}")
    root = root_of(found)
    assert root.residuals() == {}
    assert [round(float(v) / 1000) for v in (root.first_ns, root.second_ns)] == [49653, 47086]
    families = {
        node.key: node for node in next(n for n in root.children if n.key == "compute").children
    }
    assert families["gemm"].difference_ns > 0 > families["elementwise"].difference_ns
    assert "op:aten::mm" in {node.key for node in families["gemm"].children}


def test_a_repeated_run_is_no_difference(reference_data: Path) -> None:
    folder = reference_data / "engine/vllm-cpu/load"
    runs = [
        [folder / f"{run}.{kind}" for kind in ("requests.csv", "steps.jsonl.gz", "tokens.jsonl.gz")]
        for run in ("m40", "m40b")
    ]
    found = compare(*runs)
    assert found.report.answer[0].startswith("No difference shown per request (client)")
    for root in found.compared.roots:
        assert root.residuals() == {}
        assert root.is_noise
