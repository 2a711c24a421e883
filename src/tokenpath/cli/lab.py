"""`tokenpath lab`: scenarios with known faults, and how well they are diagnosed."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tokenpath.core.errors import UsageError

if TYPE_CHECKING:
    from tokenpath.api.lab import LabRequest
    from tokenpath.lab.board import Rate
    from tokenpath.lab.judge import Judgement

_EPILOG = """\
examples:
  tokenpath lab list
  tokenpath lab generate --scenarios 20 --seed 7 --to scenarios/ --truth truth/
  tokenpath explain scenarios/*/                         look for yourself first
  tokenpath lab score scenarios/ --truth truth/
  tokenpath lab score --scenarios 2000 --seed 7 --jobs 2 --resume scores.jsonl
  tokenpath lab score --scenarios 50 --kind host-gc --json
  tokenpath lab score --scenarios 50 --world serving

the same in Python: tokenpath.api.generate_lab, lab (docs/lab.md)
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "lab",
        help="traces with known faults: does `explain` find them?",
        description="Scenarios with known faults, written as a profiler or an engine would record "
        "them, and how well `explain` names the cause, the place and the loss.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listed = verbs.add_parser("list", help="kinds of faults, and which findings are right for them")
    listed.add_argument("--json", action="store_true", help="as JSON")
    listed.set_defaults(run=run_list)
    made = verbs.add_parser("generate", help="write scenarios, and the truth apart")
    _add_request(made, required=True)
    made.add_argument("--to", required=True, metavar="DIR", help="for the scenarios")
    made.add_argument("--truth", required=True, metavar="DIR", help="for what really happened")
    made.set_defaults(run=run_generate)
    scored = verbs.add_parser("score", help="diagnose scenarios and hold that against the truth")
    scored.add_argument("folder", nargs="?", metavar="DIR", help="scenarios that lie on disk")
    scored.add_argument("--truth", metavar="DIR", help="their truth")
    _add_request(scored, required=False)
    scored.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: 1)")
    scored.add_argument(
        "--resume", metavar="FILE", help="raw scores: kept as they come, and not computed again"
    )
    scored.add_argument("--json", action="store_true", help="as JSON (docs/lab.md)")
    scored.set_defaults(run=run_score)


def _add_request(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--scenarios", type=int, required=required, metavar="N", help="how many")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="of the board (default: 0)"
    )
    parser.add_argument("--kind", metavar="KIND", help="one kind of fault (tokenpath lab list)")
    parser.add_argument(
        "--world", choices=("device", "serving"), help="profiler traces, or engine records"
    )


def _request(arguments: argparse.Namespace) -> LabRequest:
    from tokenpath.api.lab import LabRequest
    from tokenpath.lab.draw import WORLDS

    worlds = WORLDS if arguments.world is None else (arguments.world,)
    return LabRequest(arguments.scenarios, arguments.seed, arguments.kind, worlds)


def run_list(arguments: argparse.Namespace) -> int:
    """List the kinds."""
    from tokenpath.lab.truth import load_fault_kinds

    kinds = load_fault_kinds().values()
    if arguments.json:
        rows = [
            {
                "kind": kind.kind, "group": kind.group, "world": kind.world, "title": kind.title,
                "magnitude": kind.magnitude, "loss": kind.loss, "codes": list(kind.codes),
                "place": list(kind.place),
            }
            for kind in kinds
        ]  # fmt: skip
        print(json.dumps(rows, indent=1))
        return 0
    group = None
    for kind in kinds:
        if kind.group != group:
            group = kind.group
            print(f"{group}")
        print(f"  {kind.kind:32} {kind.world:8} -> {', '.join(kind.codes)}")
        print(f"      {kind.title} ({kind.magnitude})")
    return 0


def run_generate(arguments: argparse.Namespace) -> int:
    """Write scenarios."""
    from tokenpath.api import generate_lab

    with _progress("writing") as progress:
        truths = generate_lab(
            _request(arguments), Path(arguments.to), Path(arguments.truth), progress
        )
    print(f"{len(truths)} scenarios in {arguments.to}, what really happened in {arguments.truth}")
    return 0


def run_score(arguments: argparse.Namespace) -> int:
    """Diagnose and judge."""
    from tokenpath.api import lab, score_folder

    if (arguments.folder is None) == (arguments.scenarios is None):
        raise UsageError(
            "nothing to score" if arguments.folder is None else "two things to score",
            next_step="DIR --truth DIR for scenarios on disk, or --scenarios N for fresh ones",
        )
    if arguments.folder is not None:
        if arguments.truth is None:
            raise UsageError("where is the truth?", where="--truth", allowed="a folder of ID.json")
        judgements = score_folder(Path(arguments.folder), Path(arguments.truth))
    else:
        resume = None if arguments.resume is None else Path(arguments.resume)
        with _progress("scenarios") as progress:
            judgements = lab(
                _request(arguments), jobs=arguments.jobs, resume=resume, progress=progress
            )
    if arguments.json:
        from tokenpath.lab.board import to_json

        print(json.dumps(to_json(judgements), indent=1))
    else:
        sys.stdout.writelines(f"{line}\n" for line in _lines(judgements))
    return 0


def _lines(judgements: Sequence[Judgement]) -> Iterator[str]:
    from tokenpath.lab.board import summarise

    board = summarise(judgements)
    yield f"{board.num_scenarios:,} scenarios (synthetic); 95 % intervals"
    yield f"right cause first            {board.top1}"
    yield f"all causes in the first 3    {board.top3}"
    yield f"right place                  {board.place}"
    error = board.median_loss_error
    yield f"loss off by (median)         {'n/a' if error is None else f'{100 * error:.1f} %'}"
    yield f"no fault, no alarm over 2 %  {board.no_false_alarm}"
    yield f"decoy ranked first           {board.decoy_first}"
    yield ""
    yield from _by_kind(judgements)


def _by_kind(judgements: Sequence[Judgement]) -> Iterator[str]:
    from tokenpath.lab.board import confusion, rate

    single = [one for one in judgements if len(one.kinds) == 1]
    taken = confusion(judgements)
    yield f"{'fault':32} {'first by magnitude 0 to 3':28} mistaken for"
    for kind in sorted({one.kinds[0] for one in single}):
        mine = [one for one in single if one.kinds[0] == kind]
        levels = [
            _cell(rate([one for one in mine if one.levels[0] == level], lambda one: one.top1))
            for level in range(4)
        ]
        wrong = {
            one.first_codes[0] if one.first_codes else "nothing" for one in mine if not one.top1
        }
        mistaken = [
            f"{code} {count}" for code, count in taken.get(kind, {}).items() if code in wrong
        ]
        yield f"{kind:32} {' '.join(levels):28} {', '.join(mistaken[:3])}"


def _cell(found: Rate) -> str:
    return f"{'-' if found.share is None else f'{found.num_right}/{found.num_all}':>6}"


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal's stderr; nothing where there is none."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
