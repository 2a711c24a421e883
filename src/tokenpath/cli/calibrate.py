"""`tokenpath calibrate`: what a step of your engine costs, and how wrong that is where it was not fitted."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tokenpath.cli.arguments import (
    parse_columns,
    progress_bar,
    terminal_width,
    write_text,
)

if TYPE_CHECKING:
    from tokenpath.simulate.scenario import Scenario


_EPILOG = """\
examples:
  tokenpath calibrate run.steps.jsonl.gz --to model.json
  tokenpath calibrate monday/ tuesday/ wednesday/ --to model.json   three runs
  tokenpath calibrate a.steps.jsonl.gz+a.requests.csv --json        one run of two files

  tokenpath calibrate bench.json --model llama-3.1-8b --gpu H100 --to model.json

A run is what one start of an engine recorded: scheduler steps, an iteration log, or
a profiler trace with execute_context_... annotations; with the client's records
beside them delays outside the engine are measured too. With three runs or more each
is left out in turn; with fewer, blocks of time are. A load generator's results have no
steps: there --model and --gpu name the physics that is scaled to the requests' times.

the same in Python: tokenpath.api.calibrate
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "calibrate",
        help="fit what a step costs on your own captures, with its error",
        description="Fit the latency of an engine's steps on captures of it, and measure the error on "
        "steps that were left out of the fit.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="a file, folder or capture each; files of one run joined with +",
    )
    physics = parser.add_argument_group("only for results of a load generator, without steps")
    physics.add_argument("--model", metavar="NAME", help="a known name, or a config.json")
    physics.add_argument("--gpu", metavar="NAME", help="H100, MI300X, ... (docs/hardware.md)")
    physics.add_argument("--engine", metavar="NAME", help="vllm (default), sglang, trtllm")
    physics.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="tp=2, max_num_seqs=64, ..."
    )
    parser.add_argument("--to", metavar="FILE", help="write the model, for tokenpath simulate")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.add_argument("--details", action="store_true", help="with all tables")
    parser.add_argument("--seed", type=int, default=0, help="seed of the resampling (0)")
    parser.add_argument(
        "--keep-hosts", action="store_true", help="keep host names; they are masked by default"
    )
    parser.add_argument(
        "--columns",
        action="append",
        default=[],
        metavar="OURS=THEIRS",
        help="what the columns of a plain CSV file are: arrival_s=start_time,output_tokens=n_out",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from tokenpath.api import calibrate
    from tokenpath.simulate.calibrate import to_json

    with progress_bar() as progress:
        result = calibrate(
            [files_of(text) for text in arguments.runs],
            scenario=_scenario(arguments),
            seed=arguments.seed,
            keep_hosts=arguments.keep_hosts,
            progress=progress,
            columns=parse_columns(arguments.columns),
        )
    if arguments.to:
        write_text(arguments.to, to_json(result.model))
    if arguments.json:
        from tokenpath.export import json

        sys.stdout.write(json.render(result.report))
        return 0
    from tokenpath.export import text

    sys.stdout.write(
        text.render(
            result.report,
            width=terminal_width(),
            color=sys.stdout.isatty(),
            details=arguments.details,
        )
    )
    if arguments.to:
        print(f"\nwritten to {arguments.to}: tokenpath simulate --step-model {arguments.to}")
    return 0


def _scenario(arguments: argparse.Namespace) -> Scenario | None:
    """What was served; None where nothing of it is named."""
    named = [
        f"{name}={value}"
        for name in ("engine", "model", "gpu")
        if (value := getattr(arguments, name)) is not None
    ]
    if not (named or arguments.set):
        return None
    from tokenpath.simulate.scenario import Scenario, with_settings

    return with_settings(Scenario(), [*named, *arguments.set])


def files_of(text: str) -> list[str]:
    """The files of one run: `a+b` is two, unless a file has that very name."""
    return [text] if "+" not in text or Path(text).exists() else [p for p in text.split("+") if p]
