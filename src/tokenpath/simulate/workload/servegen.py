"""ServeGen's clients: rates and burstiness by window, lengths by window; a workload is drawn from them.

Xiang et al., "ServeGen: workload characterization and generation of large language model serving in
production", 2025: the load of a service is the sum of few clients, each with its own rate, burstiness and
lengths. Their files: a trace of windows (time, rate, CV, distribution of gaps, its shape and scale) and a data
set of lengths (`{window: {"input_tokens": "{tokens: share, ...}", "output_tokens": ...}}`) for each client.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenpath.core.errors import DamagedInput, InputError, UsageError
from tokenpath.simulate.workload.arrivals import NS_PER_S
from tokenpath.simulate.workload.chance import Floats, Purpose, split, stream, uniforms
from tokenpath.simulate.workload.content import nothing_shared
from tokenpath.simulate.workload.generate import MAX_REQUESTS
from tokenpath.simulate.workload.lengths import Table
from tokenpath.simulate.workload.rows import Skip, Skips, read_head
from tokenpath.simulate.workload.trace_csv import names_of, short_name, table_rows
from tokenpath.simulate.workload.workload import NO_REQUEST, Int64s, Workload

MAX_DATASET_BYTES = 2**28
MIN_SHAPE = 0.02
"""Smaller shapes draw gaps that are all 0 but one; they are raised to it."""
_COLUMNS = ("client", "ts", "rate", "cv", "dist", "p1", "p2")
_PAIR = re.compile(r"(\d{1,12})\s*:\s*([0-9.eE+-]{1,40})")
_CLIENT_NUMBER = re.compile(r"chunk-(\d+)-(?:trace\.csv|dataset\.json)")


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one client, ascending; arrays with one entry each."""

    begin_s: Floats
    """When each begins."""
    end_s: Floats
    """When it ends."""
    rate_per_s: Floats
    """Requests a second."""
    shape: Floats
    """Shape of the distribution of gaps."""
    is_weibull: np.ndarray
    """Whether gaps are Weibull; else gamma."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of a client from some moment on."""

    begin_s: float
    """The moment."""
    prompt: Table
    """Prompt tokens."""
    output: Table
    """Output tokens."""


@dataclass(frozen=True, slots=True)
class Client:
    """One client."""

    number: int
    """Its number in the files."""
    windows: Windows | None
    """Its load; None where only lengths are known."""
    lengths: tuple[Lengths, ...]
    """Its lengths, ascending in time; empty where only the load is known."""


@dataclass(frozen=True, slots=True)
class Clients:
    """What the files say."""

    clients: tuple[Client, ...]
    """In the order of their numbers."""
    skips: tuple[Skip, ...] = ()
    """Rows that were left out."""

    def busy_hour_s(self) -> float:
        """When the first hour begins in which the load is at least its mean over those with load.

        InputError where no client has rates.
        """
        windows = [client.windows for client in self.clients if client.windows is not None]
        if not windows:
            raise InputError(
                "no client has rates", where="servegen", next_step="name the rate table too"
            )
        begins = np.concatenate([entry.begin_s for entry in windows])
        load = np.concatenate([entry.rate_per_s for entry in windows])
        hour = (begins // 3600).astype(np.int64)
        total = np.bincount(hour, load)
        busy = total[total > 0]
        return float(np.argmax(total >= busy.mean()) * 3600) if len(busy) else 0.0


def is_servegen(path: Path) -> bool:
    """A rate table of clients, a client's data set of lengths, or a folder with either."""
    if path.is_dir():
        return any(is_servegen(file) for file in _files(path))
    if _CLIENT_NUMBER.fullmatch(path.name) and path.suffix == ".json":
        return True
    return set(_COLUMNS[:4]) <= set(names_of(read_head(path)))


def read_servegen(paths: list[Path]) -> Clients:
    """Clients of rate tables (`client,t_s,rate,cv,dist,p1,p2`) and of `chunk-N-dataset.json` files or folders."""
    files = [file for path in paths for file in (_files(path) if path.is_dir() else [path])]
    windows: dict[int, list[tuple[float, float, float, bool]]] = {}
    lengths: dict[int, tuple[Lengths, ...]] = {}
    skips: list[Skip] = []
    for file in files:
        if file.suffix == ".json":
            match = _CLIENT_NUMBER.fullmatch(file.name)
            if match is None:
                raise DamagedInput(
                    "the name has no client", where=str(file), allowed="chunk-N-dataset.json"
                )
            lengths[int(match[1])] = _read_lengths(file)
        else:
            found = Skips(file)
            _read_windows(file, windows, found)
            skips += found.listed()
    numbers = sorted(windows.keys() | lengths.keys())
    if not numbers:
        raise DamagedInput("no client in it", where=", ".join(map(str, paths)))
    clients = tuple(
        Client(number, _windows(windows.get(number)), lengths.get(number, ())) for number in numbers
    )
    return Clients(clients, tuple(skips))


def draw_servegen(
    clients: Clients,
    *,
    begin_s: float | None = None,
    duration_s: float = 3600.0,
    scale: float = 1.0,
    seed: int = 0,
) -> Workload:
    """A workload of all clients within a stretch of time (from `busy_hour_s` on if not said).

    Each window holds as many requests as its rate says (a fraction is drawn), their gaps of the fitted law,
    stretched to fill it. Clients without lengths draw from those of all others.
    """
    busy_s = clients.busy_hour_s()
    begin_s = busy_s if begin_s is None else begin_s
    if duration_s <= 0 or scale <= 0 or not math.isfinite(duration_s * scale):
        raise UsageError("duration or scale is not above 0", where="servegen", allowed="above 0")
    pool = [part for client in clients.clients for part in client.lengths]
    if not pool:
        raise InputError(
            "no client has lengths",
            where="servegen",
            next_step="name its chunk-N-dataset.json files too",
        )
    arrivals, prompts, outputs, owners = [], [], [], []
    for client in clients.clients:
        if client.windows is None:
            continue
        chance = stream(seed, Purpose.CLIENT, client.number)
        times_rng, prompt_rng, output_rng = split(chance, 3)
        times = _times_s(client.windows, begin_s, begin_s + duration_s, scale, times_rng)
        # Their own lengths of the moment; a client of which none are known takes anybody's.
        known = client.lengths or tuple(pool)
        part = (
            np.searchsorted([entry.begin_s for entry in known], times, side="right") - 1
            if client.lengths
            else times_rng.integers(0, len(known), len(times))
        )
        prompt, output = np.ones(len(times), np.int64), np.ones(len(times), np.int64)
        shares = uniforms(prompt_rng, len(times)), uniforms(output_rng, len(times))
        for number in np.unique(np.maximum(part, 0)):
            chosen = np.maximum(part, 0) == number
            prompt[chosen] = known[number].prompt.at(shares[0][chosen])
            output[chosen] = known[number].output.at(shares[1][chosen])
        arrivals.append(times - begin_s)
        prompts.append(prompt)
        outputs.append(output)
        owners.append(np.full(len(times), client.number))
    return _merged(arrivals, prompts, outputs, f"servegen {duration_s:g} s from {begin_s:g} s on")


def _merged(
    arrivals: list[Floats], prompts: list[Int64s], outputs: list[Int64s], name: str
) -> Workload:
    arrival_ns = np.rint(np.concatenate(arrivals) * NS_PER_S).astype(np.int64)
    order = np.argsort(arrival_ns, kind="stable")
    count = len(order)
    content = nothing_shared(count)
    return Workload(
        name=f"{name}, {count:,} requests",
        state="estimated",
        arrival_ns=arrival_ns[order],
        prompt_tokens=np.concatenate(prompts)[order],
        output_tokens=np.concatenate(outputs)[order],
        priority=np.zeros(count, np.int64),
        after=np.full(count, NO_REQUEST),
        think_ns=np.zeros(count, np.int64),
        session=np.arange(count),
        hash_start=content.hash_start,
        hashes=content.hashes,
        hash_granule_tokens=content.granule_tokens,
    )


def _times_s(
    windows: Windows, begin_s: float, end_s: float, scale: float, rng: np.random.Generator
) -> Floats:
    inside = (windows.begin_s < end_s) & (windows.end_s > begin_s) & (windows.rate_per_s > 0)
    begin, end = windows.begin_s[inside], windows.end_s[inside]
    expected = windows.rate_per_s[inside] * (end - begin) * scale
    if expected.sum() > MAX_REQUESTS:
        raise UsageError(
            f"{expected.sum():,.0f} requests",
            where="servegen",
            allowed=f"up to {MAX_REQUESTS:,}",
            next_step="choose a shorter duration or a smaller scale",
        )
    counts = np.floor(expected + rng.random(len(expected))).astype(np.int64)
    # One gap more than requests: the last one reaches the window's end.
    shape = np.repeat(np.maximum(windows.shape[inside], MIN_SHAPE), counts + 1)
    weibull = np.repeat(windows.is_weibull[inside], counts + 1)
    gaps = np.where(
        weibull, rng.standard_exponential(len(shape)) ** (1 / shape), rng.standard_gamma(shape)
    )
    gaps = np.maximum(gaps, 1e-300)
    if not len(gaps):
        return np.empty(0)
    first = np.cumsum(counts + 1) - (counts + 1)
    width = (end - begin) / np.add.reduceat(gaps, first)
    reached = np.cumsum(gaps * np.repeat(width, counts + 1))
    # The running sum at a window's first gap is that of all windows before.
    before = np.concatenate(([0.0], np.cumsum(end - begin)[:-1]))
    times = reached + np.repeat(begin - before, counts + 1)
    is_end = np.zeros(len(gaps), bool)
    is_end[first + counts] = True
    times = times[~is_end]
    return np.asarray(times[(times >= begin_s) & (times < end_s)])


def _windows(rows: list[tuple[float, float, float, bool]] | None) -> Windows | None:
    if not rows:
        return None
    rows = sorted(rows)
    begin = np.array([row[0] for row in rows])
    # Windows of one length; the last has that of the one before.
    steps = np.diff(begin)
    width = float(np.median(steps[steps > 0])) if (steps > 0).any() else 600.0
    end = np.minimum(begin + width, np.append(begin[1:], np.inf))
    return Windows(
        begin,
        end,
        np.array([row[1] for row in rows]),
        np.array([row[2] for row in rows]),
        np.array([row[3] for row in rows], bool),
    )


def _read_windows(
    path: Path, windows: dict[int, list[tuple[float, float, float, bool]]], skips: Skips
) -> None:
    table = table_rows(path, skips)
    _, header = next(table, (1, []))
    names = [short_name(name) for name in header]
    try:
        at = [names.index(name) for name in _COLUMNS[:6]]
    except ValueError:
        raise DamagedInput(
            "not a rate table of clients", where=f"{path}:1", allowed=",".join(_COLUMNS)
        ) from None
    for number, row in table:
        try:
            client, begin, rate, cv, shape = (
                float(row[at[column]] or 0) for column in (0, 1, 2, 3, 5)
            )
        except (ValueError, IndexError):
            skips.add("a value is missing or no number", number)
            continue
        if not (math.isfinite(begin + rate + cv + shape) and min(begin, rate, client) >= 0):
            skips.add("a value out of range", number)
            continue
        law = row[at[4]].strip().lower()
        # Without a law gaps are gamma with the CV, or by chance: the client was too quiet for a fit.
        own = shape if law in ("gamma", "weibull") and shape > 0 else 1 / (cv * cv or 1.0)
        windows.setdefault(int(client), []).append((begin, rate, own, law == "weibull"))


def _read_lengths(path: Path) -> tuple[Lengths, ...]:
    try:
        if path.stat().st_size > MAX_DATASET_BYTES:
            raise InputError(
                "file too large", where=str(path), allowed=f"{MAX_DATASET_BYTES >> 20} MiB"
            )
        content = json.loads(path.read_bytes())
        parts = [
            Lengths(float(begin), prompt, output)
            for begin, entry in content.items()
            if (prompt := _table_of(entry["input_tokens"])) is not None
            and (output := _table_of(entry["output_tokens"])) is not None
        ]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise DamagedInput(
            "not a data set of lengths",
            where=str(path),
            allowed='{window: {"input_tokens": "{tokens: share}", "output_tokens": ...}}',
        ) from None
    return tuple(sorted(parts, key=lambda part: part.begin_s))


def _table_of(text: str) -> Table | None:
    shares: dict[int, float] = {}
    for tokens, share in _PAIR.findall(text):
        shares[max(int(tokens), 1)] = shares.get(max(int(tokens), 1), 0.0) + float(share)
    used = sorted((tokens, share) for tokens, share in shares.items() if share > 0)
    if not used:
        return None
    try:
        return Table(tuple(pair[0] for pair in used), tuple(pair[1] for pair in used))
    except UsageError as error:
        raise ValueError(str(error)) from None


def _files(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if file.is_file()
        and (
            (file.suffix == ".json" and _CLIENT_NUMBER.fullmatch(file.name))
            or (file.suffix == ".csv" and set(_COLUMNS[:4]) <= set(names_of(read_head(file))))
        )
    )
