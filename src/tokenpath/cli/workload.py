"""`tokenpath workload`: what is asked of a deployment, described, fitted and drawn."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tokenpath.cli.arguments import (
    add_input,
    parse_columns,
    progress_bar,
    terminal_width,
    write_pieces,
    write_text,
)
from tokenpath.core.errors import UsageError

if TYPE_CHECKING:
    from tokenpath.core.report import Report
    from tokenpath.simulate.workload.rows import ReadWorkload
    from tokenpath.simulate.workload.workload import Workload

_EPILOG = """\
examples:
  tokenpath workload describe conversation_trace.jsonl
  tokenpath workload describe bench_results.json          a recorded run
  tokenpath workload fit trace.csv --to model.json
  tokenpath workload generate --model model.json --requests 10000 --seed 7 --to load.jsonl
  tokenpath workload generate --rate 4 --requests 500 \\
      --input-tokens lognormal:800,1 --output-tokens 50:300 --to load.jsonl

files: Azure's, Mooncake's, BurstGPT's and ServeGen's traces, LLMServingSim's workloads,
lists of lengths, our own .jsonl, and all that `tokenpath inspect` knows requests of.

the same in Python: tokenpath.api.workload, describe_workload, fit_workload
"""
_GENERATE = """\
lengths:  512 | 100:900 | nominal:1024 | lognormal:MEDIAN,SIGMA |
          tail:MEDIAN,SIGMA,FROM,SHARE,POWER | quantiles:0=1,0.5=300,1=4000
arrivals: poisson:RATE | gamma:RATE,CV | weibull:RATE,CV | constant:RATE | at-once |
          diurnal:RATE,SWING[,PERIOD_S] | mmpp:RATExSTAY_S,RATExSTAY_S |
          stages:RATExSECONDS,RATExSECONDS
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "workload",
        help="describe, fit and generate the load of a deployment",
        description="What is asked of a deployment: arrivals, lengths, shared content, sessions.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    described = verbs.add_parser(
        "describe", help="rates, burstiness, lengths, shared content, sessions"
    )
    _add_source(described)
    described.add_argument("--json", action="store_true", help="the report as JSON")
    described.set_defaults(run=_describe)
    fitted = verbs.add_parser("fit", help="a model that draws workloads like this one")
    _add_source(fitted)
    fitted.add_argument("--to", metavar="FILE", help="write the model")
    fitted.add_argument("--json", action="store_true", help="the report as JSON")
    fitted.set_defaults(run=_fit)
    generated = verbs.add_parser(
        "generate",
        help="draw a workload from a model or from numbers",
        epilog=_GENERATE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_spec(generated)
    generated.set_defaults(run=_generate)


def _add_source(parser: argparse.ArgumentParser) -> None:
    add_input(parser)
    parser.add_argument("--from-s", type=float, metavar="S", help="begin of the stretch to read")
    parser.add_argument("--duration-s", type=float, metavar="S", help="its length")
    parser.add_argument(
        "--loop",
        choices=("auto", "open", "closed"),
        default="auto",
        help="how a recorded run is taken (auto: as it looks)",
    )
    parser.add_argument("--output-tokens", metavar="LAW", help="for lists of prompt lengths alone")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn for ServeGen (0)")


def _add_spec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="FILE", help="a model of `workload fit`")
    parser.add_argument("--rate", type=float, metavar="R", help="Poisson arrivals a second")
    parser.add_argument("--cv", type=float, help="with --rate: CV of gamma gaps (1)")
    parser.add_argument("--arrivals", metavar="PROCESS", help="any other arrivals, see below")
    parser.add_argument("--concurrency", type=int, metavar="N", help="a closed loop")
    parser.add_argument("--requests", type=int, metavar="N", help="how many")
    parser.add_argument("--duration-s", type=float, metavar="S", help="or for how long")
    parser.add_argument("--input-tokens", metavar="LAW", help="prompt (of a turn: question)")
    parser.add_argument("--output-tokens", metavar="LAW", help="output")
    parser.add_argument("--prefixes", type=int, metavar="N", help="different system prompts")
    parser.add_argument("--prefix-tokens", metavar="LAW", help="tokens of a system prompt")
    parser.add_argument("--turns", metavar="LAW", help="sessions of so many turns each")
    parser.add_argument("--think-s", type=float, default=0.0, help="mean time between turns (0)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same workload (0)")
    parser.add_argument("--to", metavar="FILE", help="a .jsonl or .csv file; else .jsonl on stdout")


def _describe(arguments: argparse.Namespace) -> int:
    from tokenpath.api import describe_workload

    return _show(describe_workload(_read(arguments)).report, arguments.json)


def _fit(arguments: argparse.Namespace) -> int:
    import json

    from tokenpath.api import fit_workload

    result = fit_workload(_read(arguments))
    if arguments.to:
        write_text(arguments.to, json.dumps(result.model.to_json()) + "\n")
    return _show(result.report, arguments.json)


def _generate(arguments: argparse.Namespace) -> int:
    from tokenpath.simulate.workload.own_format import to_csv, to_jsonl

    drawn = _drawn(arguments)
    is_csv = bool(arguments.to) and Path(arguments.to).suffix == ".csv"
    pieces = (to_csv if is_csv else to_jsonl)(drawn)
    if arguments.to:
        write_pieces(arguments.to, pieces)
        from tokenpath.api import describe_workload

        return _show(describe_workload(drawn).report, False)
    for piece in pieces:
        sys.stdout.write(piece)
    return 0


def _read(arguments: argparse.Namespace) -> ReadWorkload:
    from tokenpath.api import workload
    from tokenpath.simulate.workload.spec import parse_law

    law = arguments.output_tokens
    with progress_bar() as progress:
        return workload(
            arguments.paths,
            output=parse_law(law, "--output-tokens") if law else None,
            begin_s=arguments.from_s,
            duration_s=arguments.duration_s,
            closed_loop={"auto": None, "open": False, "closed": True}[arguments.loop],
            seed=arguments.seed,
            keep_hosts=arguments.keep_hosts,
            progress=progress,
            columns=parse_columns(arguments.columns),
        )


def _drawn(arguments: argparse.Namespace) -> Workload:
    from tokenpath.simulate.workload.model import MAX_MODEL_BYTES, from_json
    from tokenpath.simulate.workload.spec import Spec, draw, read_text

    others = ("rate", "cv", "arrivals", "concurrency", "input_tokens", "output_tokens", "turns",
              "prefixes", "prefix_tokens", "duration_s")  # fmt: skip
    if arguments.model is not None:
        extra = [name for name in others if getattr(arguments, name) is not None]
        if extra or arguments.requests is None:
            raise UsageError(
                f"--model with --{extra[0].replace('_', '-')}" if extra else "no --requests",
                where="workload generate",
                allowed="--model FILE --requests N --seed S",
            )
        text = read_text(Path(arguments.model), MAX_MODEL_BYTES)
        return from_json(text, arguments.model).generate(arguments.requests, arguments.seed)
    return draw(
        Spec(
            **{name: getattr(arguments, name) for name in (*others, "requests", "think_s", "seed")}
        )
    )


def _show(report: Report, as_json: bool) -> int:
    if as_json:
        from tokenpath.export import json

        sys.stdout.write(json.render(report))
        return 0
    from tokenpath.export import text

    sys.stdout.write(text.render(report, width=terminal_width(), color=sys.stdout.isatty()))
    return 0
