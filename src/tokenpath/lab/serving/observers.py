"""Where and when a run happened, and how its requests are called: the same for all who observed it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenpath.lab.serving.records import Run

TABLES_SHARE = 1 / 3
"""Share of scenarios whose client is the load generator of the recorded runs."""
NAMES = ("serve", "run", "bench", "prod", "stage", "load")
_FIRST_UNIX_NS, _SPAN_NS = 1_735_689_600_000_000_000, 30_000_000_000_000_000


@dataclass(frozen=True)
class Names:
    """What luck decides about names and clocks; nothing of it depends on the fault."""

    run: str
    """Name of the run, as files carry it."""
    t0_unix_ns: int
    """Epoch time of the loop's 0."""
    perf_s: float
    """The client's own clock at that time."""
    request: tuple[str, ...]
    """Id of each request, as the client chose it."""
    trace: tuple[str, ...]
    """Trace of each request."""
    span: tuple[tuple[str, str], ...]
    """Spans of each request: the client's, the engine's."""
    has_tables: bool
    """The client writes tables on the engine's clock, instead of a benchmark's result on its own."""


def draw_names(run: Run) -> Names:
    """Names for a run."""
    luck = np.random.default_rng((run.plan.seed, 30))
    n = len(run.sent_ns)
    name = str(luck.choice(NAMES))
    digits = [luck.bytes(32).hex() for _ in range(n)]
    return Names(
        run=f"{name}{int(luck.integers(10, 99))}",
        t0_unix_ns=_FIRST_UNIX_NS + int(luck.integers(_SPAN_NS)),
        perf_s=float(luck.uniform(1e3, 9e5)),
        request=tuple(f"{name}-{k:05d}" for k in range(n)),
        trace=tuple(text[:32] for text in digits),
        span=tuple((text[32:48], text[48:64]) for text in digits),
        has_tables=bool(luck.random() < TABLES_SHARE),
    )
