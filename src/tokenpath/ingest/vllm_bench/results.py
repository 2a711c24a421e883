"""A result file of `vllm bench serve` as a capture."""

from __future__ import annotations

from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.load_notes import note_chunks, note_warm_up
from tokenpath.ingest.load_serving import note_run, read_file
from tokenpath.ingest.reader import Options, Reader


def read_results(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of a file."""
    builder, runs, rows = read_file(reader, path, options, "vllm bench serve")
    note_run(builder, runs, rows)
    if any(run.has_gaps for run in runs):
        note_chunks(builder, "vllm bench serve")
    note_warm_up(
        builder, "the file does not say whether warm-ups were sent (--num-warmups is 0 unless set)"
    )
    return builder.finish()
