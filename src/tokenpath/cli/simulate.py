"""`tokenpath simulate`: what a workload would do on some engine, GPU and configuration."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokenpath.cli.arguments import (
    parse_columns,
    progress_bar,
    terminal_width,
    write_text,
)
from tokenpath.core.errors import UsageError

if TYPE_CHECKING:
    from tokenpath.core.report import Report
    from tokenpath.simulate.calibrate import CalibratedStepModel
    from tokenpath.simulate.scenario import Scenario
    from tokenpath.simulate.workload.spec import Spec
    from tokenpath.simulate.workload.workload import Workload

_EPILOG = """\
examples:
  tokenpath simulate --model llama-3.1-8b --gpu H100 --rate 4 --requests 500 \\
      --input-tokens lognormal:800,1 --output-tokens 50:300 --slo ttft=500ms,tpot=50ms
  tokenpath simulate --model config.json --gpu H200 --engine sglang --set tp=2 \\
      --workload conversation_trace.jsonl --replicas 4 --router kv-aware
  tokenpath simulate --from run.steps.jsonl.gz --set max_num_seqs=32
  tokenpath simulate --model qwen3-32b --gpu H100 --concurrency 64 --requests 640 \\
      --input-tokens 1024 --output-tokens 256 --to run/ --html run.html
  tokenpath simulate compare run/ bench_result.json      simulated against measured

lengths and arrivals are written as in `tokenpath workload generate --help`
settings: the engine's own names (max_num_seqs, block_size, ...) and tp, pp, dp, ep,
  replicas, decode_replicas, num_blocks, gpu_memory_utilization, ..., and dotted ones:
  router.policy, transfer.link, tiers.host_bytes, speculation.num_drafts, client.send_ns

the same in Python: tokenpath.api.simulate, simulate_from, compare_runs
"""
_DETAILS = ("request", "step", "token")


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "simulate",
        help="what would this workload do on that engine, GPU and configuration?",
        description="Simulate a workload on a deployment that need not exist: latency percentiles with "
        "intervals, throughput, goodput, KV use, preemptions, and where the latency would go.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "compared",
        nargs="*",
        metavar="compare A B",
        help="two runs side by side, instead of a new one",
    )
    deployed = parser.add_argument_group("deployment")
    deployed.add_argument("--model", metavar="NAME", help="a known name, or a config.json")
    deployed.add_argument(
        "--gpu", metavar="NAME", help="H100, H200, MI300X, ... (docs/hardware.md)"
    )
    deployed.add_argument("--engine", metavar="NAME", help="vllm (default), sglang, trtllm")
    deployed.add_argument("--replicas", type=int, metavar="N", help="replicas behind a router")
    deployed.add_argument(
        "--router", metavar="NAME", help="round-robin, least-load, prefix-affine, kv-aware"
    )
    deployed.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any other setting"
    )
    deployed.add_argument(
        "--step-model", metavar="FILE", help="step latency as `tokenpath calibrate` wrote it"
    )
    load = parser.add_argument_group("workload: a file, or drawn")
    load.add_argument("--workload", action="append", default=[], metavar="FILE")
    load.add_argument(
        "--from", dest="recorded", action="append", default=[], metavar="CAPTURE",
        help="a recorded run: its workload, its settings, its step latency",
    )  # fmt: skip
    load.add_argument("--rate", type=float, metavar="R", help="Poisson arrivals a second")
    load.add_argument("--cv", type=float, help="burstiness: CV of the gaps between them")
    load.add_argument("--arrivals", metavar="PROCESS", help="any other process")
    load.add_argument("--concurrency", type=int, metavar="N", help="closed loop of N requests")
    load.add_argument("--requests", type=int, metavar="N", help="how many requests")
    load.add_argument("--input-tokens", metavar="LAW", help="prompt lengths")
    load.add_argument("--output-tokens", metavar="LAW", help="output lengths")
    load.add_argument("--prefixes", type=int, metavar="N", help="different shared prefixes")
    load.add_argument("--prefix-tokens", metavar="LAW", help="their lengths")
    load.add_argument("--turns", metavar="LAW", help="turns of a session")
    load.add_argument(
        "--think", type=float, default=0.0, metavar="S", help="mean time between turns"
    )
    load.add_argument("--seed", type=int, default=0, help="same seed, same run")
    load.add_argument(
        "--columns", action="append", default=[], metavar="OURS=THEIRS",
        help="what the columns of a plain CSV file are",
    )  # fmt: skip
    output = parser.add_argument_group("output")
    output.add_argument("--slo", metavar="LIMITS", help="ttft=500ms,tpot=50ms,e2e=10s")
    output.add_argument(
        "--draws", type=int, default=40, metavar="N", help="runs for the intervals (40); 0: none"
    )
    output.add_argument("--detail", choices=_DETAILS, help="what the capture keeps")
    output.add_argument("--to", metavar="FOLDER", help="write the run as a capture")
    output.add_argument("--run-overload", action="store_true", help="do not stop on overload")
    output.add_argument("--details", action="store_true", help="with all tables")
    output.add_argument("--json", action="store_true", help="as JSON (docs/report-json.md)")
    output.add_argument("--html", metavar="FILE", help="also write one self-contained page")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.compared:
        return _compare(arguments)
    if arguments.draws not in (0, *range(2, 1001)):
        raise UsageError(
            f"{arguments.draws} draws", where="--draws", allowed="0 (no intervals), or 2 to 1000"
        )
    if arguments.recorded:
        return _what_if(arguments)
    from tokenpath.api import simulate

    step_model = _step_model(arguments)
    scenario = _scenario(arguments, step_model)
    workload, spec = _workload(arguments)
    redraw = None
    if spec is not None:
        from tokenpath.simulate.workload.spec import draw

        def redraw(seed: int) -> Workload:
            return draw(replace(spec, seed=seed))

    done = simulate(
        scenario,
        workload,
        step_model=step_model,
        redraw=redraw,
        num_draws=arguments.draws,
        seed=arguments.seed,
        detail=arguments.detail,
        to=arguments.to,
        stops_on_overload=not arguments.run_overload,
        notify=_notify if sys.stderr.isatty() else None,
    )
    if sys.stderr.isatty():
        _notify("")
    _show(arguments, done.report)
    return 0


def _notify(text: str) -> None:
    """One line that the next one overwrites."""
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()


def _compare(arguments: argparse.Namespace) -> int:
    if arguments.compared[0] != "compare" or len(arguments.compared) != 3:
        raise UsageError(
            f"simulate {' '.join(arguments.compared)}",
            allowed="simulate compare A B, or simulate with options alone",
            next_step="tokenpath simulate --help",
        )
    from tokenpath.api import compare_runs

    _, first, second = arguments.compared
    with progress_bar() as progress:
        report = compare_runs(
            [first],
            [second],
            names=(first, second),
            progress=progress,
            columns=parse_columns(arguments.columns),
        )
    _show(arguments, report)
    return 0


def _what_if(arguments: argparse.Namespace) -> int:
    from tokenpath.api import simulate_from

    for option in (
        "model",
        "gpu",
        "engine",
        "replicas",
        "router",
        "step_model",
        "rate",
        "concurrency",
    ):
        if getattr(arguments, option) is not None:
            name = option.replace("_", "-")
            raise UsageError(
                f"--{name} beside --from",
                allowed="--set KEY=VALUE for what should differ from the recording",
                next_step=f"--set {option}=...",
            )
    with progress_bar() as progress:
        first, second = simulate_from(
            arguments.recorded,
            arguments.set,
            num_draws=arguments.draws,
            seed=arguments.seed,
            progress=progress,
            columns=parse_columns(arguments.columns),
        )
    done = second or first
    if arguments.to is not None:
        from tokenpath.capture.parquet import write_capture

        write_capture(done.capture, Path(arguments.to))
    _show(arguments, done.report)
    return 0


def _scenario(arguments: argparse.Namespace, step_model: CalibratedStepModel | None) -> Scenario:
    """What the arguments say; where they do not, what the step model's own recordings say of their engine."""
    from tokenpath.simulate.scenario import Scenario, parse_slo, scenario_of, with_settings

    named = {
        name: getattr(arguments, name)
        for name in ("model", "gpu", "engine", "replicas")
        if getattr(arguments, name) is not None
    }
    if arguments.slo is not None:
        named["slo"] = parse_slo(arguments.slo)
    base = Scenario() if step_model is None else scenario_of(step_model.settings)
    settings = [f"router.policy={arguments.router}"] if arguments.router is not None else []
    return with_settings(replace(base, **named), [*settings, *arguments.set])


def _workload(arguments: argparse.Namespace) -> tuple[Workload, Spec | None]:
    """The requests, and the law that they were drawn by."""
    from tokenpath.simulate.workload.spec import Spec, draw

    drawn = ("rate", "cv", "arrivals", "concurrency", "input_tokens", "output_tokens", "turns")
    if arguments.workload:
        beside = [name for name in drawn if getattr(arguments, name) is not None]
        if beside:
            raise UsageError(
                f"--{beside[0].replace('_', '-')} beside --workload",
                allowed="a workload file, or laws to draw one by",
            )
        from tokenpath.api.workload import workload
        from tokenpath.simulate.workload.transform import first

        with progress_bar() as progress:
            read = workload(
                arguments.workload,
                seed=arguments.seed,
                progress=progress,
                columns=parse_columns(arguments.columns),
            )
        return (
            read.workload
            if arguments.requests is None
            else first(read.workload, arguments.requests)
        ), None
    spec = Spec(
        input_tokens=arguments.input_tokens,
        output_tokens=arguments.output_tokens,
        requests=arguments.requests,
        rate=arguments.rate,
        cv=arguments.cv,
        arrivals=arguments.arrivals,
        concurrency=arguments.concurrency,
        prefixes=arguments.prefixes,
        prefix_tokens=arguments.prefix_tokens,
        turns=arguments.turns,
        think_s=arguments.think,
        seed=arguments.seed,
    )
    return draw(spec), spec


def _step_model(arguments: argparse.Namespace) -> CalibratedStepModel | None:
    if arguments.step_model is None:
        return None
    from tokenpath.simulate.calibrate import read_model

    return read_model(arguments.step_model)


def _show(arguments: argparse.Namespace, report: Report) -> None:
    if arguments.html:
        from tokenpath.export import html

        write_text(arguments.html, html.render(report))
    if arguments.json:
        from tokenpath.export import json

        sys.stdout.write(json.render(report))
        return
    from tokenpath.export import text

    sys.stdout.write(
        text.render(
            report,
            width=terminal_width(),
            color=sys.stdout.isatty(),
            details=arguments.details,
        )
    )
