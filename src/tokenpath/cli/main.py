"""Entry point: arguments in, exit code out. Imports nothing heavy before a command runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tokenpath import __version__
from tokenpath.cli import (
    calibrate,
    compare,
    convert,
    explain,
    inspect,
    lab,
    simulate,
    thread,
    workload,
)
from tokenpath.core.errors import TokenpathError

EXIT_OK, EXIT_FAILED_CHECK, EXIT_ERROR, EXIT_INTERRUPTED = 0, 1, 2, 130

_DESCRIPTION = "Follow every token from the request to the GPU kernel: where did the time go?"
_EPILOG = """\
examples:
  tokenpath explain run/rank0.json.gz
  tokenpath explain run/ --html report.html
  tokenpath explain trace.json.gz --requests otel.jsonl --metrics metrics.prom
  tokenpath compare before.json.gz --against after.json.gz
  tokenpath thread REQUEST_ID run.steps.jsonl.gz trace.json.gz
  tokenpath inspect trace.json
  tokenpath convert trace.json.gz --to capture/
  tokenpath workload describe trace.csv
  tokenpath simulate --model llama-3.1-8b --gpu H100 --workload trace.csv

exit codes: 0 fine, 1 a --fail-on check failed, 2 bad input or arguments
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="tokenpath",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tokenpath {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for module in (explain, compare, simulate, thread, inspect, convert, calibrate, workload, lab):
        module.add_command(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; errors that a user can act on become one message and exit code 2."""
    if argv is None and "numpy" not in sys.modules:
        # A process of our own. No BLAS is used here, and starting its threads costs NumPy's import a fifth of a CPU second.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return EXIT_ERROR
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except TokenpathError as error:
        print(f"tokenpath: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("tokenpath: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`| head`): end quietly, also at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except MemoryError:
        print("tokenpath: error: out of memory\n  next: choose a shorter capture", file=sys.stderr)
        return EXIT_ERROR
    return code
