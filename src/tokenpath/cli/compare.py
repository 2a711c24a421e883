"""`tokenpath compare`: what differs between two captures, and where."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tokenpath.cli.arguments import add_input, parse_columns, parse_range, progress_bar, write_text
from tokenpath.core.errors import UsageError

_DESCRIPTION = """\
Take the difference of two captures (A, and B after --against) apart: request,
stage, step, kernel or cause of a gap. The parts add up to it, and what noise
explains is called no difference. A lone + separates several runs of a side.
"""
_EPILOG = """\
examples:
  tokenpath compare before.json.gz --against after.json.gz
  tokenpath compare old/ --against new/ --json              all ranks of two runs
  tokenpath compare a.csv a.steps.jsonl.gz --against b.csv b.steps.jsonl.gz
  tokenpath compare a1 + a2 + a3 + a4 --against b1 + b2 + b3 + b4    sets of runs
  tokenpath compare h100.json --against mi300x.json --html difference.html

the same in Python: tokenpath.api.compare
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "compare",
        help="what differs between two captures, and where?",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_input(parser)
    parser.add_argument(
        "--against", nargs="+", required=True, metavar="FILE", help="the files of B, as those of A"
    )
    window = parser.add_argument_group("window")
    window.add_argument("--steps", metavar="A:B", help="steps A to B-1 of both sides, from 0")
    output = parser.add_argument_group("output")
    output.add_argument("--details", action="store_true", help="with all columns and notes")
    output.add_argument("--json", action="store_true", help="as JSON: the trees are in `facts`")
    output.add_argument("--html", metavar="FILE", help="also write one self-contained page")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from tokenpath.api import compare
    from tokenpath.explain.request import WindowRequest

    start, end = parse_range(arguments.steps)
    window = WindowRequest(start, end)
    with progress_bar() as progress:
        result = compare(
            split_runs(arguments.paths),
            split_runs(arguments.against),
            first_window=window,
            second_window=window,
            keep_hosts=arguments.keep_hosts,
            progress=progress,
            columns=parse_columns(arguments.columns),
        )
    if arguments.html:
        from tokenpath.export import html

        write_text(arguments.html, html.render(result.report))
    if arguments.json:
        from tokenpath.export import json

        sys.stdout.write(json.render(result.report))
        return 0
    from tokenpath.cli.arguments import terminal_width
    from tokenpath.export import text

    sys.stdout.write(
        text.render(
            result.report,
            width=terminal_width(),
            color=sys.stdout.isatty(),
            details=arguments.details,
        )
    )
    return 0


def split_runs(paths: Sequence[str]) -> list[list[str]]:
    """The files of each run; UsageError for a `+` with nothing on one of its sides."""
    runs: list[list[str]] = [[]]
    for path in paths:
        if path == "+":
            runs.append([])
        else:
            runs[-1].append(path)
    if not all(runs):
        raise UsageError(
            "a + with no file on one of its sides", allowed="FILE... + FILE..., one run each"
        )
    return runs
