"""`tokenpath lab`: list, generate, score on disk, score afresh and resume."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from tokenpath.cli.main import main
from tokenpath.lab.draw import Spec, draw
from tokenpath.lab.judge import Judgement
from tokenpath.lab.truth import load_fault_kinds

API = importlib.import_module("tokenpath.api.lab")


def test_list_names_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["kind"] for row in rows] == list(load_fault_kinds())
    assert main(["lab", "list"]) == 0
    assert "host-gc" in capsys.readouterr().out


def test_generated_scenarios_are_scored_from_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen, truth = tmp_path / "seen", tmp_path / "truth"
    made = ["--scenarios", "1", "--seed", "5", "--kind", "scheduler-batch-limit"]
    assert main(["lab", "generate", *made, "--to", str(seen), "--truth", str(truth)]) == 0
    (folder,) = seen.iterdir()
    assert (truth / f"{folder.name}.json").is_file()
    assert "batch-limit" not in " ".join(path.name for path in folder.iterdir())
    capsys.readouterr()
    assert main(["lab", "score", str(seen), "--truth", str(truth), "--json"]) == 0
    board = json.loads(capsys.readouterr().out)
    assert board["num_scenarios"] == 1
    assert {"top1", "top3", "place", "loss_error", "faults", "magnitudes"} <= set(board)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["score"], "nothing to score"),
        (["score", "here", "--scenarios", "3"], "two things"),
        (["score", "here"], "--truth"),
        (["score", "--scenarios", "-1"], "1 or more"),
        (["score", "--scenarios", "1", "--kind", "gc"], "host-gc"),
        (["generate", "--scenarios", "1", "--to", "a", "--truth", "a/b"], "apart"),
        (["score", "nowhere", "--truth", "nowhere"], "no truth file"),
        (["score", "--scenarios", "1", "--jobs", "0"], "1 or more"),
        (["score", "--scenarios", "1", "--resume", "nowhere/x.jsonl"], "no folder"),
    ],
)
def test_wrong_arguments_say_what_is_allowed(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", *arguments]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", '{"format":1', "[]", '{"format":1}', '{"format":1,"id":"../out"}', "null"]
)
def test_a_damaged_truth_is_an_error_that_names_the_file(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    assert main(["lab", "score", str(tmp_path), "--truth", str(tmp_path)]) == 2
    assert "a.json" in capsys.readouterr().err


def _judgement(spec: Spec) -> Judgement:
    return Judgement(
        f"s{spec.seed}", spec.seed, spec.world, spec.kinds, spec.levels, 0.1, ("gc-pause",),
        True, True, None, 0.1, None, None,
    )  # fmt: skip


def test_a_board_resumes_and_never_mixes_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []

    def judged(spec: Spec) -> Judgement:
        asked.append(spec.seed)
        return _judgement(spec)

    monkeypatch.setattr(API, "judge_spec", judged)
    scores = tmp_path / "scores.jsonl"
    command = ["lab", "score", "--seed", "3", "--resume", str(scores), "--scenarios"]
    assert main([*command, "4"]) == 0
    with scores.open("a", encoding="utf-8") as file:
        file.write('{"number": 4, "bo')
    assert main([*command, "6"]) == 0
    assert asked == [draw(3, place).seed for place in (0, 1, 2, 3, 4, 5)]
    lines = scores.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in [*lines[:4], *lines[5:]]]
    assert [row["number"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert {"seed", "commit", "top1", "board"} <= set(rows[0])
    capsys.readouterr()
    other = ["lab", "score", "--seed", "4", "--resume", str(scores), "--scenarios", "2"]
    assert main(other) == 2
    assert "another board" in capsys.readouterr().err
