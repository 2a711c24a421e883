"""Samples of one file: series once, values as columns."""

from __future__ import annotations

from dataclasses import dataclass, field

NO_TIME = -(2**63)
"""A sample without a time; it never leaves this package."""

_SUFFIXES: dict[str, dict[str, str]] = {
    "counter": {"": "counter", "_total": "counter", "_created": "gauge"},
    "histogram": {
        "_bucket": "bucket",
        "_sum": "sum",
        "_count": "count",
        "_created": "gauge",
    },
    "gaugehistogram": {"_bucket": "bucket", "_gsum": "sum", "_gcount": "count"},
    "summary": {"": "quantile", "_sum": "sum", "_count": "count", "_created": "gauge"},
    "gauge": {"": "gauge"},
    "info": {"": "info", "_info": "info"},
    "stateset": {"": "gauge"},
}
"""Kind of a sample by the declared type of its family and what its name adds to that
(https://prometheus.io/docs/specs/om/open_metrics_spec/)."""


@dataclass(frozen=True)
class Series:
    """One name with one set of labels."""

    name: str
    """As the sample writes it."""
    family: str
    """Name of the family that it belongs to."""
    kind: str | None
    """Kind as column `kind` of `counter_sample`; None if nothing says it."""
    labels: dict[str, str]
    """As written."""


@dataclass
class Samples:
    """What one file holds."""

    series: list[Series] = field(default_factory=list)
    """Each once."""
    series_of: list[int] = field(default_factory=list)
    """Of each sample, its series."""
    values: list[float] = field(default_factory=list)
    """Of each sample, its value as written; NaN where the source says so."""
    at_ns: list[int] = field(default_factory=list)
    """Of each sample, its time, or NO_TIME."""
    units: dict[str, str] = field(default_factory=dict)
    """Unit by family, as OpenMetrics declares it."""

    def add(self, series: int, value: float, at_ns: int) -> None:
        """Add one sample."""
        self.series_of.append(series)
        self.values.append(value)
        self.at_ns.append(at_ns)


def family_and_kind(name: str, types: dict[str, str]) -> tuple[str, str | None]:
    """The family of a sample and its kind, by the types that the file declares.

    A declared name wins over a suffix: `nv_inference_pending_request_count` is a gauge of that name.
    """
    if name in types:
        return name, _SUFFIXES.get(types[name], {}).get("")
    stem, _, last = name.rpartition("_")
    suffix = f"_{last}"
    if stem in types:
        kind = _SUFFIXES.get(types[stem], {}).get(suffix)
        if kind is not None:
            return stem, kind
    return name, None


def undeclared(name: str, labels: dict[str, str]) -> tuple[str, str | None]:
    """The same where no types are declared, as in answers of Prometheus' HTTP API.

    Only names that no gauge has are cut; a sum or count is told by the mapping.
    """
    if name.endswith("_bucket") and "le" in labels:
        return name.removesuffix("_bucket"), "bucket"
    if "quantile" in labels:
        return name, "quantile"
    return name, "counter" if name.endswith("_total") else None
