"""The lines of a server log that carry numbers, in the words of each engine."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

ITERATION = re.compile(
    rb"Engine (?P<engine>\d{1,5}): Iteration\((?P<number>\d{1,18})\): "
    rb"(?P<context>\d{1,12}) context requests, (?P<context_tokens>\d{1,12}) context tokens, "
    rb"(?P<generation>\d{1,12}) generation requests, "
    rb"(?P<generation_tokens>\d{1,12}) generation tokens, "
    rb"iteration elapsed time: (?P<elapsed>\d{1,12}(?:\.\d{1,9})?) ms"
    rb"(?:, \w+ KV cache usage: (?P<usage>\d{1,3}(?:\.\d{1,9})?)%)?"
)
"""vLLM with --enable-logging-iteration-details."""

_THROUGHPUT = re.compile(rb"(?:Engine (?P<engine>\d{1,5}): )?(?P<rest>Avg prompt throughput: .*)")
_BATCH = re.compile(rb"(?P<kind>Prefill|Decode) batch(?: \[\d{1,18}\])?[,.] (?P<rest>#.*)")
_ITEM = re.compile(
    rb"(?P<name>[^:,]{1,60}): (?P<value>-?\d{1,15}(?:\.\d{1,9})?)(?P<unit>%| [a-z/]+)?"
)
_RANKS = re.compile(rb" (?P<name>[DTE]P|PP)(?P<rank>\d{1,6})(?=[ \]])")
_MAX_ITEMS = 40

_VLLM = {
    "Running": ("requests.running", "request", 1.0),
    "Waiting": ("requests.waiting", "request", 1.0),
    "Swapped": ("requests.swapped", "request", 1.0),
    "GPU KV cache usage": ("kv.usage", "ratio", 100.0),
    "CPU KV cache usage": ("kv.usage", "ratio", 100.0),
    "KV cache usage": ("kv.usage", "ratio", 100.0),
    "Prefix cache hit rate": ("prefix.hit_rate", "ratio", 100.0),
}
_SGLANG = {
    "#running-req": ("requests.running", "request", 1.0),
    "#queue-req": ("requests.waiting", "request", 1.0),
    "token usage": ("kv.usage", "ratio", 1.0),
    "full token usage": ("kv.usage", "ratio", 1.0),
}
_UNITS = {"tokens/s": "token/s", "reqs": "request", "(token/s)": "token/s"}
_COUNTED = {"-token": "token", "-req": "request", "-seq": "request", " token": "token"}


@dataclass(frozen=True)
class Value:
    """One number of a line."""

    name: str
    """Canonical name, else as written."""
    source_name: str
    """Name as written."""
    value: float
    """Number in `unit`."""
    unit: str | None
    """Unit; None where the line does not say."""


@dataclass(frozen=True)
class Values:
    """The numbers of a line."""

    values: list[Value]
    """In the order of the line."""
    labels: dict[str, str] = field(default_factory=dict)
    """What they are of: engine, ranks, kind of batch."""


def read_values(line: bytes) -> Values | None:
    """The numbers of a line of throughput (vLLM) or of a batch (SGLang); None for any other line."""
    match = _THROUGHPUT.search(line)
    if match is not None:
        labels = {} if match["engine"] is None else {"engine": str(int(match["engine"]))}
        # vLLM of 2024 writes a second usage, that of its swap space.
        return Values(_items(match["rest"], _VLLM), labels)
    match = _BATCH.search(line)
    if match is None:
        return None
    ranks = _RANKS.finditer(line[: match.start()])
    labels = {f"{rank['name'].decode().lower()}_rank": str(int(rank["rank"])) for rank in ranks}
    return Values(
        _items(match["rest"], _SGLANG), {"batch": match["kind"].decode().lower(), **labels}
    )


def _items(rest: bytes, known: dict[str, tuple[str, str, float]]) -> list[Value]:
    found: dict[str, Value] = {}
    for part in rest.split(b", ")[:_MAX_ITEMS]:
        match = _ITEM.fullmatch(part.strip().rstrip(b",."))
        if match is None:
            continue
        source = match["name"].decode("utf-8", "replace")
        number = float(match["value"])
        name, unit, divisor = known.get(source, (source, _unit(source, match["unit"]), 1.0))
        if unit == "%":
            unit, divisor = "ratio", 100.0
        # The first of several usages is that of the device.
        found.setdefault(name, Value(name, source, number / divisor, unit))
    return list(found.values())


def _unit(name: str, written: bytes | None) -> str | None:
    if written is not None:
        text = written.strip().decode()
        return _UNITS.get(text, text)
    for end, unit in {**_UNITS, **_COUNTED}.items():
        if name.endswith(end):
            return unit
    return "ratio" if name.endswith(("usage", "rate")) else None
