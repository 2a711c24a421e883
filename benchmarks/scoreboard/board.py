"""What a board of measured runs is to the scoreboard: scores in, one table out.

A module of this folder is a board. It has two things:

    BOARD = Board(name=..., title=..., metrics=(...), targets={...})
    def score(data: Path, seed: int, done: frozenset[Key]) -> Iterator[Score]

`data` is the folder of measured sets; scores whose key is in `done` need not be made again. Predictions of
rivals come as scores of their own, with the rival as `system`. Nothing here knows any board.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

OURS = "tokenpath"
"""`system` of our own scores."""
NUM_RESAMPLES = 4000
LEVEL = 0.95
_SAME = 1e-3
"""Two measurements no further apart are one, printed with other digits."""


@dataclass(frozen=True)
class Key:
    """What a score is of."""

    board: str
    """Name of the board."""
    system: str
    """Who predicts: `tokenpath`, or a rival with its version."""
    column: str
    """A: fitted without the evaluation runs; B: without the model family too; as a rival says."""
    run: str
    """The unit: a run of an engine under one load."""
    metric: str
    """What is predicted, such as `ttft_mean_ms`."""


@dataclass(frozen=True)
class Score:
    """One prediction beside its measurement."""

    key: Key
    """What it is of."""
    measured: float
    """As published, in the unit that ends the metric's name."""
    predicted: float | None
    """None: not answered, for `reason`."""
    seed: int | None = None
    """Seed of the simulated run; None: nothing random."""
    version: str | None = None
    """What predicted: version of the fitted model or of the rival."""
    reason: str | None = None
    """Why nothing is predicted."""
    cell: str | None = None
    """Runs of one cell share what decides their error, so they are resampled together; None: on its own."""

    @property
    def relative(self) -> float | None:
        """Predicted over measured, minus 1."""
        return None if self.predicted is None else self.predicted / self.measured - 1.0


@dataclass(frozen=True)
class Board:
    """A set of measured runs."""

    name: str
    """One word."""
    title: str
    """A line for people: what was measured, where it is from."""
    metrics: Sequence[str]
    """In the order of the table."""
    targets: Mapping[str, float] = field(default_factory=dict)
    """Median absolute error to reach, by metric."""


@dataclass(frozen=True)
class Line:
    """One line of the table: a system on a metric."""

    board: str
    system: str
    column: str
    metric: str
    num_runs: int
    """Runs measured; of our own lines all that any system was asked about, scored yet or not."""
    num_answered: int
    """Runs predicted."""
    median_abs: float | None
    """Median of |predicted / measured - 1| over the answered runs."""
    median_abs_low: float | None
    """Lower end of its bootstrap interval."""
    median_abs_high: float | None
    """Upper end."""
    p90_abs: float | None
    """90th percentile of the same."""
    bias: float | None
    """Median of predicted / measured - 1."""
    verdict: str
    """Ours against this rival on the runs that both answer; empty for our own lines."""


def load(path: Path) -> dict[Key, Score]:
    """Scores written before; the last of a key counts."""
    if not path.exists():
        return {}
    scores = {}
    for line in path.read_text("utf-8").splitlines():
        entry = json.loads(line)
        score = Score(Key(**entry.pop("key")), **entry)
        scores[score.key] = score
    return scores


def append(path: Path, scores: Iterable[Score]) -> Iterator[Score]:
    """Write scores as they come, so that an interrupted job goes on where it stopped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as out:
        for score in scores:
            out.write(json.dumps(asdict(score)) + "\n")
            out.flush()
            yield score


def table(board: Board, scores: Iterable[Score], *, seed: int = 0) -> list[Line]:
    """The lines of one board: ours first, then rivals by name."""
    groups: dict[tuple[str, str, str], dict[str, Score]] = defaultdict(dict)
    for score in scores:
        if score.key.board == board.name:
            key = score.key
            groups[(key.system, key.column, key.metric)][key.run] = score
    asked: dict[str, set[str]] = defaultdict(set)
    for (_, _, metric), runs in groups.items():
        asked[metric] |= runs.keys()
    lines = []
    for system, column, metric in sorted(groups, key=lambda k: (k[0] != OURS, k[0], k[1])):
        if metric not in board.metrics:
            continue
        own = groups.get((OURS, "A", metric), {})
        mine = groups[(system, column, metric)]
        verdict = "" if system == OURS else compare(own, mine, seed=seed)
        num_runs = len(asked[metric]) if system == OURS else len(mine)
        line = _line(board.name, (system, column, metric), mine, verdict, seed)
        lines.append(replace(line, num_runs=num_runs))
    return lines


def compare(ours: Mapping[str, Score], rival: Mapping[str, Score], *, seed: int = 0) -> str:
    """Paired difference of absolute errors (ours minus theirs) over the runs that both answer, if both are held
    against the same measurement.

    The median difference with its percentile-bootstrap interval over cells (Efron, Tibshirani 1993, ch. 13);
    an interval that holds 0 is "no difference".
    """
    pairs = [
        (abs(a), abs(b), score.cell or run)
        for run, score in ours.items()
        if run in rival
        and (a := score.relative) is not None
        and (b := rival[run].relative) is not None
        and math.isclose(score.measured, rival[run].measured, rel_tol=_SAME)
    ]
    if len(pairs) < 3:
        return f"{len(pairs)} runs in common"
    both = np.array([pair[:2] for pair in pairs], dtype=np.float64)
    difference = both[:, 0] - both[:, 1]
    low, high = interval(difference, [pair[2] for pair in pairs], seed=seed)
    said = f"{100 * np.median(difference):+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
    word = "better" if high < 0 else "worse" if low > 0 else "no difference"
    return f"{word}: {said} points, {len(pairs)} runs"


def interval(
    values: np.ndarray, cells: Sequence[str] | None = None, *, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap interval of the median; whole cells are resampled, each value its own without any."""
    numbers = np.asarray(values)
    _, owner = np.unique(
        np.arange(len(numbers)) if cells is None else np.asarray(cells), return_inverse=True
    )
    random = np.random.default_rng(seed)
    num_cells = int(owner.max()) + 1
    drawn = random.integers(0, num_cells, (NUM_RESAMPLES, num_cells))
    order = np.argsort(numbers, kind="stable")
    # How often each value is drawn, in ascending order of values: the median is where half is passed.
    counts = np.zeros((NUM_RESAMPLES, num_cells), dtype=np.int64)
    np.add.at(counts, (np.arange(NUM_RESAMPLES)[:, None], drawn), 1)
    passed = np.cumsum(counts[:, owner[order]], axis=1)
    total = passed[:, -1:]
    upper = (passed > total // 2).argmax(axis=1)
    lower = (passed >= (total + 1) // 2).argmax(axis=1)
    medians = (numbers[order][lower] + numbers[order][upper]) / 2
    low, high = np.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def render(board: Board, lines: Sequence[Line]) -> str:
    """The table in Markdown."""
    text = [
        f"## {board.title}",
        "",
        (
            "| system | column | metric | target % | median error % (interval) | p90 % | bias % | answered | "
            "tokenpath (A) against it |"
        ),
        "|---|---|---|---:|---|---:|---:|---:|---|",
    ]
    for metric in board.metrics:
        for line in (x for x in lines if x.metric == metric):
            goal = board.targets.get(metric)
            target = "-" if goal is None or line.system != OURS else f"{100 * goal:.3g}"
            if line.median_abs is None or line.p90_abs is None or line.bias is None:
                cells = "- | - | -"
            else:
                low, high = line.median_abs_low or 0.0, line.median_abs_high or 0.0
                cells = (
                    f"{100 * line.median_abs:.1f} ({100 * low:.1f} to {100 * high:.1f}) | "
                    f"{100 * line.p90_abs:.1f} | {100 * line.bias:+.1f}"
                )
            text.append(
                f"| {line.system} | {line.column} | {metric} | {target} | {cells} | "
                f"{line.num_answered} of {line.num_runs} | {line.verdict} |"
            )
    return "\n".join([*text, ""])


def _line(
    board: str, name: tuple[str, str, str], scores: Mapping[str, Score], verdict: str, seed: int
) -> Line:
    relative = np.array([r for s in scores.values() if (r := s.relative) is not None])
    if not len(relative):
        return Line(board, *name, len(scores), 0, None, None, None, None, None, verdict)
    absolute = np.abs(relative)
    cells = [s.cell or run for run, s in scores.items() if s.predicted is not None]
    low, high = interval(absolute, cells, seed=seed)
    return Line(
        board,
        *name,
        len(scores),
        len(relative),
        float(np.median(absolute)),
        low,
        high,
        float(np.quantile(absolute, 0.9)),
        float(np.median(relative)),
        verdict,
    )
