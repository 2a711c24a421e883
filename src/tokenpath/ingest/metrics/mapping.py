"""The mapping of engines' metrics to canonical ones: `mapping.yaml`, checked as it is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

UNITS = frozenset(
    [
        "1",
        "s",
        "ratio",
        "token",
        "request",
        "block",
        "byte",
        "flop",
        "step",
        "slot",
        "token/s",
        "byte/s",
        "W",
        "J",
        "Hz",
        "degC",
    ]
)
"""Units that a canonical metric may have; `1` is a number of things that have no name here."""
KINDS = frozenset({"gauge", "counter", "histogram", "summary", "info"})
ACROSS = frozenset({"same", "sum", "each"})
"""What series of several ranks are to each other: copies, shards, or neither."""
_KEYS = frozenset(
    ("name", "to", "unit", "kind", "scale", "versions", "when", "across", "replaced", "notes")
)
NOTHING = "nothing"
"""`replaced` of a metric that is gone and has no successor."""

_FILE = Path(__file__).with_name("mapping.yaml")
_CONDITION = re.compile(r"(?P<sign>>=|<=|<|>|==)(?P<version>\d+(?:\.\d+){0,3})")


@dataclass(frozen=True)
class Metric:
    """One metric of one engine."""

    engine: str
    """Engine or exporter."""
    name: str
    """Family, with the engine's prefix, without `_total`."""
    canonical: str
    """Name that all engines share."""
    unit: str
    """Unit after scaling."""
    kind: str
    """One of KINDS."""
    scale: float = 1.0
    """What values are multiplied with."""
    versions: str = ""
    """Conditions on the engine's version, joined by commas; empty if not known to be bounded."""
    when: Mapping[str, str] = field(default_factory=dict)
    """Labels that a series must have."""
    across: Mapping[str, str] = field(default_factory=dict)
    """By rank label, one of ACROSS."""
    replaced: str | None = None
    """What took its place; NOTHING for a metric that is gone."""
    notes: tuple[str, ...] = ()
    """Codes of notes to attach."""

    def exists_in(self, version: str) -> bool:
        """Whether the engine of that version has it, as far as the mapping knows."""
        return satisfies(version, self.versions)


@dataclass(frozen=True)
class MetricMapping:
    """All engines' metrics."""

    version: int
    """Version of the data."""
    metrics: tuple[Metric, ...]
    """In the order of the file."""
    unmapped: tuple[tuple[str, str], ...]
    """(prefix, pattern) of families that are known and have no canonical name."""
    prefixes: tuple[tuple[str, str], ...]
    """(prefix as it is written, engine)."""
    by_name: Mapping[str, tuple[Metric, ...]] = field(default_factory=dict)
    """Metrics by normalised family."""

    def find(self, family: str, labels: Mapping[str, str]) -> Metric | None:
        """The metric that a family with these labels is; None if it has no canonical name."""
        plain = normalised(family)
        for name in (plain, plain.removesuffix("_total")):
            for metric in self.by_name.get(name, ()):
                if all(labels.get(key) == value for key, value in metric.when.items()):
                    return metric
        return None

    def engine_of(self, family: str) -> str | None:
        """The engine that a family belongs to, by its prefix."""
        plain = normalised(family)
        for prefix, engine in self.prefixes:
            if plain.startswith(normalised(prefix)):
                return engine
        return None

    def is_known_unmapped(self, family: str) -> bool:
        """Whether the family is listed as one without a canonical name."""
        plain = normalised(family)
        return any(
            plain.startswith(normalised(prefix))
            and fnmatchcase(plain[len(prefix) :], normalised(pattern))
            for prefix, pattern in self.unmapped
        )


def normalised(family: str) -> str:
    """The form in which families are compared: without `ray_` before it, `_` for `:` and `.`."""
    plain = family.replace(":", "_").replace(".", "_")
    return plain.removeprefix("ray_") if plain != "ray_" else plain


def satisfies(version: str, conditions: str) -> bool:
    """Whether a version such as `0.32.1` meets conditions such as `>=0.11,<0.13`; ValueError for nonsense."""
    number = parse_version(version)
    for part in filter(None, (text.strip() for text in conditions.split(","))):
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not a condition such as >=0.11")
        bound = parse_version(match["version"])
        width = max(len(number), len(bound))
        left, right = (t + (0,) * (width - len(t)) for t in (number, bound))
        holds = {
            ">=": left >= right,
            "<=": left <= right,
            ">": left > right,
            "<": left < right,
            "==": left == right,
        }
        if not holds[match["sign"]]:
            return False
    return True


def parse_version(text: str) -> tuple[int, ...]:
    """The numbers at the start of a version; ValueError if there are none."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a version such as 0.32.1")
    return tuple(int(part) for part in match[1].split("."))


@cache
def mapping() -> MetricMapping:
    """The mapping that tokenpath ships."""
    import yaml

    # libyaml's safe loader where it was built: the same types, ten times as fast.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(_FILE.read_text(encoding="utf-8"))
    try:
        return build(loader.get_single_data())
    finally:
        loader.dispose()


def build(data: Mapping[str, Any]) -> MetricMapping:
    """The mapping from its data; ValueError that names the entry for anything that breaks its form."""
    metrics: list[Metric] = []
    unmapped = [("", pattern) for pattern in data.get("unmapped", ())]
    prefixes: list[tuple[str, str]] = []
    for engine, of_engine in data["engines"].items():
        prefix = of_engine["prefix"]
        every = (prefix, *of_engine.get("aliases", ()))
        prefixes += [(one, engine) for one in every]
        unmapped += [(one, pattern) for one in every for pattern in of_engine.get("unmapped", ())]
        ranks = of_engine.get("across", {})
        metrics += [_metric(engine, prefix, entry, ranks) for entry in of_engine["metrics"]]
    by_name: dict[str, list[Metric]] = {}
    for metric in metrics:
        others = by_name.setdefault(normalised(metric.name), [])
        if any(other.when == metric.when for other in others):
            raise ValueError(f"{metric.name} stands twice in the mapping")
        others.append(metric)
    return MetricMapping(
        data["version"],
        tuple(metrics),
        tuple(unmapped),
        tuple(sorted(prefixes, key=lambda item: -len(item[0]))),
        {name: tuple(found) for name, found in by_name.items()},
    )


def _metric(engine: str, prefix: str, entry: Mapping[str, Any], ranks: Mapping[str, str]) -> Metric:
    name = f"{prefix}{entry['name']}"
    if set(entry) - _KEYS:
        raise ValueError(f"{name}: unknown keys {sorted(set(entry) - _KEYS)}")
    metric = Metric(
        engine,
        name,
        entry["to"],
        entry["unit"],
        entry["kind"],
        float(entry.get("scale", 1.0)),
        entry.get("versions", ""),
        dict(entry.get("when", {})),
        {**ranks, **entry.get("across", {})},
        entry.get("replaced"),
        tuple(entry.get("notes", ())),
    )
    if metric.unit not in UNITS or metric.kind not in KINDS:
        raise ValueError(f"{name}: unit {metric.unit!r}, kind {metric.kind!r}")
    if not set(metric.across.values()) <= ACROSS:
        raise ValueError(f"{name}: across {metric.across}")
    if not metric.scale > 0:
        raise ValueError(f"{name}: scale {metric.scale}")
    satisfies("0", metric.versions)
    return metric
