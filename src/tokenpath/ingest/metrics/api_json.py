"""Answers of Prometheus' HTTP API: instant and range queries, and scalars.

https://prometheus.io/docs/prometheus/latest/querying/api/. Values are text; times are decimal seconds, of
which every digit is kept.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any

from tokenpath.core.units import NS_PER_S
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.metrics.exposition import to_nanoseconds
from tokenpath.ingest.metrics.samples import NO_TIME, Samples, Series, undeclared

NO_NAME = "query_result"
"""Name of a series that has none, as what functions return."""


def parse(text: str, losses: Losses) -> Samples | None:
    """All samples of an answer; None if it is no such JSON."""
    try:
        document: Any = json.loads(text, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return None
    data = document.get("data", document) if isinstance(document, dict) else None
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(result, list):
        return None
    samples = Samples()
    times: dict[str, int] = {}
    if data.get("resultType") in ("scalar", "string"):
        result = [{"metric": {}, "value": result}]
    for item in result:
        metric = item.get("metric") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(metric, dict):
            losses.add("damaged series", offset=0)
            continue
        _add_series(metric, samples)
        for name in ("histogram", "histograms"):
            found = item.get(name)
            num = len(found) if name == "histograms" and isinstance(found, list) else 1
            losses.add("native histogram", num if found else 0)
        values = item.get("values", [item["value"]] if "value" in item else [])
        _add_values(values if isinstance(values, list) else [None], samples, times, losses)
    return samples


def _add_series(metric: dict[str, Any], samples: Samples) -> None:
    labels = {key: str(value) for key, value in metric.items() if key != "__name__"}
    name = str(metric.get("__name__", NO_NAME))
    family, kind = undeclared(name, labels)
    samples.series.append(Series(name, family, kind, labels))


def _add_values(values: list[Any], samples: Samples, times: dict[str, int], losses: Losses) -> None:
    series = len(samples.series) - 1
    for pair in values:
        try:
            time, value = pair
            number = float(value)
            at = times.get(time)
            if at is None:
                at = times[time] = to_nanoseconds(Decimal(time), NS_PER_S)
        except (TypeError, ValueError, InvalidOperation):
            losses.add("damaged sample", offset=0)
            continue
        if at == NO_TIME:
            losses.add("damaged timestamp", offset=0, dropped=False)
        samples.add(series, number, at)
