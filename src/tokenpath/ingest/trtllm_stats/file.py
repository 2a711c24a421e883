"""A file of TensorRT-LLM's records to a capture: each is an iteration or a request."""

from __future__ import annotations

from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.json_lines import records
from tokenpath.ingest.reader import Options, Reader
from tokenpath.ingest.row_batches import RowBatches
from tokenpath.ingest.trtllm_stats.iterations import Iterations
from tokenpath.ingest.trtllm_stats.requests import is_request, request_rows


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of one file. DamagedInput when no record of it can be read."""
    builder = CaptureBuilder(reader, path, options)
    rows = RowBatches(builder)
    iterations = Iterations(builder, rows)
    for offset, record in records(path, options, builder):
        if "iterLatencyMS" in record:
            iterations.take(offset, record)
        elif is_request(record):
            found = request_rows(builder, record)
            if not found:
                builder.losses.add("request without a time", offset=offset)
            for row in found:
                rows.add("request", row)
        else:
            builder.losses.add("unknown record", offset=offset)
    rows.finish()
    if not builder.num_rows("step") and not builder.num_rows("request"):
        raise DamagedInput("no iteration and no request can be read", where=str(path))
    return builder.finish()
