"""Spans of requests to the `request` table.

Times that a span states as durations are put on its own clock:

    arrival     = start of the span
    first token = arrival + time to first token
    scheduled   = first token - prefill time
    queued      = scheduled - queue time
    last token  = first token + decode time, but not after the end of the span
    finished    = end of the span

Each duration is a double of seconds, rounded to whole nanoseconds, before it is added to the integer
times. Times of stage spans, where there are some, are recorded and take the place of derived ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokenpath.core.request_ids import plain_request_id
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.otlp import dialects
from tokenpath.ingest.otlp.assemble import Kept
from tokenpath.ingest.otlp.dialects import Role
from tokenpath.ingest.otlp.stages import times_of_stages
from tokenpath.ingest.otlp.usual_ids import usual_ids

MAX_SECONDS = 10**7
"""A longer duration (116 days) is none: some programs write nanoseconds under the same key."""
NONE = -(2**62)
"""A duration or time that is not known; it never leaves this module."""

NOTES = {
    "ttft-includes-queue": "Times to first token of these {num} engine requests count from arrival, "
    "queue included; vLLM's response field time_to_first_token_ms counts from scheduling.",
    "prefill-is-wall-time": "Prefill times of these {num} requests are the wall time between scheduling and "
    "first token, with other requests' work under chunked prefill and preemption in it: no GPU time.",
    "derived-request-times": "Times of first token, scheduling and queueing of {num} requests are "
    "derived from durations that the spans state, whose ends two processes measured.",
    "prefill-instance-ttft": "Prefill and decode of {num} traces ran on different instances: neither saw the "
    "user's time to first token, and llm-d's true_ttft_ms ends where decode begins.",
}
"""Sentence of each note; `num` is how many it concerns."""


@dataclass(frozen=True)
class _Attributes:
    """Attributes by key, as columns over all spans."""

    kept: Kept
    codes: NDArray[np.int32]
    code_of: dict[str, int]

    @classmethod
    def of(cls, kept: Kept) -> _Attributes:
        # Parts of a file have their own dictionaries, so a name may have several codes.
        names = kept.keys.dictionary.dictionary_encode()
        same = names.indices.to_numpy(zero_copy_only=False)
        codes = kept.keys.indices.to_numpy(zero_copy_only=False)
        known = {name: code for code, name in enumerate(names.dictionary.to_pylist())}
        return cls(kept, same[codes] if len(known) < len(same) else codes, known)

    def numbers(self, *keys: str) -> NDArray[np.float64]:
        """Of each span, the number under the first of the keys that it has; NaN for none."""
        found = np.full(len(self.kept.start_ns), np.nan)
        for key in reversed(keys):
            at = self._places(key)
            found[self.kept.span_of[at]] = self.kept.numbers[at]
        return found

    def texts(self, *keys: str) -> pa.Array:
        """Of each span, the text under the first of the keys that it has."""
        place = np.full(len(self.kept.start_ns), -1, np.int64)
        for key in reversed(keys):
            at = self._places(key)
            place[self.kept.span_of[at]] = at
        return self.kept.texts.take(pa.array(place, mask=place < 0)).dictionary_decode()

    def has(self, *keys: str) -> NDArray[np.bool_]:
        """Whether each span has one of the keys."""
        found = np.zeros(len(self.kept.start_ns), bool)
        for key in keys:
            found[self.kept.span_of[self._places(key)]] = True
        return found

    def _places(self, key: str) -> NDArray[np.int64]:
        code = self.code_of.get(key)
        return np.zeros(0, np.int64) if code is None else np.flatnonzero(self.codes == code)


def add_requests(builder: CaptureBuilder, kept: Kept) -> None:
    """Add a row for each span that is a request to its observer, and the notes that concern them."""
    attributes = _Attributes.of(kept)
    roles = _roles(kept)
    is_client = pc.equal(kept.kind, "client").fill_null(False).to_numpy(zero_copy_only=False)
    client = is_client & (roles == Role.OTHER) & attributes.has(*dialects.CLIENT_MARKS)
    gateway = (roles == Role.GATEWAY) | _proxies_without_gateway(kept, roles)
    engine = roles == Role.ENGINE
    at = np.flatnonzero(client | gateway | engine)
    if not len(at):
        return
    observers = np.where(client, "client", np.where(gateway, "gateway", "engine"))[at]
    durations = _durations(kept, attributes, roles, gateway)
    times = _times(kept, durations, at)
    for name, of_span in times_of_stages(kept, roles, at).items():
        times[name] = np.where(of_span != NONE, of_span, times[name])
    ids, choices = _ids(kept, attributes, at, observers)
    builder.add(
        "request",
        {
            "request_id": ids,
            "choice": choices,
            "observer": observers.tolist(),
            **{name: _nullable(values) for name, values in times.items()},
            **_counts(attributes, at),
            "finish_reason": _finish_reasons(kept, attributes, at),
            "trace_id": kept.trace_id.take(pa.array(at)),
            "span_id": kept.span_id.take(pa.array(at)),
            "model": attributes.texts(*dialects.MODEL).take(pa.array(at)),
            **{f"stated_{name}_ns": _nullable(v[at]) for name, v in durations.items()},
        },
    )
    _add_notes(builder, kept, roles, engine, durations)


def _roles(kept: Kept) -> NDArray[np.int64]:
    encoded = kept.name.dictionary_encode()
    known = np.array([dialects.role(name) for name in encoded.dictionary.to_pylist()], np.int64)
    return known[encoded.indices.to_numpy(zero_copy_only=False)]


def _proxies_without_gateway(kept: Kept, roles: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Sidecar spans of traces in which no gateway wrote a span: then they are the way in."""
    proxies = roles == Role.PD_PROXY
    if not proxies.any():
        return proxies
    behind = set(kept.trace_id.filter(pa.array(roles == Role.GATEWAY)).to_pylist())
    for at in np.flatnonzero(proxies):
        proxies[at] = kept.trace_id[int(at)].as_py() not in behind
    return proxies


def _durations(
    kept: Kept, attributes: _Attributes, roles: NDArray[np.int64], gateway: NDArray[np.bool_]
) -> dict[str, NDArray[np.int64]]:
    """Durations in ns by name, of each span; for a gateway those that the sidecar stated in its trace."""
    found = {
        name: _nanoseconds(attributes.numbers(key), 1e9) for name, key in dialects.SECONDS.items()
    }
    first_chunk = _nanoseconds(attributes.numbers(*dialects.FIRST_CHUNK), 1e9)
    found["ttft"] = np.where(found["ttft"] == NONE, first_chunk, found["ttft"])
    is_proxy = (roles == Role.PD_PROXY) | (roles == Role.PD_PART) | (roles == Role.GATEWAY)
    if not (gateway.any() and is_proxy.any()):
        return found
    traces = kept.trace_id.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    for name, keys in dialects.MILLISECONDS.items():
        stated = _nanoseconds(attributes.numbers(*keys), 1e6)
        of_trace = np.full(int(traces.max()) + 1, NONE)
        # More than one attempt may be in a trace; the longest contains the others.
        np.maximum.at(of_trace, traces[is_proxy], stated[is_proxy])
        found[name] = np.where(gateway & (found[name] == NONE), of_trace[traces], found[name])
    return found


def _nanoseconds(values: NDArray[np.float64], unit: float) -> NDArray[np.int64]:
    with np.errstate(invalid="ignore"):
        good = (values >= 0) & (values * (unit / 1e9) <= MAX_SECONDS)
    return np.where(good, np.rint(np.where(good, values, 0) * unit), NONE).astype(np.int64)


def _times(
    kept: Kept, durations: dict[str, NDArray[np.int64]], at: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    arrival, finished = kept.start_ns[at], kept.end_ns[at]

    def moved(times: NDArray[np.int64], by: NDArray[np.int64], sign: int) -> NDArray[np.int64]:
        return np.where((times == NONE) | (by == NONE), NONE, times + sign * by)

    first = moved(arrival, durations["ttft"][at], 1)
    scheduled = moved(first, durations["prefill"][at], -1)
    return {
        "arrival_ns": arrival,
        "queued_ns": moved(scheduled, durations["queue"][at], -1),
        "scheduled_ns": scheduled,
        "first_token_ns": first,
        # The two have ends that different processes measured: 0.1 ms too late has been seen.
        "last_token_ns": np.minimum(moved(first, durations["decode"][at], 1), finished),
        "finished_ns": finished,
    }


def _nullable(values: NDArray[np.int64]) -> pa.Array:
    return pa.array(values, mask=values == NONE)


def _ids(
    kept: Kept, attributes: _Attributes, at: NDArray[np.int64], observers: NDArray[np.str_]
) -> tuple[pa.Array, pa.Array]:
    """Ids without what engines add. A span without one has that of the engine in its trace, else the trace's."""
    keys_of = {
        "engine": dialects.ENGINE_IDS,
        "gateway": dialects.GATEWAY_IDS,
        "client": dialects.CLIENT_IDS,
    }
    texts = pa.nulls(len(at), pa.string())
    for observer, keys in keys_of.items():
        mask = observers == observer
        if mask.any():
            texts = pc.if_else(pa.array(mask), attributes.texts(*keys).take(pa.array(at)), texts)
    ids, choices = plain_request_ids(pc.if_else(pc.equal(texts, ""), None, texts))
    if ids.null_count:
        ids = pc.coalesce(ids, _ids_of_traces(kept.trace_id.take(pa.array(at)), ids, observers))
    return ids, choices


def plain_request_ids(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """What `core.request_ids.plain_request_id` gives for each, NULL for NULL; ids of one form at a time."""
    ids, choices = usual_ids(texts)
    others = pc.and_(texts.is_valid(), ids.is_null())
    if not pc.any(others).as_py():
        return ids, choices
    plain = [plain_request_id(text) for text in texts.filter(others).to_pylist()]
    ids = pc.replace_with_mask(ids, others, pa.array([item[0] for item in plain], pa.string()))
    numbers = pa.array([item[1] for item in plain], pa.int32())
    return ids, pc.replace_with_mask(choices, others, numbers)


def _ids_of_traces(traces: pa.Array, ids: pa.Array, observers: NDArray[np.str_]) -> pa.Array:
    """The id of the one engine request of each trace, else the id of the trace."""
    of_trace: dict[str, set[str]] = {}
    named = zip(traces.to_pylist(), ids.to_pylist(), observers.tolist(), strict=True)
    for trace, text, observer in named:
        if observer == "engine" and text is not None:
            of_trace.setdefault(trace, set()).add(text)
    return pa.array(
        [
            next(iter(of_trace[trace])) if len(of_trace.get(trace, ())) == 1 else trace
            for trace in traces.to_pylist()
        ],
        pa.string(),
    )


def _counts(attributes: _Attributes, at: NDArray[np.int64]) -> dict[str, pa.Array]:
    found = {}
    for name, keys in (
        ("prompt_tokens", dialects.PROMPT_TOKENS),
        ("output_tokens", dialects.OUTPUT_TOKENS),
        ("cached_tokens", dialects.CACHED_TOKENS),
    ):
        values = attributes.numbers(*keys)[at]
        with np.errstate(invalid="ignore"):
            good = (values >= 0) & (values < 2**53) & (values == np.floor(values))
        found[name] = pa.array(np.where(good, values, 0).astype(np.int64), mask=~good)
    return found


def _finish_reasons(kept: Kept, attributes: _Attributes, at: NDArray[np.int64]) -> pa.Array:
    reasons = attributes.texts(dialects.FINISH).take(pa.array(at)).dictionary_encode()
    words = pa.array([_finish_reason(text) for text in reasons.dictionary.to_pylist()], pa.string())
    found = words.take(reasons.indices) if len(words) else pa.nulls(len(at), pa.string())
    failed = pc.equal(kept.status.take(pa.array(at)), "error").fill_null(False)
    return pc.if_else(failed, "error", found)


def _finish_reason(text: str | None) -> str | None:
    """The first reason of an array, in the words of the table."""
    if not text:
        return None
    try:
        value: Any = json.loads(text) if text[:1] in "[{" else text
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, dict):
        value = value.get("type")
    if not isinstance(value, str):
        return None
    return {"max_tokens": "length", "end_turn": "stop", "eos": "stop"}.get(value, value[:64])


def _add_notes(
    builder: CaptureBuilder,
    kept: Kept,
    roles: NDArray[np.int64],
    engine: NDArray[np.bool_],
    durations: dict[str, NDArray[np.int64]],
) -> None:
    numbers = {
        "ttft-includes-queue": int((engine & (durations["ttft"] != NONE)).sum()),
        "prefill-is-wall-time": int((engine & (durations["prefill"] != NONE)).sum()),
        "derived-request-times": int((engine & (durations["prefill"] != NONE)).sum()),
        "prefill-instance-ttft": _num_split(kept, roles),
    }
    for code, num in numbers.items():
        if num:
            builder.note(code, NOTES[code].format(num=num))


def _num_split(kept: Kept, roles: NDArray[np.int64]) -> int:
    """Traces with a prefill/decode proxy."""
    proxied = (roles == Role.PD_PROXY) | (roles == Role.PD_PART)
    return len(kept.trace_id.filter(pa.array(proxied)).unique())
