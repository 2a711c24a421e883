"""Rows of requests and tokens as load generators state them, written to their tables a block at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokenpath.core.units import INT64_MAX, INT64_MIN
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.load_times import is_epoch

TIMES = (
    *("arrival_ns", "queued_ns", "scheduled_ns", "first_token_ns", "last_token_ns", "finished_ns"),
)
"""Columns of `request` that are stamps."""
DURATIONS = (
    *("stated_ttft_ns", "stated_e2e_ns", "stated_tpot_ns", "stated_queue_ns", "stated_prefill_ns"),
    "stated_decode_ns",
)
"""Columns of `request` that are lengths of time."""
COUNTS = ("prompt_tokens", "cached_tokens", "output_tokens", "num_preemptions")
"""Columns of `request` that are counts."""
TEXTS = ("model", "finish_reason", "trace_id")
"""Columns of `request` that are texts."""

_NUMBERS = (*TIMES, *DURATIONS, *COUNTS)
_BLOCK = 2**11


class RequestRows:
    """Requests and tokens of one source, seen by one observer."""

    def __init__(self, builder: CaptureBuilder, observer: str = "client") -> None:
        self._builder = builder
        self._observer = observer
        self._ids: list[str] = []
        self._texts: dict[str, list[str | None]] = {name: [] for name in TEXTS}
        self._waiting: list[Mapping[str, int | None]] = []
        self._token_ids: list[str] = []
        self._token_times: list[NDArray[np.int64]] = []
        self._num_waiting = 0
        self.num_requests = 0
        """Requests added."""
        self.num_tokens = 0
        """Tokens added."""
        self.earliest_ns: int | None = None
        """The smallest stamp of all."""

    def add(
        self,
        request_id: str,
        numbers: Mapping[str, int | None],
        *,
        model: str | None = None,
        finish_reason: str | None = None,
        trace_id: str | None = None,
    ) -> None:
        """Add a request; `numbers` by column of `request`, None where unknown."""
        self._ids.append(request_id)
        self._waiting.append(numbers)
        self._texts["model"].append(model)
        self._texts["finish_reason"].append(finish_reason)
        self._texts["trace_id"].append(trace_id)
        self.num_requests += 1
        if len(self._ids) >= _BLOCK:
            self._write_requests()

    def add_tokens(self, request_id: str, times_ns: NDArray[np.int64]) -> None:
        """Add the tokens of one request, in order."""
        self._token_ids.append(request_id)
        self._token_times.append(times_ns)
        self._num_waiting += len(times_ns)
        self.num_tokens += len(times_ns)
        if self._num_waiting >= 8 * _BLOCK or len(self._token_ids) >= _BLOCK:
            self._write_tokens()

    def finish(self) -> None:
        """Write what is left, and say which clock the stamps are on."""
        self._write_requests()
        self._write_tokens()
        stamp = self.earliest_ns
        self._builder.origin.clock = (
            "epoch" if stamp is not None and is_epoch(stamp) else "monotonic"
        )

    def _write_requests(self) -> None:
        if not self._ids:
            return
        columns = {name: _integers([row.get(name) for row in self._waiting]) for name in _NUMBERS}
        for name in TIMES:
            stamp = pc.min(columns[name]).as_py()
            if stamp is not None and (self.earliest_ns is None or stamp < self.earliest_ns):
                self.earliest_ns = stamp
        columns |= {name: pa.array(texts, pa.string()) for name, texts in self._texts.items()}
        columns["request_id"] = pa.array(self._ids, pa.string())
        columns["observer"] = pa.array([self._observer] * len(self._ids), pa.string())
        for name in ("request_id", "observer", "model", "finish_reason"):
            columns[name] = columns[name].dictionary_encode()
        self._builder.add("request", columns)
        self._ids = []
        self._texts = {name: [] for name in TEXTS}
        self._waiting = []

    def _write_tokens(self) -> None:
        if not self._token_times:
            return
        lengths = np.array([len(times) for times in self._token_times], np.int64)
        total = int(lengths.sum())
        begins = np.repeat(np.cumsum(lengths) - lengths, lengths)
        codes = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        self._builder.add(
            "token",
            {
                "request_id": pa.DictionaryArray.from_arrays(
                    pa.array(codes), pa.array(self._token_ids, pa.string())
                ),
                "observer": pa.DictionaryArray.from_arrays(
                    pa.array(np.zeros(total, np.int32)), pa.array([self._observer], pa.string())
                ),
                "index": pa.array(np.arange(total, dtype=np.int64) - begins),
                "at_ns": pa.array(np.concatenate(self._token_times)),
            },
        )
        self._token_ids, self._token_times, self._num_waiting = [], [], 0


def _integers(values: list[int | None]) -> pa.Array:
    """A column; NULL for what fits no int64 (a start and a length of 200 years can add up to that)."""
    try:
        return pa.array(values, pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        fitting = [v if v is not None and INT64_MIN < v <= INT64_MAX else None for v in values]
        return pa.array(fitting, pa.int64())
