"""The reader of requests in plain tables, asked when no other reader knows a file.

A header is known when it has our own names (`arrival_us`, `ttft_ms`, `prompt_tokens`) or those of public
traces: Azure's LLM inference traces of 2023 and 2024 (TIMESTAMP, ContextTokens, GeneratedTokens), BurstGPT
(Timestamp, Request tokens, Response tokens), Mooncake's JSON Lines (timestamp in ms, input_length,
output_length, hash_ids). Any other needs a map of columns (`--columns arrival_s=start_time`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file


class CsvRequestsReader:
    """A request a row, of whatever wrote it."""

    name = "csv_requests"
    version = 1
    describes = "requests as CSV, TSV or JSON Lines with known names or --columns, .csv, .jsonl"
    is_generic = True

    def sniff(self, head: bytes, _path: Path) -> bool:
        """A table whose names say when a request came, or how long it took, and its tokens."""
        from tokenpath.ingest.csv_requests.names import names_of, recognise

        names = names_of(head)
        return names is not None and recognise(names) is not None

    def sniff_columns(self, head: bytes, columns: Mapping[str, str]) -> bool:
        """A table that has all the columns that a map names."""
        from tokenpath.ingest.csv_requests.names import names_of

        names = names_of(head)
        return names is not None and bool(columns) and set(columns.values()) <= set(names)

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files into one capture, each a source."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.csv_requests.table import read_table

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_table(self, path, own) for path, own in each])


READERS = (CsvRequestsReader(),)
