"""`tokenpath workload`: describe, fit, generate, and what it says when it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.running import tokenpath
from tokenpath import api

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:17:{second % 60:02}.{(second * 7919) % 1000:03},{100 + second % 37},{5 + second % 11}\n"
    for second in range(300)
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE + "x,1,1\n")
    return path


def test_describe_leads_with_a_sentence_and_fits_a_terminal(trace: Path) -> None:
    done = tokenpath("workload", "describe", trace)
    assert done.code == 0
    assert "300 requests in" in done.stdout.splitlines()[2]
    assert "1 rows left out" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    found = json.loads(tokenpath("workload", "describe", trace, "--json").stdout)
    assert found["facts"]["workload"]["num_requests"] == 300
    assert found["facts"]["skips"] == [
        {"reason": "a value is missing or no number", "num_rows": 1, "first_line": 302}
    ]


def test_fit_then_generate_then_describe(trace: Path, tmp_path: Path) -> None:
    model, load = tmp_path / "model.json", tmp_path / "load.jsonl"
    done = tokenpath("workload", "fit", trace, "--to", model)
    assert done.code == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    done = tokenpath("workload", "generate", "--model", model, "--requests", 50, "--to", load)
    assert done.code == 0, done.stderr
    assert api.workload(load).workload.num_requests == 50
    again = tokenpath("workload", "generate", "--model", model, "--requests", 50)
    assert again.stdout == load.read_text()
    other = tokenpath("workload", "generate", "--model", model, "--requests", 50, "--seed", 1)
    assert other.stdout != load.read_text()
    report = json.loads(tokenpath("workload", "fit", trace, "--json").stdout)
    assert report["facts"]["model"]["format"] == "tokenpath.workload_model"


@pytest.mark.parametrize(
    ("options", "number"),
    [
        (["--rate", "4", "--requests", "20"], 20),
        (["--rate", "4", "--cv", "2", "--requests", "20"], 20),
        (["--arrivals", "stages:5x10,50x1", "--requests", "20"], 20),
        (["--arrivals", "constant:2", "--duration-s", "10"], 20),
        (["--concurrency", "4", "--requests", "20"], 20),
        (["--rate", "4", "--requests", "20", "--prefixes", "2", "--prefix-tokens", "64"], 20),
        (["--rate", "4", "--requests", "5", "--turns", "4", "--think-s", "2"], 20),
    ],
)
def test_generate_from_numbers(options: list[str], number: int, tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    done = tokenpath(
        "workload",
        "generate",
        *options,
        "--input-tokens",
        "50:90",
        "--output-tokens",
        "7",
        "--to",
        path,
    )
    assert done.code == 0, done.stderr
    assert "SYNTHETIC" in done.stdout
    assert api.workload(path).workload.num_requests == number


def test_generate_writes_csv_by_the_name(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    lengths = ("--input-tokens", "5", "--output-tokens", "7")
    assert (
        tokenpath(
            "workload", "generate", "--rate", "4", "--requests", "9", *lengths, "--to", path
        ).code
        == 0
    )
    assert path.read_text().splitlines()[0] == "arrival_ns,prompt_tokens,output_tokens"
    done = tokenpath(
        "workload", "generate", "--concurrency", "2", "--requests", "9", *lengths, "--to", path
    )
    assert done.code == 2
    assert "a closed loop" in done.stderr
    assert path.read_text().count("\n") == 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "lengths are missing"),
        (["--input-tokens", "5", "--output-tokens", "x", "--rate", "1", "--requests", "1"], "--output-tokens"),
        (["--input-tokens", "5", "--output-tokens", "5"], "no arrivals"),
        (["--input-tokens", "5", "--output-tokens", "5", "--rate", "1", "--concurrency", "2"], "together"),
        (["--input-tokens", "5", "--output-tokens", "5", "--rate", "-1", "--requests", "3"], "above zero"),
        (["--input-tokens", "5", "--output-tokens", "5", "--rate", "1"], "requests and duration"),
        (["--input-tokens", "5", "--output-tokens", "5", "--rate", "1", "--requests", "-4"], "-4 requests"),
        (["--input-tokens", "5", "--output-tokens", "5", "--rate", "1", "--duration-s", "1e15"], "requests"),
        (["--input-tokens", "5", "--output-tokens", "5", "--concurrency", "1"], "--requests"),
        (["--input-tokens", "5", "--output-tokens", "5", "--rate", "1", "--turns", "2"], "--requests"),
        (["--input-tokens", "5", "--output-tokens", "5", "--rate", "1", "--prefixes", "2"], "prefix"),
        (["--model", "none.json", "--requests", "3"], "none.json"),
        (["--model", "none.json"], "no --requests"),
        (["--model", "none.json", "--requests", "3", "--rate", "4"], "--rate"),
        (["--rate", "1", "--requests", "1", "--input-tokens", "5", "--output-tokens", "5", "--seed", "-1"], "seed"),
    ],
)  # fmt: skip
def test_what_generate_cannot_do_is_said(options: list[str], said: str, tmp_path: Path) -> None:
    done = tokenpath("workload", "generate", *options, cwd=tmp_path)
    assert done.code == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_files_are_said(tmp_path: Path) -> None:
    for verb in ("describe", "fit"):
        done = tokenpath("workload", verb, tmp_path / "none.csv")
        assert done.code == 2
        assert "none.csv" in done.stderr
        empty = tmp_path / "empty.csv"
        empty.write_text("")
        assert tokenpath("workload", verb, empty).code == 2


def test_a_capture_is_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text(
        "start,ttft_ms,in,out\n"
        + "".join(f"{second},5,40,{second % 3 + 1}\n" for second in range(9))
    )
    columns = "arrival_s=start,prompt_tokens=in,output_tokens=out"
    done = tokenpath("workload", "describe", path, "--columns", columns)
    assert done.code == 0, done.stderr
    assert "9 requests in" in done.stdout
    stretch = tokenpath(
        "workload", "describe", path, "--columns", columns, "--from-s", "2", "--duration-s", "3"
    )
    assert "3 requests" in stretch.stdout
