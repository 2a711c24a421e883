"""A result file of SGLang's bench_serving as a capture."""

from __future__ import annotations

from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.load_notes import note_chunks, note_tokeniser
from tokenpath.ingest.load_serving import Run, note_run, read_file
from tokenpath.ingest.reader import Options, Reader

_NATIVE = ("sglang", "sglang-native")
"""Backends whose client spreads the gap before a chunk evenly over the chunk's tokens."""


def read_results(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of a file."""
    builder, runs, rows = read_file(reader, path, options, "sglang bench_serving")
    note_run(builder, runs, rows)
    for run in runs:
        _note(builder, run)
    return builder.finish()


def _note(builder: CaptureBuilder, run: Run) -> None:
    values = run.values
    if run.has_gaps and values.get("backend") in _NATIVE:
        builder.note(
            "itl-smoothed",
            "the client spreads the gap before a chunk evenly over the chunk's tokens: long gaps of "
            "single tokens are averaged away",
        )
    elif run.has_gaps:
        note_chunks(builder, "sglang bench_serving")
    stated = fields.count(values.get("total_output_tokens"))
    counted = fields.count(values.get("total_output_tokens_retokenized"))
    if stated is not None and counted is not None and stated != counted:
        note_tokeniser(
            builder,
            f"the server states {stated:,} output tokens, the client's tokeniser finds {counted:,}",
        )
