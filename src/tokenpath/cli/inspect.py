"""`tokenpath inspect`: what a file is, and what it holds."""

from __future__ import annotations

import argparse
import sys

from tokenpath.cli.arguments import add_input, parse_columns, progress_bar, terminal_width

_EPILOG = """\
examples:
  tokenpath inspect trace.json.gz
  tokenpath inspect run/ --json

the same in Python: tokenpath.api.inspect
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "inspect",
        help="what is this file, and what does it hold?",
        description="Sources, devices, tables, steps, and every event that was skipped, by reason.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_input(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from tokenpath.api import inspect

    columns = parse_columns(arguments.columns)
    with progress_bar() as progress:
        report = inspect(
            arguments.paths, keep_hosts=arguments.keep_hosts, progress=progress, columns=columns
        )
    if arguments.json:
        from tokenpath.export import json

        sys.stdout.write(json.render(report))
    else:
        from tokenpath.export import text

        sys.stdout.write(
            text.render(report, width=terminal_width(), color=sys.stdout.isatty(), details=True)
        )
    return 0
