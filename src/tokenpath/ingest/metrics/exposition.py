"""Prometheus text format 0.0.4 and OpenMetrics 1.0, read in one pass.

https://prometheus.io/docs/instrumenting/exposition_formats/ and
https://prometheus.io/docs/specs/om/open_metrics_spec/. Names in quotes within the braces, as Prometheus 3
writes names that are no plain words, are read, too.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation

from tokenpath.core.units import INT64_MAX, NS_PER_MS, NS_PER_S
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.metrics.samples import NO_TIME, Samples, Series, family_and_kind

MAX_LABELS = 256
"""More labels in one line are no metric of an engine."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(
    r'\s*(?P<name>[a-zA-Z_][a-zA-Z0-9_]*|"(?:[^"\\\n]|\\.)*")\s*(?:=\s*"(?P<value>(?:[^"\\\n]|\\.)*)")?\s*(?P<end>[,}])'
)
_VALUE = re.compile(
    r"\s*(?P<value>[+-]?(?:[0-9.]+(?:[eE][+-]?[0-9]+)?|[Nn]a[Nn]|[Ii]nf(?:inity)?))"
    r"(?:\s+(?P<time>-?[0-9.]+(?:[eE][+-]?[0-9]+)?))?\s*(?P<exemplar>#.*)?$"
)
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "\\": "\\", '"': '"'}


def parse(text: str, losses: Losses) -> Samples:
    """All samples of a text; lines that are none are counted, with their byte offset."""
    samples = Samples()
    types: dict[str, str] = {}
    known: dict[str, int] = {}
    seconds = re.search(r"^# EOF\s*\Z", text[-64:], re.MULTILINE) is not None
    at = 0
    for line in text.split("\n"):
        offset, at = at, at + len(line) + 1
        if not line or line.isspace():
            continue
        if line.startswith("#"):
            _declare(line, types, samples)
            continue
        begin = _end_of_series(line)
        match = None if begin is None else _VALUE.match(line, begin)
        if begin is None or match is None:
            losses.add("damaged line", offset=offset)
            continue
        number = _number(match["value"])
        series = known.get(line[:begin])
        if series is None:
            series = _add_series(line[:begin], types, samples)
            known[line[:begin]] = series
        if number is None or series < 0:
            losses.add("damaged line", offset=offset)
            continue
        time = NO_TIME
        if match["time"] is not None:
            time = _time(match["time"], in_seconds=seconds or "." in match["time"])
            if time == NO_TIME:
                losses.add("damaged timestamp", offset=offset, dropped=False)
        if match["exemplar"]:
            losses.add("exemplar", offset=offset, dropped=False)
        samples.add(series, number, time)
    return samples


def _declare(line: str, types: dict[str, str], samples: Samples) -> None:
    """A TYPE or UNIT comment; HELP and free comments say nothing to a program."""
    parts = line.split(None, 3)
    if len(parts) == 4 and parts[0] == "#" and parts[1] in ("TYPE", "UNIT"):
        name = parts[2].strip('"')
        if parts[1] == "TYPE":
            types.setdefault(name, parts[3].strip().lower())
        else:
            samples.units[name] = parts[3].strip()


def _end_of_series(line: str) -> int | None:
    """Where name and labels end; None if there is no name. One pass: labels are matched in turn."""
    name = _NAME.match(line)
    at = 0 if name is None else name.end()
    if name is None and not line.startswith("{"):
        return None
    if not line.startswith("{", at):
        return at
    at += 1
    if line.startswith("}", at):
        return at + 1
    for _ in range(MAX_LABELS):
        label = _LABEL.match(line, at)
        if label is None:
            return at + 1 if line[at:].lstrip().startswith("}") and line[at] == "}" else None
        at = label.end()
        if label["end"] == "}":
            return at
    return None


def _add_series(text: str, types: dict[str, str], samples: Samples) -> int:
    """The number of a new series; -1 for one without a name."""
    found = _NAME.match(text)
    name = found[0] if found else ""
    labels: dict[str, str] = {}
    at = len(name) + 1
    while (label := _LABEL.match(text, at)) is not None:
        at = label.end()
        if label["value"] is None:
            name = name or _unescaped(label["name"].strip('"'))
        else:
            labels[label["name"].strip('"')] = _unescaped(label["value"])
    if not name:
        return -1
    family, kind = family_and_kind(name, types)
    samples.series.append(Series(name, family, kind, labels))
    return len(samples.series) - 1


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), text)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _time(text: str, *, in_seconds: bool) -> int:
    """Nanoseconds since 1970, exactly: OpenMetrics writes seconds, format 0.0.4 milliseconds."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return NO_TIME
    return to_nanoseconds(number, NS_PER_S if in_seconds else NS_PER_MS)


def to_nanoseconds(number: Decimal, unit_ns: int) -> int:
    """A time in units as whole nanoseconds, or NO_TIME if it does not fit."""
    if not number.is_finite() or number.adjusted() > 18 or number < 0:
        return NO_TIME
    if number.adjusted() < -18:
        return 0
    whole = math.floor(number * unit_ns + Decimal("0.5"))
    return whole if whole <= INT64_MAX else NO_TIME
