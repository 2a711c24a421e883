"""Step logs: laws of requests and phases, both scanners alike, the clock from the list of runs, damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.compare import difference, reasons, rows
from ingest.samples.vllm_steps import CONFIG, RECORDS, add, step, write
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.json_lines import Block
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.reader import Options
from tokenpath.ingest.vllm_steps import fast
from tokenpath.ingest.vllm_steps.reader import VllmStepsReader
from tokenpath.ingest.vllm_steps.record import Ids, Rows


def read_log(path: Path, scanner: str = "auto") -> Capture:
    capture = VllmStepsReader().read([path], Options(scanner=scanner))
    validate(capture)
    return capture


def capture_of(folder: Path, *records: Any, scanner: str = "auto") -> Capture:
    return read_log(write(folder / "t.steps.jsonl", [CONFIG, *records]), scanner)


@pytest.mark.parametrize(("stated", "engine_id"), [(1, 1), (0, 0), (None, None), ("x", None)])
def test_the_rank_of_a_replica_is_its_engine(
    tmp_path: Path, stated: object, engine_id: int | None
) -> None:
    records = [
        CONFIG | {"data_parallel_rank": stated},
        add("A", 1, 4),
        step(1, 10, ["A", "new", 0, 4, 1]),
    ]
    capture = read_log(write(tmp_path / "t.steps.jsonl", records))
    assert rows(capture, "step", "engine_id") == [engine_id]


def test_an_id_may_be_used_again(tmp_path: Path) -> None:
    capture = capture_of(
        tmp_path,
        add("A", 1, 4),
        step(1, 10, ["A", "new", 0, 4, 1], done={"A": "stop"}),
        add("A", 100, 2),
        step(2, 110, ["A", "new", 0, 2, 1]),
        step(3, 210, ["A", "run", 2, 1, 1], done={"A": "length"}),
    )
    assert rows(capture, "request", "request_id", "prompt_tokens", "output_tokens") == [
        ("A", 4, 1),
        ("A", 2, 2),
    ]
    assert rows(capture, "request", "finish_reason") == ["stop", "length"]
    assert rows(capture, "token", "index") == [0, 0, 1]
    assert rows(capture, "request_step", "phase") == ["prefill", "prefill", "decode"]


def test_a_recompute_is_prefill_though_it_has_output_tokens(tmp_path: Path) -> None:
    """vLLM's own annotation counts it as generation."""
    capture = capture_of(
        tmp_path,
        add("A", 1, 4),
        step(1, 10, ["A", "new", 0, 4, 1]),
        step(2, 110, preempted=["A"]),
        step(3, 210, ["A", "resumed", 0, 3, 0]),
        step(4, 310, ["A", "run", 3, 2, 1]),
        step(5, 410, ["A", "run", 5, 1, 1]),
    )
    phases = ["prefill", "prefill", "prefill", "decode"]
    assert rows(capture, "request_step", "phase") == phases
    assert rows(capture, "request_step", "is_resumed") == [False, True, False, False]
    assert rows(capture, "request", "num_preemptions", "cached_tokens") == [(1, 0)]


def test_speculation_decodes_several_tokens(tmp_path: Path) -> None:
    capture = capture_of(
        tmp_path,
        add("A", 1, 4),
        step(1, 10, ["A", "new", 0, 4, 1]),
        step(2, 110, ["A", "run", 4, 5, 3]),
        step(3, 210, ["A", "run", 7, 5, 1]),
    )
    assert rows(capture, "request_step", "phase") == ["prefill", "decode", "decode"]
    assert rows(capture, "token", "index") == [0, 1, 2, 3, 4]


def test_what_began_before_the_log_is_unknown(tmp_path: Path) -> None:
    capture = capture_of(
        tmp_path, step(1, 10, ["A", "run", 40, 1, 1]), step(2, 110, ["A", "run", 41, 1, 1])
    )
    assert rows(capture, "request", "queued_ns", "first_token_ns", "output_tokens") == [
        (None, None, None)
    ]
    assert rows(capture, "request", "prompt_tokens", "last_token_ns") == [(None, 180_000)]
    assert rows(capture, "request_step", "phase") == ["decode", "decode"]
    assert reasons(capture) == {"request without an add record": 1}


def test_impossible_numbers_are_counted(tmp_path: Path) -> None:
    capture = capture_of(
        tmp_path,
        add("A", 1, 4),
        step(1, 10, ["A", "new", 0, 4, 99]),
        {**step(2, 110, ["A", "run", 4, 10**15, 1]), "out_t_us": 3},
        {**step(3, 210, ["A", "run", 4, 1, 1]), "t_us": None},
        step(4, 10**17),
    )
    assert reasons(capture) == {
        "damaged share of a step": 1,
        "more tokens emitted than computed": 1,
        "step without a time": 2,
        "time before the start of its step": 2,
    }
    assert rows(capture, "step", "number", "output_ns") == [(1, 70_000), (2, None)]
    assert rows(capture, "request_step", "num_emitted") == [0]


def test_no_record_at_all(tmp_path: Path) -> None:
    path = tmp_path / "t.steps.jsonl"
    path.write_text('{"ev":"config"\n')
    with pytest.raises(DamagedInput):
        read_log(path)


def runs(folder: Path, t0_ns: object) -> None:
    (folder / "runs.json").write_text(json.dumps({"runs": [{"run": "a", "t0_unix_ns": t0_ns}]}))


def test_the_list_of_runs_places_the_log(tmp_path: Path) -> None:
    runs(tmp_path, 1_796_048_550_974_681_655)
    capture = capture_of(tmp_path, step(1, 10))
    assert rows(capture, "step", "start_ns") == [1_796_048_550_974_691_655]
    assert rows(capture, "source", "clock") == ["epoch"]
    assert rows(capture, "source_note", "code") == []


@pytest.mark.parametrize("t0_ns", [None, "1", -1, 2**63, 9 * 10**18, 1.5])
def test_a_list_without_a_usable_time_leaves_the_clock_unknown(
    tmp_path: Path, t0_ns: object
) -> None:
    runs(tmp_path, t0_ns)
    capture = capture_of(tmp_path, step(1, 10))
    assert rows(capture, "source", "clock") == ["monotonic"]
    assert rows(capture, "source_note", "code") == ["clock-unknown"]


def test_a_list_behind_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    runs(tmp_path / "other", 5)
    (tmp_path / "runs.json").symlink_to(tmp_path / "other" / "runs.json")
    assert rows(capture_of(tmp_path, step(1, 10)), "source", "clock") == ["monotonic"]


SHARE = st.tuples(
    st.sampled_from(["A", "B", "C", "x" * 30, 'q"', "é", "[a]"]),
    st.sampled_from(["new", "run", "resumed"]),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 3),
).map(list)
ODD = st.sampled_from(
    [{"ev": "nap"}, 3, [], {"ev": "step", "t_us": -4}, {"ev": "add"}, "text", None]
)


@st.composite
def logs(draw: st.DrawFn) -> list[Any]:
    records: list[Any] = []
    for number in range(draw(st.integers(0, 12))):
        shares = draw(st.lists(SHARE, max_size=4))
        named = [share[0] for share in shares]
        more: dict[str, Any] = {}
        if named and draw(st.booleans()):
            more = {"done": {named[0]: "length"}, "preempted": named[1:2]}
        record = step(number, 100 * number, *shares, **more)
        if draw(st.booleans()):
            del record[draw(st.sampled_from(sorted(record)))]
        records.append(record)
        if draw(st.booleans()):
            records.append(add(draw(SHARE)[0], 100 * number + 50, draw(st.integers(0, 9))))
        if draw(st.integers(0, 5)) == 0:
            records.append(draw(ODD))
    return records


@settings(max_examples=60)
@given(logs(), st.booleans(), st.randoms(use_true_random=False))
def test_both_scanners_give_the_same_tables(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], compact: bool, random: Any
) -> None:
    path = tmp_path_factory.mktemp("log") / "t.steps.jsonl"
    write(path, [CONFIG, *records], compact=compact)
    if random.random() < 0.3:
        data = bytearray(path.read_bytes())
        at = random.randrange(len(data))
        del data[at : at + random.randrange(4)]
        path.write_bytes(bytes(data))
    try:
        slow = read_log(path, "slow")
    except DamagedInput:
        with pytest.raises(DamagedInput):
            read_log(path, "fast")
        return
    assert difference(slow, read_log(path, "fast")) is None


def block_rows(data: bytes, num_rows: int) -> tuple[list[Rows], Ids]:
    ids = Ids()
    return list(fast.FastReader(ids, Losses(), num_rows).read_block(Block(0, data), 0)), ids


def test_the_compiled_loop_does_what_the_loop_does() -> None:
    data = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in RECORDS)
    plain, plain_ids = block_rows(data.encode() * 3, 0)
    fast_rows, fast_ids = block_rows(data.encode() * 3, 10**6)
    assert plain_ids == fast_ids
    assert len(plain) == len(fast_rows)
    for one, two in zip(plain, fast_rows, strict=True):
        assert (one.adds, one.finished, one.preempted) == (two.adds, two.finished, two.preempted)
        for name in ("step_line", "num_shares", "share_request", "share_tokens", "share_emitted"):
            assert np.array_equal(getattr(one, name), getattr(two, name)), name


def test_more_rows_and_texts_than_the_scanner_holds(tmp_path: Path) -> None:
    shares = [[f"request-{n}", "new", 0, 1, 1] for n in range(40_000)]
    records = [step(n, n, *shares[n * 8 : n * 8 + 8]) for n in range(5_000)]
    path = write(tmp_path / "t.steps.jsonl", [CONFIG, step(9, 9, *shares), *records])
    slow, quick = read_log(path, "slow"), read_log(path, "fast")
    assert difference(slow, quick) is None
    assert quick.num_rows("request") == 40_000
    assert quick.num_rows("step") == 5_001
