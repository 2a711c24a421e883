"""Laws and processes as short texts: `lognormal:500,1`, `gamma:4,2.5`, `stages:5x600,10x600`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tokenpath.core.errors import UsageError
from tokenpath.simulate.workload.arrivals import (
    DAY_S,
    ArrivalProcess,
    AtOnce,
    Constant,
    Diurnal,
    Gamma,
    Poisson,
    Weibull,
)
from tokenpath.simulate.workload.changing_rates import MarkovModulated, Stages
from tokenpath.simulate.workload.generate import SharedPrefix, closed_loop_of, open_loop
from tokenpath.simulate.workload.lengths import (
    BodyAndTail,
    Fixed,
    LengthLaw,
    Lognormal,
    Quantiles,
    TwoLaws,
    Uniform,
)
from tokenpath.simulate.workload.sessions import Sessions, sessions
from tokenpath.simulate.workload.workload import Workload

LAWS = (
    "512 · 100:900 (as likely) · nominal:1024 (0.8 to 1.0 of it) · lognormal:MEDIAN,SIGMA · "
    "tail:MEDIAN,SIGMA,FROM,SHARE,POWER · quantiles:0=1,0.5=300,1=4000"
)
PROCESSES = (
    "poisson:RATE · gamma:RATE,CV · weibull:RATE,CV · constant:RATE · at-once · "
    "diurnal:RATE,SWING[,PERIOD_S] · mmpp:RATExSTAY_S,RATExSTAY_S · stages:RATExSECONDS,..."
)


def parse_law(text: str, where: str = "length") -> LengthLaw:
    """A law of lengths from its text (`LAWS`). UsageError for any other text."""
    name, colon, rest = text.strip().partition(":")
    try:
        if not colon:
            return Fixed(int(name))
        if name.isdecimal():
            return Uniform(int(name), int(rest))
        if name == "nominal":
            return Uniform.of_nominal(int(rest))
        if name == "lognormal":
            median, sigma = _numbers(rest, 2)
            return Lognormal(median, sigma)
        if name == "tail":
            median, sigma, begin, share, power = _numbers(rest, 5)
            return BodyAndTail(Lognormal(median, sigma), begin, share, power)
        if name == "quantiles":
            pairs = [pair.split("=") for pair in rest.split(",")]
            return Quantiles(
                tuple(float(share) for share, _ in pairs),
                tuple(float(tokens) for _, tokens in pairs),
            )
    except ValueError:
        pass
    raise UsageError(f"{text!r} is no law of lengths", where=where, allowed=LAWS)


def parse_arrivals(text: str, where: str = "arrivals") -> ArrivalProcess:
    """An arrival process from its text (`PROCESSES`). UsageError for any other text."""
    name, _, rest = text.strip().partition(":")
    makers: dict[str, tuple[int, Callable[..., ArrivalProcess]]] = {
        "poisson": (1, Poisson),
        "gamma": (2, Gamma),
        "weibull": (2, Weibull),
        "constant": (1, Constant),
    }
    try:
        if name == "at-once" and not rest:
            return AtOnce()
        if name in makers:
            count, make = makers[name]
            return make(*_numbers(rest, count))
        if name == "diurnal":
            numbers = _numbers(rest, 3 if rest.count(",") == 2 else 2)
            return Diurnal(numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else DAY_S)
        if name in ("mmpp", "stages"):
            parts = [_numbers(part.replace("x", ","), 2) for part in rest.split(",")]
            if name == "mmpp":
                return MarkovModulated(
                    tuple(rate for rate, _ in parts), tuple(stay for _, stay in parts)
                )
            return Stages(tuple((Poisson(rate), seconds) for rate, seconds in parts))
    except ValueError:
        pass
    raise UsageError(f"{text!r} is no arrival process", where=where, allowed=PROCESSES)


def read_text(path: Path, max_bytes: int) -> bytes:
    """A small file whole. UsageError for one that cannot be read or is larger."""
    try:
        with path.open("rb") as stream:
            content = stream.read(max_bytes + 1)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if len(content) > max_bytes:
        raise UsageError("file too large", where=str(path), allowed=f"{max_bytes >> 20} MiB")
    return content


def _numbers(text: str, count: int) -> list[float]:
    numbers = [float(part) for part in text.split(",")]
    if len(numbers) != count:
        raise ValueError(text)
    return numbers


@dataclass(frozen=True, slots=True)
class Spec:
    """A workload in words, as on the command line."""

    input_tokens: str | None
    """Law of prompts; of a turn's question where there are turns."""
    output_tokens: str | None
    """Law of outputs."""
    requests: int | None = None
    """How many requests (sessions, where there are turns)."""
    duration_s: float | None = None
    """Or for how long."""
    rate: float | None = None
    """Poisson arrivals a second."""
    cv: float | None = None
    """CV of gamma gaps."""
    arrivals: str | None = None
    """Any other process."""
    concurrency: int | None = None
    """Requests in flight at most."""
    prefixes: int | None = None
    """Different system prompts."""
    prefix_tokens: str | None = None
    """Law of their lengths."""
    turns: str | None = None
    """Law of turns of a session."""
    think_s: float = 0.0
    """Mean time between turns."""
    seed: int = 0
    """Same seed, same workload."""


def draw(spec: Spec) -> Workload:
    """The workload that a spec means. UsageError where it says too little or contradicts itself."""
    if spec.input_tokens is None or spec.output_tokens is None:
        raise UsageError(
            "lengths are missing",
            where="workload",
            allowed="--input-tokens LAW --output-tokens LAW",
        )
    given = [
        name
        for name, value in (
            ("--rate", spec.rate), ("--arrivals", spec.arrivals), ("--concurrency", spec.concurrency),
        )
        if value is not None
    ]  # fmt: skip
    if len(given) != 1 or (spec.cv is not None and spec.rate is None):
        raise UsageError(
            "no arrivals"
            if not given
            else f"{' and '.join(given)} together, or --cv without --rate",
            where="workload",
            allowed="one of --rate R [--cv CV], --arrivals PROCESS, --concurrency N",
        )
    if (spec.prefixes is None) != (spec.prefix_tokens is None):
        raise UsageError(
            "half a prefix", where="workload", allowed="--prefixes N --prefix-tokens LAW"
        )
    lengths = TwoLaws(
        parse_law(spec.input_tokens, "--input-tokens"),
        parse_law(spec.output_tokens, "--output-tokens"),
    )
    prefix = None
    if spec.prefixes is not None and spec.prefix_tokens is not None:
        prefix = SharedPrefix(spec.prefixes, parse_law(spec.prefix_tokens, "--prefix-tokens"))
    process = _process(spec)
    if spec.turns is not None:
        return _draw_sessions(spec, process, lengths, prefix)
    if spec.concurrency is not None:
        if spec.requests is None or spec.duration_s is not None:
            raise UsageError("a closed loop without a number of requests", where="--requests")
        return closed_loop_of(
            spec.concurrency, spec.requests, lengths, prefix=prefix, seed=spec.seed
        )
    return open_loop(
        process,
        lengths,
        num_requests=spec.requests,
        duration_s=spec.duration_s,
        prefix=prefix,
        seed=spec.seed,
    )


def _process(spec: Spec) -> ArrivalProcess:
    if spec.arrivals is not None:
        return parse_arrivals(spec.arrivals, "--arrivals")
    if spec.rate is None:
        return AtOnce()
    return Poisson(spec.rate) if spec.cv is None else Gamma(spec.rate, spec.cv)


def _draw_sessions(
    spec: Spec, process: ArrivalProcess, lengths: TwoLaws, prefix: SharedPrefix | None
) -> Workload:
    if spec.requests is None or spec.duration_s is not None or spec.turns is None:
        raise UsageError(
            "sessions without a number",
            where="--requests",
            allowed="--requests N, the number of sessions",
        )
    conversations = Sessions(
        turns=parse_law(spec.turns, "--turns"),
        turn=lengths,
        mean_think_s=spec.think_s,
        prefix=prefix,
    )
    return sessions(
        process, spec.requests, conversations, concurrency=spec.concurrency, seed=spec.seed
    )
