"""Can a classifier tell the lab's device traces from real ones by statistics of windows? (docs/lab-realism.md)

    python benchmarks/lab_realism.py --real DATA/traces --lab seen/ [--windows 12] [--page docs/lab-realism.md]

Needs numpy only. Traces are read as plain Kineto JSON, one rank a scenario. A window is 400 consecutive device
events of a trace. Logistic regression and boosted stumps, cross-validated with whole traces (families of related
files, whole scenarios) left out. AUC is over windows, each trace with the same weight.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BEGIN, END = "<!-- auc -->\n", "<!-- end of auc -->\n"
WINDOW, FOLDS, SEED = 400, 5, 5
DEVICE_KINDS = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
HOST_KINDS = ("cuda_runtime", "cuda_driver", "Runtime")
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
FAMILIES = {
    "gemm": r"gemm|cublas|cutlass|nvjet|Cijk",
    "attention": r"flash|fmha|attention|paged",
    "communication": r"nccl|rccl|all_?reduce|cross_device",
    "elementwise": r"elementwise|triton_poi|copy|Functor",
    "reduction": r"reduce|norm|softmax|triton_red|triton_per",
    "memory": r"^Mem(cpy|set)",
}
MIX = r"share|^names$|ticks|whole|streams|in trace"
"""Statistics of what ran and on whose clock, rather than of how it behaved in time."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """One file as columns, ordered by start."""

    name: str
    group: str
    is_lab: bool
    is_healthy: bool
    start_us: Floats
    dur_us: Floats
    stream: NDArray[np.int64]
    launch_us: Floats
    """Duration of the call that launched it; NaN when the trace has none."""
    delay_us: Floats
    """Start minus start of that call; NaN when the trace has none."""
    names: list[str]
    is_graph: NDArray[np.bool_]


def read(path: Path, group: str, is_lab: bool, is_healthy: bool) -> Trace | None:
    """None when the file is no Kineto trace or holds less than one window of device work."""
    raw = path.read_bytes()
    try:
        document = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    except ValueError:
        return None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        return None
    calls: dict[int, tuple[float, float]] = {}
    device: list[tuple[float, float, int, int, str, bool]] = []
    for event in events:
        kind, args = event.get("cat"), event.get("args") or {}
        if event.get("ph") != "X":
            continue
        if kind in HOST_KINDS and "correlation" in args:
            calls[args["correlation"]] = (float(event["ts"]), float(event["dur"]))
        elif kind in DEVICE_KINDS:
            lane = args.get("stream", event.get("tid"))
            stream = int(lane) if str(lane).isdigit() else 0
            device.append(
                (
                    float(event["ts"]),
                    float(event["dur"]),
                    stream,
                    args.get("correlation", -1),
                    event["name"],
                    "graph node id" in args or "graph id" in args,
                )
            )
    if len(device) < WINDOW:
        return None
    device.sort()
    start = np.array([row[0] for row in device])
    launches = [calls.get(row[3], (np.nan, np.nan)) for row in device]
    return Trace(
        name=path.name,
        group=group,
        is_lab=is_lab,
        is_healthy=is_healthy,
        start_us=start - start[0],
        dur_us=np.array([row[1] for row in device]),
        stream=np.array([row[2] for row in device]),
        launch_us=np.array([one[1] for one in launches]),
        delay_us=start - np.array([one[0] for one in launches]),
        names=[row[4] for row in device],
        is_graph=np.array([row[5] for row in device]),
    )


def _quantiles(name: str, values: Floats) -> Iterator[tuple[str, float]]:
    known = values[np.isfinite(values)]
    for quantile in QUANTILES:
        value = np.quantile(known, quantile) if known.size else np.nan
        yield f"{name} p{round(100 * quantile)}", float(np.log10(max(value, 0) + 0.01))


def _lag(values: Floats, lag: int) -> float:
    """Autocorrelation; 0 of a constant."""
    a, b = values[:-lag] - values.mean(), values[lag:] - values.mean()
    return float((a * b).mean() / (values.var() + 1e-12))


def features(trace: Trace, begin: int) -> dict[str, float]:
    """Statistics of one window."""
    part = slice(begin, begin + WINDOW)
    start, dur, stream = trace.start_us[part], trace.dur_us[part], trace.stream[part]
    names, delay = trace.names[part], trace.delay_us[part]
    span_ms = max(float((start + dur).max() - start[0]), 1.0) / 1000
    gap = start[1:] - np.maximum.accumulate(start + dur)[:-1]
    main = np.bincount(stream - stream.min()).argmax() + stream.min()
    same = stream == main
    own_gap = start[same][1:] - (start + dur)[same][:-1]
    logs = np.log(dur + 0.01)
    found: dict[str, float] = {}
    found |= _quantiles("duration", dur)
    found |= _quantiles("gap", np.maximum(gap, 0))
    found |= _quantiles("stream gap", np.maximum(own_gap, 0))
    found |= _quantiles("launch call", trace.launch_us[part])
    found |= _quantiles("launch delay", np.maximum(delay, 0))
    found["duration spread"] = float(logs.std())
    found["duration p99/p50"] = float(np.quantile(logs, 0.99) - np.quantile(logs, 0.5))
    by_name: dict[str, list[float]] = {}
    for name, value in zip(names, logs, strict=True):
        by_name.setdefault(name, []).append(float(value))
    spreads = [np.std(values) for values in by_name.values() if len(values) >= 5]
    found["spread within a name"] = float(np.median(spreads)) if spreads else 0.0
    found["largest spread within a name"] = float(np.max(spreads)) if spreads else 0.0
    found["names"] = float(np.log(len(by_name)))
    found["share of the commonest name"] = max(map(len, by_name.values())) / WINDOW
    found["events a ms"] = float(np.log10(WINDOW / span_ms))
    found["busy share"] = float(1 - np.maximum(gap, 0).sum() / (1000 * span_ms))
    found["overlapping starts"] = float((gap < 0).mean())
    found["touching starts"] = float((np.abs(own_gap) < 0.0015).mean())
    found["streams"] = float(len(np.unique(stream)))
    found["share of the main stream"] = float(same.mean())
    found["graph share"] = float(trace.is_graph[part].mean())
    found["launch in trace"] = float(np.isfinite(delay).mean())
    found["whole microseconds"] = float((np.abs(dur - dur.round()) < 1e-4).mean())
    # CUPTI's clock ticks by 32 ns on newer devices.
    ticks = dur * 1000 / 32
    found["duration on 32 ns ticks"] = float((np.abs(ticks - ticks.round()) < 0.02).mean())
    found["distinct durations"] = len(np.unique(dur.round(3))) / WINDOW
    for lag in (1, 2, 8, 13):
        found[f"autocorrelation {lag}"] = _lag(logs, lag)
    for family, pattern in FAMILIES.items():
        is_of = np.array([re.search(pattern, name) is not None for name in names])
        found[f"time share {family}"] = float(dur[is_of].sum() / max(dur.sum(), 1e-9))
        found[f"count share {family}"] = float(is_of.mean())
    return found


# --- classifiers -----------------------------------------------------------------------------------------------


def auc(score: Floats, label: NDArray[np.bool_], weight: Floats) -> float:
    """Chance that a lab window scores above a real one; ties count half."""
    lab, real = score[label], score[~label]
    wins = (lab[:, None] > real[None, :]) + 0.5 * (lab[:, None] == real[None, :])
    weights = weight[label][:, None] * weight[~label][None, :]
    return float((wins * weights).sum() / weights.sum())


def logistic(x: Floats, y: Floats, weight: Floats, penalty: float = 3e-2) -> Floats:
    """Weights of a ridge logistic regression, by Newton steps; the last is the constant."""
    x = np.c_[x, np.ones(len(x))]
    beta = np.zeros(x.shape[1])
    for _ in range(25):
        p = 1 / (1 + np.exp(-np.clip(x @ beta, -30, 30)))
        curve = (x * (weight * p * (1 - p))[:, None]).T @ x + penalty * np.eye(len(beta))
        step = np.linalg.solve(curve, x.T @ (weight * (y - p)) - penalty * beta)
        beta += step
    return beta


def stumps(x: Floats, y: Floats, weight: Floats, num: int = 60) -> list[tuple[int, float, float]]:
    """AdaBoost (Freund and Schapire 1997) over one-threshold rules: (feature, threshold, vote above it)."""
    sign, w, rules = 2 * y - 1, weight / weight.sum(), []
    cuts = np.quantile(x, np.linspace(0.05, 0.95, 19), axis=0)
    above = x[None] > cuts[:, None]
    for _ in range(num):
        edge = np.einsum("cnf,n->cf", np.where(above, 1.0, -1.0), w * sign)
        cut, feature = np.unravel_index(np.abs(edge).argmax(), edge.shape)
        r = float(np.clip(edge[cut, feature], -0.999, 0.999))
        vote = 0.5 * np.log((1 + r) / (1 - r))
        rules.append((int(feature), float(cuts[cut, feature]), float(vote)))
        w = w * np.exp(-sign * vote * np.where(above[cut, :, feature], 1, -1))
        w /= w.sum()
    return rules


def cross_validated(
    x: Floats, label: NDArray[np.bool_], group: NDArray[np.int64], weight: Floats
) -> dict[str, float]:
    """AUC of both classifiers, whole groups left out; groups of either class are dealt to folds apart."""
    dice = np.random.default_rng(SEED)
    fold = np.zeros(len(x), int)
    for value in (True, False):
        own = dice.permutation(np.unique(group[label == value]))
        for place, one in enumerate(own):
            fold[group == one] = place % FOLDS
    scores = {"logistic": np.zeros(len(x)), "stumps": np.zeros(len(x))}
    for one in range(FOLDS):
        train, test = fold != one, fold == one
        mean, std = x[train].mean(0), x[train].std(0) + 1e-9
        a, b = (np.clip((x[rows] - mean) / std, -4, 4) for rows in (train, test))
        y, w = label[train].astype(float), weight[train]
        w = np.where(y > 0, w / w[y > 0].sum(), w / w[y == 0].sum()) * len(y) / 2
        scores["logistic"][test] = np.c_[b, np.ones(len(b))] @ logistic(a, y, w)
        for feature, cut, vote in stumps(a, y, w):
            scores["stumps"][test] += vote * np.where(b[:, feature] > cut, 1, -1)
    # Ranked within the folds' own scale: a fold's constant must not decide.
    return {name: auc(score, label, weight) for name, score in scores.items()}


# --- run -------------------------------------------------------------------------------------------------------


def real_traces(folder: Path, pattern: str) -> Iterator[Trace]:
    """Files of one upstream folder are one group: they may come from one run."""
    for path in sorted(folder.rglob("*.json*")):
        relative = path.relative_to(folder).as_posix()
        if re.search(pattern, relative) and path.stat().st_size > 15_000:
            group = re.sub(
                r"(resnet50_num_workers)_\d|trace_diff/\w+", r"\1", relative.rsplit("/", 1)[0]
            )
            trace = read(path, group, False, True)
            if trace is not None:
                yield trace


def lab_traces(folder: Path) -> Iterator[Trace]:
    """Rank 0 of each scenario; seeds below 8000 are the healthy ones of lab_peers.py."""
    for path in sorted(folder.glob("*/rank0.json.gz")):
        number = int(path.parent.name.lstrip("d"), 10)
        trace = read(path, path.parent.name, True, 7000 <= number < 8000)
        if trace is not None:
            yield trace


def table(traces: Sequence[Trace], num_windows: int) -> tuple[list[str], dict[str, Any]]:
    rows, label, group, weight, healthy = [], [], [], [], []
    groups = {name: place for place, name in enumerate(dict.fromkeys(t.group for t in traces))}
    for trace in traces:
        last = len(trace.names) - WINDOW
        begins = np.unique(
            np.linspace(0, last, min(num_windows, 1 + last // (WINDOW // 2))).astype(int)
        )
        for begin in begins:
            rows.append(features(trace, int(begin)))
            label.append(trace.is_lab)
            group.append(groups[trace.group])
            weight.append(1 / len(begins))
            healthy.append(trace.is_healthy)
    names = list(rows[0])
    x = np.array([[row[name] for name in names] for row in rows])
    return names, {
        "x": np.nan_to_num(x, nan=-2.0),
        "label": np.array(label),
        "group": np.array(group),
        "weight": np.array(weight),
        "healthy": np.array(healthy),
    }


def report(names: Sequence[str], data: dict[str, Any], title: str) -> Iterator[str]:
    x, label, group, weight = (data[key] for key in ("x", "label", "group", "weight"))
    found = cross_validated(x, label, group, weight)
    single = [auc(x[:, place], label, weight) for place in range(len(names))]
    order = sorted(range(len(names)), key=lambda place: -abs(single[place] - 0.5))
    yield f"**{title}**: {len(np.unique(group[label]))} lab scenarios, {len(np.unique(group[~label]))} groups of real"
    yield f"traces, {len(x)} windows. AUC logistic {found['logistic']:.3f}, stumps {found['stumps']:.3f} (goal 0.85)."
    yield ""
    yield "| statistic of a window | AUC alone | lab, median | real, median |"
    yield "|---|---:|---:|---:|"
    for place in order[:14]:
        lab, real = np.median(x[label, place]), np.median(x[~label, place])
        yield f"| {names[place]} | {max(single[place], 1 - single[place]):.2f} | {lab:.2f} | {real:.2f} |"
    yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path, required=True)
    parser.add_argument("--lab", type=Path, required=True)
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--page", type=Path)
    parsed = parser.parse_args()
    lab = list(lab_traces(parsed.lab))
    lines = []
    for title, pattern in (
        (
            "Engines and training alike",
            r"^(hta/(?!mtia|cpu_only|amd)|kineto/resnet|deepseek|param/.*kineto|tracelens/(h100|inference|perf_model)|vllm_tracemap)",
        ),
        (
            "Inference engines only",
            r"^(tracelens/inference/(sglang|vllm)_\w+/(?!capture)|vllm_tracemap)",
        ),
    ):
        real = list(real_traces(parsed.real, pattern))
        names, data = table([*lab, *real], parsed.windows)
        lines += list(report(names, data, title))
        kept = [place for place, name in enumerate(names) if not re.search(MIX, name)]
        shapes = data | {"x": data["x"][:, kept]}
        lines += list(report([names[place] for place in kept], shapes, f"{title}, without the mix"))
    text = "".join(f"{line}\n" for line in lines)
    print(text)
    if parsed.page is not None:
        page = parsed.page.read_text("utf-8")
        begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
        parsed.page.write_text(page[:begin] + text + page[end:], "utf-8")


if __name__ == "__main__":
    main()
