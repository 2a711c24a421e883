"""A file of AIPerf or genai-perf as a capture, whichever kind it is."""

from __future__ import annotations

from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.aiperf.perf_analyzer import read_perf_analyzer
from tokenpath.ingest.aiperf.reader import kind_of
from tokenpath.ingest.aiperf.records import read_records
from tokenpath.ingest.aiperf.summary import read_csv, read_summary
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.formats import read_head
from tokenpath.ingest.load_notes import note_tokeniser
from tokenpath.ingest.reader import Options, Reader

_READ = {
    "records": read_records,
    "perf_analyzer": read_perf_analyzer,
    "summary": read_summary,
    "csv": read_csv,
}


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of a file. DamagedInput for none of the four kinds."""
    kind = kind_of(read_head(path))
    if kind is None:
        raise DamagedInput("neither requests nor aggregates of AIPerf", where=str(path))
    builder = CaptureBuilder(reader, path, options)
    builder.origin.profiler = "genai-perf" if kind == "perf_analyzer" else "AIPerf or genai-perf"
    _READ[kind](builder, path, options)
    if builder.num_rows("summary"):
        note_tokeniser(
            builder,
            "tokens are counted with the client's own tokeniser, unless --use-server-token-count was set",
        )
    if kind != "records":  # those are counted as they are read
        builder.num_events = builder.num_rows("summary") + builder.num_rows("request")
        builder.num_events += builder.losses.num_dropped()
    return builder.finish()
