"""`tokenpath explain`: where the time went, and what each fix is worth."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenpath.cli.arguments import add_input, parse_columns, parse_range, progress_bar, write_text
from tokenpath.core.errors import UsageError

if TYPE_CHECKING:
    from tokenpath.api.explain import Explained
    from tokenpath.explain.analyses.contract import Options
    from tokenpath.explain.request import WindowRequest

_EPILOG = """\
examples:
  tokenpath explain rank0.json.gz                     the answer, in 80 columns
  tokenpath explain run/ --details                    all ranks, with all tables
  tokenpath explain t.json --steps 10:20 --json       steps 10 to 19, as JSON
  tokenpath explain t.json.gz --requests otel.jsonl --metrics metrics.prom --bench result.json
  tokenpath explain t.json --html report.html         one self-contained page
  tokenpath explain t.json --fail-on 'launch-bound>5%' --fail-on 'idle>10%'
  tokenpath explain t.json --what-if graphs --what-if 'scale family=gemm 0.5'
  tokenpath explain --about launch-bound              what a finding means

the same in Python: tokenpath.api.explain
"""


_BESIDE = (
    ("--requests", "request records: OpenTelemetry spans, request logs"),
    ("--step-log", "the scheduler's steps"),
    ("--metrics", "metric samples: Prometheus text, range queries"),
    ("--bench", "results of a load generator"),
)


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "explain",
        help="where did the time go, and what is each fix worth?",
        description="Explain one trace, or all ranks of a run: the answer, a funnel that closes, "
        "idle time by cause, findings by what fixing them would bring.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_input(parser, optional=True)
    beside = parser.add_argument_group(
        "what is known beside the trace; recognised by content, so it may stand among FILE as well"
    )
    for option, what in _BESIDE:
        beside.add_argument(option, action="append", default=[], metavar="FILE", help=what)
    window = parser.add_argument_group("window")
    window.add_argument("--steps", metavar="A:B", help="steps A to B-1, counted from 0")
    window.add_argument("--from", dest="from_time", metavar="TIME", help="for example 20ms")
    window.add_argument("--to", dest="to_time", metavar="TIME", help="after the first device work")
    parser.add_argument(
        "--usd-per-gpu-hour",
        type=float,
        metavar="USD",
        help="price of one device: losses in money too",
    )
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="CHANGE",
        help="replay the run with a change, and all of them together: 'scale family=gemm 0.5', "
        "'remove sync', 'hide communication', 'graphs', 'gpu h200-sxm-141gb' ... (docs/replay.md)",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--details", action="store_true", help="with all tables")
    output.add_argument("--json", action="store_true", help="as JSON (docs/report-json.md)")
    output.add_argument("--html", metavar="FILE", help="also write one self-contained page")
    output.add_argument("--perfetto", metavar="FILE", help="also write an annotated .json.gz trace")
    output.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="CODE>LIMIT",
        help="exit 1 when a finding, or `idle`, is over a share (5%%) or a time (3ms)",
    )
    parser.add_argument("--about", metavar="CODE", help="what a finding or note means, and stop")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.about is not None:
        from tokenpath.explain.pages import about

        print(about(arguments.about), end="")
        return 0
    paths = [*arguments.paths]
    for option, _ in _BESIDE:
        paths += getattr(arguments, option.strip("-").replace("-", "_"))
    if not paths:
        raise UsageError("no file named", next_step="tokenpath explain FILE..., or --about CODE")
    from tokenpath.cli.limits import broken_limits, parse_limit

    limits = [parse_limit(text) for text in arguments.fail_on]
    window = _window(arguments)
    columns = parse_columns(arguments.columns)
    from tokenpath.api import explain

    options = _options(arguments.usd_per_gpu_hour, arguments.what_if)
    with progress_bar() as progress:
        result = explain(
            paths,
            window=window,
            keep_hosts=arguments.keep_hosts,
            progress=progress,
            columns=columns,
            options=options,
        )
    _write_files(arguments, result)
    if arguments.json:
        from tokenpath.export import json

        sys.stdout.write(json.render(result.report))
    else:
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
    broken = broken_limits(limits, result.report)
    for sentence in broken:
        print(f"tokenpath: check failed: {sentence}", file=sys.stderr)
    return 1 if broken else 0


def _options(usd_per_gpu_hour: float | None, what_ifs: Sequence[str]) -> Options:
    from tokenpath.explain.analyses.contract import Options

    if usd_per_gpu_hour is not None and not 0 < usd_per_gpu_hour < math.inf:
        raise UsageError(
            f"a price of {usd_per_gpu_hour} USD an hour",
            where="--usd-per-gpu-hour",
            allowed="a number above 0",
        )
    if what_ifs:
        # Before the trace is read: a typing mistake should not cost that time.
        from tokenpath.replay.grammar import parse_what_if

        for text in what_ifs:
            parse_what_if(text)
    return Options(usd_per_gpu_hour, tuple(what_ifs))


def _window(arguments: argparse.Namespace) -> WindowRequest:
    from tokenpath.core.units import parse_duration_ns
    from tokenpath.explain.request import WindowRequest

    first, end = parse_range(arguments.steps)
    times: list[int | None] = []
    for option, value in (("--from", arguments.from_time), ("--to", arguments.to_time)):
        try:
            times.append(None if value is None else parse_duration_ns(value))
        except ValueError as error:
            raise UsageError(str(error), where=option, allowed="20ms, 1.5s, 300us") from None
    if arguments.steps is not None and times != [None, None]:
        raise UsageError("--steps and --from/--to exclude each other")
    return WindowRequest(first, end, times[0], times[1])


def _write_files(arguments: argparse.Namespace, result: Explained) -> None:
    if arguments.html:
        from tokenpath.export import html

        write_text(arguments.html, html.render(result.report))
    if arguments.perfetto:
        from tokenpath.api.annotate import annotate
        from tokenpath.api.annotate_requests import annotate_requests
        from tokenpath.export import perfetto

        beside = annotate_requests(result.capture)
        perfetto.write(
            result.capture,
            [*annotate(result.analysis), *beside.annotations],
            arguments.perfetto,
            beside.arrows,
        )
