"""Aggregate figures of load generators under one canonical name each, in one unit.

The names that engines share come from the mapping of engine metrics; those that only a client knows are
added here. docs/formats/load-generators.md lists them, and a test keeps that list true.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder

METRICS: dict[str, tuple[str, str]] = {
    "latency.ttft": ("s", "send to first token, per request"),
    "latency.tpot": ("s", "(last token - first token) / (output tokens - 1), per request"),
    "latency.itl": ("s", "gap between two tokens, or between two stream chunks (see the notes)"),
    "latency.e2e": ("s", "send to end, per request"),
    "latency.e2e_per_token": ("s", "time of the whole request / output tokens, first one included"),
    "latency.decode_per_token": ("s", "(last token - first token) / output tokens"),
    "latency.second_token": ("s", "first to second token"),
    "latency.client_queue": ("s", "time a request waited in the client before it was sent"),
    "latency.e2e_with_client_queue": ("s", "due to end: `latency.client_queue` + `latency.e2e`"),
    "latency.schedule_delay": ("s", "sent later than planned"),
    "requests.total": ("1", "requests sent"),
    "requests.completed": ("1", "requests that succeeded"),
    "requests.failed": ("1", "requests that failed"),
    "requests.incomplete": ("1", "requests cut off at the end of the run"),
    "requests.good": ("1", "requests that met every objective"),
    "requests.concurrency": ("1", "requests under way at once"),
    "requests.error_ratio": ("ratio", "failed of all requests"),
    "throughput.requests": ("1/s", "completed requests a second"),
    "throughput.goodput": ("1/s", "requests a second that met every objective"),
    "throughput.tokens_prompt": ("token/s", "prompt tokens a second"),
    "throughput.tokens_output": ("token/s", "output tokens a second, all requests together"),
    "throughput.tokens_total": ("token/s", "prompt and output tokens a second"),
    "throughput.tokens_output_per_request": ("token/s", "output tokens a second of one request"),
    "tokens.prompt": ("token", "prompt tokens of the run"),
    "tokens.generated": ("token", "output tokens of the run"),
    "tokens.generated_retokenised": ("token", "the same, counted by the client's tokeniser"),
    "tokens.total": ("token", "prompt and output tokens of the run"),
    "size.isl": ("token", "prompt tokens of a request"),
    "size.osl": ("token", "output tokens of a request"),
    "size.total": ("token", "prompt and output tokens of a request"),
    "prefix.hit_tokens": ("token", "prompt tokens found in the prefix cache"),
    "prefix.hit_rate": ("ratio", "prompt tokens found in the prefix cache, of all"),
    "spec.accept_length": ("token", "tokens accepted a step of speculative decoding"),
    "run.duration": ("s", "length of the run"),
}
"""Unit and meaning by canonical name."""

_ALIASES = {
    "avg": "mean",
    "median": "p50",
    "std_dev": "std",
    "stddev": "std",
    "total_sum": "total",
    "sum": "total",
    "p001": "p0.1",
    "p01": "p1",
    "p05": "p5",
    "p999": "p99.9",
}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}", re.ASCII)
_KNOWN = {"mean", "min", "max", "std", "total", "count", "rate"}


def statistic(text: str) -> str | None:
    """The statistic as `summary` names it: `median` is `p50`, GuideLLM's `p999` is `p99.9`."""
    name = _ALIASES.get(text, text)
    is_quantile = name[:1] == "p" and name[1:].replace(".", "", 1).isdigit() and len(name) <= 8
    return name if name in _KNOWN or is_quantile else None


def is_word(name: str) -> bool:
    """Whether a name can only be one: an address or a path that stands as a key is none."""
    return _WORD.fullmatch(name) is not None


class Figures:
    """The aggregate figures of one run in a source."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self.settings: dict[str, object] = {}
        """What the run states about itself."""

    def __len__(self) -> int:
        return len(self._rows)

    def names(self) -> set[str]:
        """The names of all figures."""
        return {row["name"] for row in self._rows}

    def value(self, name: str, what: str) -> float | None:
        """The first figure of that name and statistic."""
        for row in self._rows:
            if row["name"] == name and row["statistic"] == what:
                found: float = row["value"]
                return found
        return None

    def add(
        self,
        name: str,
        source_name: str,
        what: str,
        value: object,
        *,
        per: float = 1,
        unit: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> bool:
        """Add a figure, `per` of the source's units being one of ours; False for what is no finite number, or has no word for a name.

        `unit` is only for names that are not canonical.
        """
        number = fields.real(value)
        if number is None or not (name in METRICS or is_word(name)):
            return False
        if per != 1 and what != "count":
            # In decimal, so that 18.26 ms is 0.01826 s.
            number = float(Decimal(repr(number)) / Decimal(per))
        self._rows.append(
            {
                "name": name,
                "source_name": source_name,
                "statistic": what,
                # A number of observations has no unit of the metric.
                "value": number,
                "unit": "1" if what == "count" else METRICS[name][0] if name in METRICS else unit,
                "labels": dict(labels or {}),
            }
        )
        return True

    def add_statistics(
        self, name: str, source_name: str, values: object, **options: Any
    ) -> tuple[int, int]:
        """Add all statistics of a mapping from their names; how many were added and how many were not."""
        added = left = 0
        for key, value in fields.mapping(values).items():
            what = statistic(str(key))
            if value is None or isinstance(value, str | dict | list):
                continue
            if what is not None and self.add(name, source_name, what, value, **options):
                added += 1
            else:
                left += 1
        return added, left

    def write(self, builder: CaptureBuilder, run: int | None) -> None:
        """Write figures and settings; `run` numbers the runs of a file that holds several."""
        for row in self._rows:
            labels = row["labels"] | ({} if run is None else {"run": str(run)})
            row["labels"] = json.dumps(labels, sort_keys=True) if labels else None
        builder.add_rows("summary", self._rows)
        for name, value in self.settings.items():
            builder.setting(name if run is None else f"{run}.{name}", value)


def write_runs(builder: CaptureBuilder, runs: list[Figures]) -> None:
    """Write the figures of all runs of a file; they are numbered when there are several."""
    for number, run in enumerate(runs):
        run.write(builder, number if len(runs) > 1 else None)
