"""The lab's scoreboard: raw scores into the tables of docs/lab.md.

    tokenpath lab score --scenarios 2000 --seed S --jobs 2 --resume scores.jsonl
    python benchmarks/lab_scoreboard.py --scores scores.jsonl [--first-contact first.jsonl] --page docs/lab.md

`--recompute 0.05` makes that share of the places again and fails when more than one in ten verdicts differ.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from tokenpath.api.lab import judge_spec
from tokenpath.lab.board import Rate, confusion, rate, summarise
from tokenpath.lab.draw import draw
from tokenpath.lab.judge import Judgement
from tokenpath.lab.truth import load_fault_kinds

BEGIN, END = "<!-- board -->\n", "<!-- end of board -->\n"
DIFFERING_MAX = 0.1
"""Share of remade scores that may differ: analyses improve between two runs of the whole board."""
GOALS = {
    "right cause ranked first": "95 %",
    "every injected cause among the first three": "99 %",
    "right place": "95 %",
    "no fault: no cost above 2 % of the wall": "97 %",
    "decoy ranked first": "at most 0.5 %",
}


def read_scores(path: Path) -> list[dict[str, Any]]:
    """Raw scores by place."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return sorted(rows, key=lambda row: row["number"])


@dataclass(frozen=True)
class Recomputed:
    """What came out when scores were made again."""

    num_places: int
    """How many."""
    differing: list[int]
    """Places with another verdict: the code has changed since, or the scores are not real."""


def judgement_of(row: Mapping[str, Any]) -> Judgement:
    """The judgement of a raw score."""
    values = {field.name: row[field.name] for field in fields(Judgement)}
    return Judgement(
        **values | {name: tuple(values[name]) for name in ("kinds", "levels", "first_codes")}
    )


def recompute(rows: Sequence[Mapping[str, Any]], share: float, seed: int) -> Recomputed:
    """Make a random share of the judgements again and compare causes and places."""
    dice = np.random.default_rng(seed)
    count = max(1, round(share * len(rows)))
    chosen = dice.choice(len(rows), count, replace=False)
    wrong = []
    for at in sorted(chosen.tolist()):
        row = rows[at]
        board = row["board"]
        spec = draw(board["seed"], row["number"], board["worlds"], board["kind"])
        now, then = judge_spec(spec), judgement_of(row)
        if (now.top1, now.top3, now.false_alarm) != (then.top1, then.top3, then.false_alarm):
            wrong.append(row["number"])
    return Recomputed(len(chosen), wrong)


def page(
    rows: Sequence[Mapping[str, Any]], first: Sequence[Mapping[str, Any]] | None
) -> Iterator[str]:
    """The tables, line by line."""
    judgements = [judgement_of(row) for row in rows]
    commits = sorted({str(row["commit"])[:12] for row in rows})
    yield (
        f"{len(rows):,} scenarios, board seed {rows[0]['board']['seed']}, computed at commit "
        f"{', '.join(commits)}. Synthetic; 95 % intervals (Wilson)."
    )
    yield ""
    boards = [("all", judgements)]
    boards += [
        (world, [one for one in judgements if one.world == world])
        for world in ("device", "serving")
    ]
    if first is not None:
        boards.append(("first contact", [judgement_of(row) for row in first]))
    yield f"| figure | goal | {' | '.join(name for name, _ in boards)} |"
    yield f"| --- | --- |{' --- |' * len(boards)}"
    summed = [summarise(list(part)) for _, part in boards]
    for name, goal in GOALS.items():
        key = dict(
            zip(GOALS, ("top1", "top3", "place", "no_false_alarm", "decoy_first"), strict=True)
        )[name]
        yield f"| {name} | {goal} | {' | '.join(str(getattr(board, key)) for board in summed)} |"
    errors = [board.median_loss_error for board in summed]
    cells = ["n/a" if error is None else f"{100 * error:.1f} %" for error in errors]
    yield f"| loss, median error | 15 % | {' | '.join(cells)} |"
    yield ""
    yield "Right cause first, by magnitude (0 is meant to be undetectable; in brackets the median loss, share of the wall):"
    yield ""
    yield "| fault | 0 | 1 | 2 | 3 | counted ones first | place | loss error | taken for |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    single = [one for one in judgements if len(one.kinds) == 1]
    taken = confusion(judgements)
    kinds = load_fault_kinds()
    for kind in kinds:
        mine = [one for one in single if one.kinds[0] == kind]
        if not mine:
            continue
        levels = [_level([one for one in mine if one.levels[0] == level]) for level in range(4)]
        board = summarise(mine)
        wrong = [
            f"{code} {n}"
            for code, n in taken.get(kind, {}).items()
            if code not in kinds[kind].codes
        ]
        error = (
            "n/a" if board.median_loss_error is None else f"{100 * board.median_loss_error:.0f} %"
        )
        cells = [*levels, _share(board.top1), _share(board.place), error, ", ".join(wrong[:3])]
        yield f"| `{kind}` | {' | '.join(cells)} |"
    if "none" in taken:
        codes = ", ".join(f"{code} {count}" for code, count in list(taken["none"].items())[:6])
        yield ""
        yield f"First finding where there is no fault: {codes}."


def _level(judgements: Sequence[Judgement]) -> str:
    found: Rate = rate(judgements, lambda one: one.top1)
    if not judgements:
        return "-"
    lost = statistics.median(one.lost_share for one in judgements)
    return f"{found.num_right}/{found.num_all} ({100 * lost:.1f} %)"


def _share(found: Rate) -> str:
    return "n/a" if found.share is None else f"{100 * found.share:.0f} % of {found.num_all}"


def main() -> int:
    """Write the page, or recompute a part of the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scores", type=Path, required=True)
    parser.add_argument("--first-contact", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--recompute", type=float)
    parser.add_argument("--seed", type=int, default=0, help="of the choice of what is recomputed")
    arguments = parser.parse_args()
    rows = read_scores(arguments.scores)
    if arguments.recompute:
        found = recompute(rows, arguments.recompute, arguments.seed)
        print(
            f"{found.num_places} scores made again, {len(found.differing)} differ: {found.differing}"
        )
        return int(len(found.differing) > DIFFERING_MAX * found.num_places + 1)
    first = None if arguments.first_contact is None else read_scores(arguments.first_contact)
    text = "\n".join(page(rows, first)) + "\n"
    if arguments.page is None:
        print(text, end="")
        return 0
    old = arguments.page.read_text(encoding="utf-8")
    head, _, rest = old.partition(BEGIN)
    _, _, tail = rest.partition(END)
    arguments.page.write_text(f"{head}{BEGIN}{text}{END}{tail}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
