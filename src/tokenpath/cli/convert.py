"""`tokenpath convert`: a trace to a capture folder of Parquet files."""

from __future__ import annotations

import argparse

from tokenpath.cli.arguments import add_input, parse_columns, progress_bar

_EPILOG = """\
examples:
  tokenpath convert trace.json.gz --to capture/
  tokenpath explain capture/

the tables are described in docs/tables.md; the same in Python: tokenpath.api.convert
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "convert",
        help="a trace to a capture folder of Parquet files",
        description="Read, link and validate a trace, and write its tables as Parquet files.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_input(parser)
    parser.add_argument("--to", required=True, metavar="FOLDER", help="a new or empty folder")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from tokenpath.api import convert

    columns = parse_columns(arguments.columns)
    with progress_bar() as progress:
        capture = convert(
            arguments.paths,
            arguments.to,
            keep_hosts=arguments.keep_hosts,
            progress=progress,
            columns=columns,
        )
    rows = sum(capture.num_rows(name) for name in capture)
    print(f"{rows:,} rows in {len(list(capture))} tables written to {arguments.to}")
    return 0
