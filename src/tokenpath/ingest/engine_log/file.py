"""Lines of a server log to steps and samples."""

from __future__ import annotations

import re
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.core.units import NS_PER_MS
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.engine_log.lines import ITERATION, Values, read_values
from tokenpath.ingest.engine_log.stamp import Clock, read_stamp
from tokenpath.ingest.json_lines import lines
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options, Reader
from tokenpath.ingest.row_batches import RowBatches

_MAX_LINE = 4096
"""Longer lines hold requests or errors, not numbers."""
_MARKS = (b"Iteration(", b"Avg prompt throughput", b"refill batch", b"ecode batch")


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of one file. DamagedInput when no line of it has numbers and a time."""
    builder = CaptureBuilder(reader, path, options)
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    rows, clock = RowBatches(builder), Clock()
    for offset, line in lines(unpacked, builder.losses):
        builder.num_events += 1
        if len(line) > _MAX_LINE or not any(mark in line for mark in _MARKS):
            builder.losses.add("other line", lost=False, offset=offset)
            continue
        iteration = ITERATION.search(line)
        values = read_values(line) if iteration is None else None
        if iteration is None and (values is None or not values.values):
            builder.losses.add("other line", lost=False, offset=offset)
            continue
        stamp = read_stamp(line)
        at_ns = None if stamp is None else clock.place(stamp)
        if at_ns is None:
            builder.losses.add("line without a time", offset=offset)
        elif iteration is not None:
            _add_step(builder, rows, at_ns, iteration)
        elif values is not None:
            _add_samples(rows, at_ns, values)
    rows.finish()
    _describe(builder, clock)
    if not builder.num_rows("step") and not builder.num_rows("counter_sample"):
        raise DamagedInput("no line has numbers and a time", where=str(path))
    return builder.finish()


def _add_samples(rows: RowBatches, at_ns: int, values: Values) -> None:
    for item in values.values:
        source = None if item.source_name == item.name else item.source_name
        rows.sample(
            at_ns, item.name, item.value, item.unit, source_name=source, labels=values.labels
        )


def _add_step(
    builder: CaptureBuilder, rows: RowBatches, at_ns: int, match: re.Match[bytes]
) -> None:
    elapsed = fields.duration_ns(match["elapsed"].decode(), NS_PER_MS) or 0
    engine = int(match["engine"])
    context, generation = int(match["context"]), int(match["generation"])
    phase = "mixed" if context and generation else "prefill" if context else None
    rows.add(
        "step",
        {
            "name": "iteration",
            "engine": "vllm",
            "engine_id": engine,
            "observer": "log",
            "number": int(match["number"]),
            "phase": "decode" if phase is None and generation else phase,
            "start_ns": at_ns - elapsed,
            "end_ns": at_ns,
            "num_prefill_requests": context,
            "num_prefill_tokens": int(match["context_tokens"]),
            "num_decode_requests": generation,
            "num_decode_tokens": int(match["generation_tokens"]),
        },
    )
    if match["usage"] is not None:
        usage = float(match["usage"]) / 100
        labels = {"engine": str(engine)}
        rows.sample(at_ns, "kv.usage", usage, "ratio", source_name="KV cache usage", labels=labels)
    builder.note(
        "context-is-not-prefill",
        "Prefill and decode of these steps are vLLM's context and generation, which count the recompute "
        "of a preempted request under generation",
    )


def _describe(builder: CaptureBuilder, clock: Clock) -> None:
    if clock.has_zone is False:
        builder.origin.clock = "monotonic"
        builder.note(
            "clock-unknown",
            "Stamps of the log name no time zone, or no year: they are counted as if they were UTC in a "
            "leap year, and cannot be placed beside other sources",
        )
    if clock.is_coarse:
        builder.note(
            "log-times-coarse",
            "Stamps of the log are whole seconds: steps shorter than that lie over each other; their "
            "lengths and their order are right",
        )
