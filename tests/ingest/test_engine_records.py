"""Records of engines: values of odd types, documents that are cut, texts that are never kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingest.compare import reasons, rows
from ingest.samples import engine_log, llama_cpp, sglang_requests, trtllm_stats, vllm_stats
from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest import fields
from tokenpath.ingest.engine_log.reader import EngineLogReader
from tokenpath.ingest.llama_cpp.reader import LlamaCppReader
from tokenpath.ingest.reader import Options, Reader
from tokenpath.ingest.sglang_requests.reader import SglangRequestsReader
from tokenpath.ingest.trtllm_stats.reader import TrtllmStatsReader
from tokenpath.ingest.vllm_stats.reader import VllmStatsReader


def read(reader: Reader, path: Path) -> Capture:
    return reader.read([path], Options())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, 100_000_000), (1_700_000_000.5, 1_700_000_000_500_000_000), (3, 3_000_000_000),
        ("2.5", 2_500_000_000), (True, None), (None, None), (float("nan"), None),
        (float("inf"), None), (1e300, None), (10**400, None), ("x", None), ("9" * 60, None),
        (1e-30, 0), (-1.5, -1_500_000_000), ([], None),
    ],
)  # fmt: skip
def test_seconds_to_nanoseconds(value: Any, expected: int | None) -> None:
    assert fields.nanoseconds(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3), (3.0, 3), (-1, None), (3.5, None), (True, None), ("3", None), (2**63, None)],
)
def test_counts(value: Any, expected: int | None) -> None:
    assert fields.count(value) == expected


def test_texts_are_bounded_and_valid() -> None:
    assert fields.text("a" * 9000) == "a" * fields.MAX_TEXT
    assert fields.text("\ud800x") == "?x"
    assert fields.text(2**70) is None
    assert fields.text(18446744073709551615) == "18446744073709551615"


def test_a_list_that_is_cut_gives_its_whole_records(tmp_path: Path) -> None:
    path = trtllm_stats.write(tmp_path, [trtllm_stats.ITERATION] * 3, as_list=True)
    text = path.read_text()
    path.write_text(text[: text.rindex('"iter"') + 40])
    capture = read(TrtllmStatsReader(), path)
    assert capture.num_rows("step") == 2
    assert reasons(capture)["damaged record"] >= 1


def test_a_poll_a_line(tmp_path: Path) -> None:
    """Each answer of /metrics is a list."""
    path = trtllm_stats.write(
        tmp_path, [[trtllm_stats.ITERATION] * 2, [], [trtllm_stats.ITERATION]]
    )
    assert read(TrtllmStatsReader(), path).num_rows("step") == 3


def test_iterations_that_the_engine_dropped(tmp_path: Path) -> None:
    records = [{**trtllm_stats.ITERATION, "statsDroppedFrames": n} for n in (0, 4, 4, 5)]
    capture = read(TrtllmStatsReader(), trtllm_stats.write(tmp_path, records))
    assert reasons(capture) == {"dropped by the engine": 5}


def test_no_prompt_and_no_answer_is_kept(tmp_path: Path) -> None:
    captures = [
        read(LlamaCppReader(), llama_cpp.lines(tmp_path, [llama_cpp.CHAT, llama_cpp.OWN])),
        read(SglangRequestsReader(), sglang_requests.write(tmp_path, [sglang_requests.RECORD])),
    ]
    for capture in captures:
        kept = "".join(str(capture[name].to_pydict()) for name in capture)
        assert "an answer" not in kept
        assert "the prompt" not in kept
        assert "a prompt" not in kept


def test_records_without_any_time_of_their_own(tmp_path: Path) -> None:
    path = vllm_stats.write(tmp_path, [vllm_stats.record(None, n * 1000) for n in range(3)])
    capture = read(VllmStatsReader(), path)
    assert rows(capture, "source", "clock") == ["monotonic"]
    assert rows(capture, "counter_sample", "at_ns")[::3] == [0, 1_000_000, 2_000_000]


def test_one_more_year_in_the_new_year(tmp_path: Path) -> None:
    line = "INFO {} 00:00:00 [loggers.py:1] Avg prompt throughput: 1.0 tokens/s, Running: 1 reqs\n"
    path = engine_log.write(tmp_path, "".join(line.format(day) for day in ("12-31", "01-01")))
    at = rows(read(EngineLogReader(), path), "counter_sample", "at_ns")
    assert at[2] - at[0] == 86_400 * 10**9


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (VllmStatsReader(), '{"ev":"stats","x":'),
        (SglangRequestsReader(), '{"request_parameters":"{}"}'),
        (TrtllmStatsReader(), '[{"iterLatencyMS":"x"}]'),
        (LlamaCppReader(), '{"timings":3}'),
        (EngineLogReader(), "Avg prompt throughput: 1.0 tokens/s, Running: 1 reqs"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_nothing_readable_is_refused(reader: Reader, text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(DamagedInput):
        read(reader, path)


def test_deep_nesting_is_a_damaged_record(tmp_path: Path) -> None:
    deep = '{"ev":"stats","x":' + "[" * 200_000 + "]" * 200_000 + "}"
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(vllm_stats.record(1.5, 3)) + "\n" + deep + "\n")
    assert reasons(read(VllmStatsReader(), path)) == {"damaged record": 1}
