"""`tokenpath thread`: one request's whole way, from arrival to the kernel that took longest."""

from __future__ import annotations

import argparse
import sys

from tokenpath.cli.arguments import (
    add_input,
    parse_columns,
    progress_bar,
    terminal_width,
    write_text,
)

_EPILOG = """\
examples:
  tokenpath thread o40-00017 run.steps.jsonl.gz otel.jsonl rank0.json.gz
  tokenpath thread cmpl-o40-00017-0 capture/ --json

the same in Python: tokenpath.api.thread
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "thread",
        help="follow one request: queue, steps, batch mates, kernels, gaps",
        description="One request's whole way: when it waited and for what, each step with its batch "
        "mates, what ran inside, and the piece that took longest.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("request", metavar="REQUEST_ID", help="as any of the files names it")
    add_input(parser)
    parser.add_argument("--json", action="store_true", help="as JSON (docs/report-json.md)")
    parser.add_argument("--html", metavar="FILE", help="also write one self-contained page")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from tokenpath.api import thread

    columns = parse_columns(arguments.columns)
    with progress_bar() as progress:
        result = thread(
            arguments.request,
            arguments.paths,
            keep_hosts=arguments.keep_hosts,
            progress=progress,
            columns=columns,
        )
    if arguments.html:
        from tokenpath.export import html

        write_text(arguments.html, html.render(result.report))
    if arguments.json:
        from tokenpath.export import json

        sys.stdout.write(json.render(result.report))
        return 0
    from tokenpath.export import text

    sys.stdout.write(
        text.render(result.report, width=terminal_width(), color=sys.stdout.isatty(), details=True)
    )
    return 0
