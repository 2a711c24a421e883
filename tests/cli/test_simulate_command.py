"""`tokenpath simulate` as a user meets it: answers, errors, captures, comparisons."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenpath.cli.main import main

SMALL = [
    "simulate", "--model", "llama-3.1-8b", "--gpu", "H100", "--rate", "8", "--requests", "12",
    "--input-tokens", "100:600", "--output-tokens", "5:20", "--draws", "0",
]  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    code = main([*SMALL, *more])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_the_answer_leads_and_fits_80_columns(capsys) -> None:
    code, out, _ = run(capsys, "--slo", "ttft=1s,tpot=50ms")
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "SIMULATED" in out
    assert lines[0].startswith("meta-llama/Llama-3.1-8B-Instruct")
    for word in (
        "TTFT",
        "TPOT",
        "ITL",
        "E2E",
        "goodput",
        "KV blocks in use",
        "time to first token",
    ):
        assert word in out


def test_the_same_seed_is_the_same_text_and_another_is_not(capsys) -> None:
    first, again, other = (run(capsys, "--seed", seed)[1] for seed in ("1", "1", "2"))
    assert first == again
    assert first != other


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "static", "window"])
def test_json_has_figures_settings_and_the_memory_plan(capsys, engine: str) -> None:
    code, out, _ = run(capsys, "--engine", engine, "--json", "--set", "tp=2")
    report = json.loads(out)
    assert (code, report["verb"], report["state"]) == (0, "simulate", "simulated")
    facts = report["facts"]
    assert facts["figures"]["p99_ttft_ns"] > 0
    assert facts["settings"]["engine"] == engine
    assert facts["num_gpus"] == 2
    assert facts["memory"]["block_bytes"] > 0
    assert all(funnel["is_closed"] for funnel in report["request_funnels"])


ERRORS = [
    (["--gpu", "H1000"], "unknown GPU", "h100"),
    (["--model", "llama-3.1-70b"], "does not fit", "nearest that works: tp ="),
    (["--model", "lama-3.1-8b"], "unknown model", "llama-3.1-8b"),
    (["--set", "tp=3"], "cannot be split", "tp = 2"),
    (["--rate", "-4"], "-4", "above 0"),
    (["--set", "max_num_sqs=4"], "no setting", "max_num_seqs"),
    (["--set", "max_num_seqs=0"], "max_num_seqs is 0", "max_num_seqs=1"),
    (["--set", "router.polcy=x"], "no setting", "router.policy"),
    (["--engine", "foo"], "unknown engine", "vllm, sglang, trtllm, static, window"),
    (["--slo", "ttft=soon"], "is no limit", "ttft=500ms"),
    (["--draws", "1"], "1 draws", "2 to 1000"),
    (["--set", "replicas=0"], "replicas is 0", "replicas=1"),
    (["--set", "tp=two"], "'two' for tp", "a whole number"),
    (["--workload", "nowhere.jsonl"], "beside --workload", "a workload file, or laws"),
]


@pytest.mark.parametrize(("more", "what", "nearest"), ERRORS)
def test_what_cannot_be_is_one_error_with_the_nearest_that_works(
    capsys, more: list[str], what: str, nearest: str
) -> None:
    code, out, error = run(capsys, *more)
    assert (code, out) == (2, "")
    assert error.startswith("tokenpath: error: ")
    assert what in error
    assert nearest in error


def test_a_run_is_a_capture_that_explains_and_compares_with_itself(capsys, tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    assert run(capsys, "--to", folder)[0] == 0
    assert main(["explain", folder]) == 0
    assert "SIMULATED" in capsys.readouterr().out
    assert main(["simulate", "compare", folder, folder]) == 0
    assert "No difference" in capsys.readouterr().out
    other = str(tmp_path / "other")
    assert run(capsys, "--to", other, "--gpu", "L40S")[0] == 0
    assert main(["simulate", "compare", folder, other]) == 0
    assert "is longer" in capsys.readouterr().out


def test_a_recorded_run_is_simulated_as_it_was_and_as_asked(capsys, tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    assert run(capsys, "--requests", "60", "--to", folder)[0] == 0
    arguments = ["simulate", "--from", folder, "--draws", "0"]
    assert main(arguments) == 0
    assert "measured (A) and simulated (B)" in capsys.readouterr().out
    assert main([*arguments, "--set", "max_num_seqs=1"]) == 0
    shown = capsys.readouterr().out
    assert "with max_num_seqs=1 (B)" in shown
    assert "time to first token is longer" in shown


def test_compare_needs_two_runs(capsys) -> None:
    assert main(["simulate", "compare", "a"]) == 2
    assert "simulate compare A B" in capsys.readouterr().err


def test_tokens_are_streamed_into_the_capture(capsys, tmp_path: Path) -> None:
    from tokenpath.capture.parquet import read_capture

    whole, less = tmp_path / "token", tmp_path / "request"
    _, shown, _ = run(capsys, "--detail", "token", "--to", str(whole))
    assert "ITL" in shown
    capture = read_capture(whole)
    emitted = capture.int64("request_step", "num_emitted").sum()
    tokens = capture.int64("request", "output_tokens", 0)
    assert capture.num_rows("token") == emitted == tokens[: len(tokens) // 2].sum()
    _, shown, _ = run(capsys, "--detail", "request", "--to", str(less))
    assert "ITL" in shown
    assert read_capture(less).num_rows("request_step") == 0
    assert run(capsys, "--detail", "token", "--to", str(whole))[0] == 2
