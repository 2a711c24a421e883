"""Predict all cases at once, as a function of the efficiencies: what the fit evaluates hundreds of times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

import numpy as np
from benchmarks.scoreboard.cases import Case, ClosedLoop, Stages
from benchmarks.scoreboard.quick_loop import MIXED, PREFILL_FIRST, simulate

from tokenpath.simulate.memory import plan_memory
from tokenpath.simulate.physics.classes import engine_release
from tokenpath.simulate.physics.curve import assemble
from tokenpath.simulate.physics.deployment import Deployment
from tokenpath.simulate.physics.efficiency import (
    BY_ENGINE,
    BY_GENERATION,
    BY_RELEASE,
    PRIORS,
    RELEASES,
    SCALES,
    SHARES,
    bent,
    generation,
    prior,
)
from tokenpath.simulate.physics.model import Fitted, physics_model
from tokenpath.simulate.physics.terms import KNOTS, Terms, terms_of

WAVES = 10
"""Requests per concurrency slot: InferenceX sends ten times its concurrency."""
TOKENISER_SHARE = 1.047
"""Prompt tokens over nominal ones in the H100 training runs: random text tokenises longer."""
HASH_BLOCK = 16
OPTIMISM = 0.5
"""vLLM and SGLang admit on the prompt and preempt later: on average half an output is held."""


class Stack:
    """Work of many deployments, as arrays with a leading axis."""

    def __init__(self, deployments: Sequence[Deployment]) -> None:
        """Compute the work once; efficiencies come later."""
        each = [terms_of(d) for d in deployments]
        values: dict[str, Any] = {}
        for field in fields(Terms):
            column = np.array([getattr(t, field.name) for t in each])
            values[field.name] = column if column.ndim == 2 else column[:, None]
        self.terms = SimpleNamespace(**values)
        self.engines = [d.engine for d in deployments]
        self.generations = [generation(d.hardware) for d in deployments]
        self.releases = [engine_release(d) for d in deployments]
        self._rows: dict[str, np.ndarray] = {}
        for name in RELEASES:
            self._rows[name] = np.array([r == name for r in self.releases], dtype=float)
        for name in ("vllm", "sglang", "trtllm"):
            self._rows[name] = np.array([e == name for e in self.engines], dtype=float)
        for name in ("ampere", "ada", "blackwell"):
            self._rows[name] = np.array([g == name for g in self.generations], dtype=float)

    def efficiencies(self, logs: Mapping[str, float], cells: np.ndarray) -> SimpleNamespace:
        """Every number per deployment; `cells` is [n, 4], logarithms of `SCALES`."""
        out: dict[str, Any] = {}
        size = len(self.engines)
        for name in PRIORS:
            total = np.full(size, logs.get(name, prior(name)[0]))
            if name in BY_ENGINE:
                for group in ("vllm", "sglang", "trtllm"):
                    total += logs.get(f"{name}|{group}", 0.0) * self._rows[group]
            if name in BY_GENERATION:
                for group in ("ampere", "ada", "blackwell"):
                    total += logs.get(f"{name}|{group}", 0.0) * self._rows[group]
            if name in BY_RELEASE:
                for group in RELEASES:
                    total += logs.get(f"{name}|{group}", 0.0) * self._rows[group]
            value = np.exp(total)[:, None]
            out[name] = bent(value) if name in SHARES else value
        for index, name in enumerate(SCALES):
            out[name] = np.exp(cells[:, index])[:, None]
        return SimpleNamespace(**out)


@dataclass(frozen=True)
class Curves:
    """Step curves of many cases: tables and coefficients side by side, a row a case."""

    front: np.ndarray
    """[cases, columns]: mixed and decode table, coefficients, host time; what `curve_at` takes apart."""
    back: np.ndarray | None
    """The same of decode workers, for the disaggregated cases alone."""
    front_ns: np.ndarray
    """Time beside the engine, by case."""
    split_index: np.ndarray
    """Cases that `back` is of."""

    def differ(self, other: Curves) -> np.ndarray:
        """Mask of the cases whose curves are not the same."""
        mask: np.ndarray = (self.front != other.front).any(axis=1)
        mask |= self.front_ns != other.front_ns
        if self.back is not None and other.back is not None:
            mask[self.split_index] |= (self.back != other.back).any(axis=1)
        return mask


def assembled(terms: Any, eff: Any) -> np.ndarray:
    """`assemble` of many deployments as one array."""
    mixed, decode, device, host, host_ns = assemble(terms, eff)
    return np.hstack([mixed, decode, device + host, np.asarray(host_ns)[:, None]])


def curve_at(curves: np.ndarray, row: int) -> tuple[Any, Any, Any, float]:
    """Mixed table, decode table, coefficients and host time of a row."""
    knots = len(KNOTS)
    values = curves[row]
    return values[:knots], values[knots : 2 * knots], values[2 * knots : -1], float(values[-1])


class Predictor:
    """All cases of one kind of load, ready to be evaluated."""

    def __init__(self, cases: Sequence[Case], seed: int = 0, shorten: float = 1.0) -> None:
        """Draw lengths and arrivals once, so that predictions change with efficiencies alone.

        `shorten` divides the durations of rate-driven stages.
        """
        self.cases = list(cases)
        self.front = Stack([c.deployment for c in self.cases])
        split = [i for i, c in enumerate(self.cases) if c.decode is not None]
        self.split = {i: k for k, i in enumerate(split)}
        self.back = Stack([self.cases[i].decode for i in split]) if split else None
        self.split_index = np.array(split, dtype=int)
        self.kv = [c.kv_tokens or self._kv(c.deployment, c) for c in self.cases]
        self.traffic = [traffic(c, seed, shorten) for c in self.cases]

    @staticmethod
    def _kv(at: Deployment, case: Case) -> float:
        plan = plan_memory(at, max_tokens=case.max_tokens, max_seqs=256)
        return float(plan.num_tokens)

    def curves(self, logs: Mapping[str, float], cells: np.ndarray) -> Curves:
        """Step curves and front ends of every case."""
        eff = self.front.efficiencies(logs, cells)
        front = assembled(self.front.terms, eff)
        back = None
        if self.back is not None:
            split_eff = self.back.efficiencies(logs, cells[self.split_index])
            back = assembled(self.back.terms, split_eff)
        tokens = np.array([c.load.input_tokens for c in self.cases]) * TOKENISER_SHARE
        front_ns = eff.frontend_ns[:, 0] + tokens * eff.frontend_token_ns[:, 0]
        return Curves(front, back, front_ns, self.split_index)

    def predict(
        self, logs: Mapping[str, float], cells: np.ndarray, only: np.ndarray | None = None
    ) -> list[dict[str, float]]:
        """Metrics of every case, in ms; of those in the mask `only`, the others empty."""
        return self.run(self.curves(logs, cells), only)

    def run(self, curves: Curves, only: np.ndarray | None = None) -> list[dict[str, float]]:
        """Metrics of every case with curves at hand."""
        out: list[dict[str, float]] = []
        for i, case in enumerate(self.cases):
            if only is not None and not only[i]:
                out.append({})
                continue
            front_ns = float(curves.front_ns[i])
            if case.decode is not None and curves.back is not None:
                back = curve_at(curves.back, self.split[i])
                out.append(disaggregated(case, curve_at(curves.front, i), back, front_ns))
            else:
                out.append(self._run(i, case, curve_at(curves.front, i), front_ns))
        return out

    def _run(
        self, i: int, case: Case, curve: tuple[Any, Any, Any, float], front_ns: float
    ) -> dict[str, float]:
        arrival, prompt, cached, output, stage = self.traffic[i]
        first, last = np.empty(len(prompt)), np.empty(len(prompt))
        engine = case.deployment.engine
        simulate(
            arrival.copy(),
            in_flight(case.load),
            prompt,
            cached,
            output,
            KNOTS,
            curve[0],
            curve[1],
            curve[2],
            curve[3],
            case.max_seqs,
            case.max_tokens,
            self.kv[i],
            1.0 if engine == "trtllm" else OPTIMISM,
            PREFILL_FIRST if engine == "sglang" else MIXED,
            1,
            front_ns,
            float(case.recv_interval),
            float(case.wait_steps),
            first,
            last,
        )
        ttft = (first + front_ns) / 1e6
        tpot = (last - first) / np.maximum(output - 1, 1) / 1e6
        if isinstance(case.load, ClosedLoop):
            skipped = 2 * in_flight(case.load) if case.load.is_steady else 0
            ttft, tpot = ttft[skipped:], tpot[skipped:]
            return {
                "ttft_mean_ms": float(ttft.mean()),
                "ttft_median_ms": float(np.median(ttft)),
                "tpot_mean_ms": float(tpot.mean()),
            }
        whole = ttft + (last - first) / 1e6
        out = {}
        for s in sorted(set(stage.tolist())):
            rows = stage == s
            out |= _summary(f"{s}:", ttft[rows], tpot[rows], whole[rows])
        return out | _summary("", ttft, tpot, whole)


def scales_of(cases: Sequence[Case], fitted: Fitted) -> np.ndarray:
    """Logarithms of `SCALES` of each case, by a fit."""
    scales = np.zeros((len(cases), len(SCALES)))
    for row, case in zip(scales, cases, strict=True):
        for key in case.classes:
            row += fitted.classes.get(key, (0.0,) * len(SCALES))
    return scales


def _summary(prefix: str, ttft: Any, itl: Any, whole: Any) -> dict[str, float]:
    return {
        f"{prefix}ttft_mean_ms": float(ttft.mean()),
        f"{prefix}ttft_p90_ms": float(np.quantile(ttft, 0.9)),
        f"{prefix}ttft_p99_ms": float(np.quantile(ttft, 0.99)),
        f"{prefix}itl_mean_ms": float(itl.mean()),
        f"{prefix}e2e_mean_ms": float(whole.mean()),
        f"{prefix}e2e_p90_ms": float(np.quantile(whole, 0.9)),
        f"{prefix}e2e_p99_ms": float(np.quantile(whole, 0.99)),
    }


def in_flight(load: ClosedLoop | Stages) -> int:
    """Requests that a closed loop keeps at the engine; 0: not a closed loop."""
    return load.concurrency + load.num_queued if isinstance(load, ClosedLoop) else 0


def traffic(case: Case, seed: int, shorten: float = 1.0) -> tuple[Any, Any, Any, Any, Any]:
    """Arrivals (ns), prompt, cached and output tokens, stage."""
    rng = np.random.default_rng(seed)
    load = case.load
    if isinstance(load, ClosedLoop):
        count = in_flight(load) * WAVES

        def lengths(nominal: int) -> Any:
            drawn = rng.uniform(load.least_ratio, load.most_ratio, count)
            return np.maximum(1.0, np.round(nominal * drawn))

        zero = np.zeros(count)
        prompt, output = lengths(load.input_tokens), lengths(load.output_tokens)
        return zero, prompt, zero, output, zero
    times, stages, began = [], [], 0.0
    for number, (rate, duration) in enumerate(zip(load.rates, load.durations_s, strict=True)):
        duration /= shorten
        gaps = rng.exponential(1.0, int(rate * duration))
        times.append(began + np.cumsum(gaps) * duration / gaps.sum())
        stages.append(np.full(len(gaps), number))
        began += duration
    arrival = np.concatenate(times) * 1e9
    count = len(arrival)
    prompt = np.full(count, float(round(load.input_tokens * TOKENISER_SHARE)))
    order = np.arange(count)
    blocks = (prompt - 1) // HASH_BLOCK * HASH_BLOCK
    system = load.system_tokens // HASH_BLOCK * HASH_BLOCK
    cached = np.where(order >= load.num_prompts, blocks, 0.0)
    early = (order < load.num_prompts) & (order >= load.num_system_prompts)
    cached[early] = system
    return (
        arrival,
        prompt,
        cached,
        np.full(count, float(load.output_tokens)),
        np.concatenate(stages),
    )


def disaggregated(
    case: Case,
    prefill: tuple[Any, Any, Any, float],
    decode: tuple[Any, Any, Any, float],
    front_ns: float,
) -> dict[str, float]:
    """Closed loop through prefill workers and decode workers, in its mean values.

    Decode: steps of a batch that fills its ranks evenly. Prefill: one request after the other; the slower
    of the two stages sets the rate, and what is not decoding waits for prefill.
    """
    load = case.load
    if isinstance(load, Stages) or case.decode is None:
        raise TypeError("closed loops only")
    ratio = (1 + load.least_ratio) / 2
    prompt, output = load.input_tokens * ratio, load.output_tokens * ratio
    chunks = max(1.0, prompt / case.max_tokens)
    service = (
        chunks * (float(np.interp(prompt / chunks, KNOTS, prefill[0])) + prefill[3])
        + prefill[2][0] * chunks
        + prompt * prefill[2][1]
        + prompt * (prompt + 1) / 2 * prefill[2][3]
    )
    servers = case.workers[0] * case.deployment.dp
    ranks = case.workers[1] * case.decode.dp
    per_server = service / servers
    ttft = service + front_ns
    tpot = 1.0
    for _ in range(30):
        total = ttft + output * tpot
        decoding = load.concurrency * output * tpot / total
        batch = max(1.0, decoding / ranks)
        tpot = (
            float(np.interp(batch, KNOTS, decode[1]))
            + decode[3]
            + batch * (decode[2][4] + decode[2][6] * (prompt + output / 2))
        )
        bound = load.concurrency * per_server - output * tpot
        burst = load.concurrency * per_server / 2 / WAVES
        goal = max(service + front_ns + burst, bound)
        ttft = 0.5 * ttft + 0.5 * goal
    return {"ttft_mean_ms": ttft / 1e6, "ttft_median_ms": ttft / 1e6, "tpot_mean_ms": tpot / 1e6}


def predict_disaggregated(case: Case, fitted: Fitted) -> dict[str, float]:
    """A case with prefill and decode workers of its own, by a fit."""
    if case.decode is None:
        raise TypeError("a disaggregated case is needed")
    curves = []
    for at in (case.deployment, case.decode):
        curve = physics_model(at, fitted).curve
        coefficients = curve.device_coefficients + curve.host_coefficients
        curves.append((curve.mixed_ns, curve.decode_ns, coefficients, curve.host_ns))
    front_ns = physics_model(case.deployment, fitted).frontend_ns_of(case.load.input_tokens)
    return disaggregated(case, curves[0], curves[1], float(front_ns))
