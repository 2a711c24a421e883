"""What must be known to read the metrics of a file, told by what is in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tokenpath.core.histogram import quantile_bounds
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.metrics.mapping import NOTHING, Metric
from tokenpath.ingest.metrics.samples import Samples, Series

MAX_NAMED = 6
"""Metrics that a note names; the others are counted."""

NOTES = {
    "ttft-includes-queue": "Times to first token in {names} count from arrival, queue included; vLLM's "
    "response field time_to_first_token_ms counts from scheduling.",
    "prefill-is-wall-time": "Prefill times in {names} are the wall time between scheduling and first "
    "token, with other requests' work in it: no GPU time.",
    "ratio-named-percent": "{names}: values are ratios from 0 to 1, not per cent, whatever the name says.",
    "histogram-named-total": "{names}: a histogram of tokens per step, not a counter, in spite of its name.",
    "kv-available-differs": "{names}: SGLang's free and evictable tokens have no counterpart in vLLM, "
    "whose free blocks hold cached ones, too; only kv.usage can be compared.",
    "mixed-units": "{names}: milliseconds, GB, MiB, mJ, per cent or microseconds in the source, "
    "converted here to the unit of each row.",
    "gpu-util-is-residency": "{names} says how often any kernel was resident, not how busy the device "
    "was: 100 % can be one thread.",
    "lifetime-average": "{names}: averages since the start or since the last scrape, not of a window; "
    "differences of the counters give that.",
    "predicted-hit-rate": "{names}: predicted when a request was routed, or an upper bound, not measured.",
    "estimated-work": "{names}: computed from the model's shape, not measured; too high for sparse attention.",
}
"""Sentence of each note that the mapping names."""


def add_mapped_notes(builder: CaptureBuilder, metrics: Iterable[Metric]) -> None:
    """Notes that the mapping attaches to metrics that have samples, and those on renamed ones."""
    found = list(metrics)
    for code, sentence in NOTES.items():
        names = [metric.name for metric in found if code in metric.notes]
        if names:
            builder.note(code, sentence.format(names=_named(names)))
    renamed = [
        f"{metric.name} (now {metric.replaced})"
        if metric.replaced != NOTHING
        else f"{metric.name} (gone, no successor)"
        for metric in found
        if metric.replaced is not None
    ]
    if renamed:
        sentence = f"Names of older versions: {_named(renamed)}."
        builder.note("renamed-metric", sentence)


def add_rank_note(builder: CaptureBuilder, series: Sequence[tuple[Series, Metric]]) -> None:
    """A note if there are series of several ranks that must not simply be added."""
    values: dict[tuple[str, str], set[str]] = {}
    for one, metric in series:
        for label, rule in metric.across.items():
            if rule != "sum" and label in one.labels:
                values.setdefault((metric.canonical, label), set()).add(one.labels[label])
    several = sorted(key for key, ranks in values.items() if len(ranks) > 1)
    if several:
        labels = sorted({label for _, label in several})
        names = [f"{name}" for name in dict.fromkeys(name for name, _ in several)]
        builder.note(
            "per-rank-series",
            f"Series of several {' and '.join(labels)} say the same thing more than once: read one, "
            f"never add them: {_named(names)}.",
        )


def add_cache_config_note(builder: CaptureBuilder, families: Iterable[str]) -> None:
    """A note if SGLang is here without the metric that gateways expect of it."""
    names = {family.replace(":", "_").removeprefix("ray_") for family in families}
    has_sglang = any(name.startswith("sglang_") for name in names)
    if has_sglang and "sglang_cache_config_info" not in names:
        builder.note(
            "cache-config-missing",
            "This SGLang exports no sglang:cache_config_info, which llm-d and the Gateway API Inference "
            "Extension read: the cache's size is in page_size, num_pages and max_total_num_tokens.",
        )


def add_resolution_note(
    builder: CaptureBuilder, samples: Samples, mapped: Sequence[tuple[Metric | None, float]]
) -> None:
    """A note on histograms of latency whose median lies in the first bucket, with that bucket's width."""
    buckets: dict[tuple[str, tuple[tuple[str, str], ...]], dict[float, float]] = {}
    for series, value in zip(samples.series_of, samples.values, strict=True):
        one, (metric, scale) = samples.series[series], mapped[series]
        if metric is None or metric.kind != "histogram" or one.kind != "bucket":
            continue
        if metric.unit != "s" or math.isnan(value):
            continue
        bound = bound_of(one, scale)
        if bound is not None:
            rest = tuple(sorted(item for item in one.labels.items() if item[0] != "le"))
            buckets.setdefault((metric.name, rest), {})[bound] = value
    coarse: dict[str, float] = {}
    for (name, _), counts in buckets.items():
        bounds = sorted(counts)
        try:
            found = quantile_bounds(bounds, [counts[bound] for bound in bounds], 0.5)
        except ValueError:
            continue
        if found is not None and found.is_in_first_bucket and math.isfinite(found.upper):
            coarse[name] = found.upper
    if coarse:
        names = [f"{name} (0 to {upper:g} s)" for name, upper in sorted(coarse.items())]
        builder.note(
            "histogram-resolution",
            "The median lies in the first bucket, so it is known no better than that bucket is wide: "
            f"{_named(names)}.",
        )


def bound_of(series: Series, scale: float) -> float | None:
    """The upper bound of a bucket in the metric's unit; None if the label says none."""
    try:
        bound = float(series.labels.get("le", ""))
    except ValueError:
        return None
    return None if math.isnan(bound) else bound * scale


def _named(names: Sequence[str]) -> str:
    shown = list(dict.fromkeys(names))
    rest = len(shown) - MAX_NAMED
    return ", ".join(shown[:MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")
