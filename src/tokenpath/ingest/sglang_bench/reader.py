"""The reader of results of SGLang's bench_serving.

Source: sglang/benchmark/serving.py of SGLang 0.5.23 and sglang/bench_serving.py, its place before: one JSON
object a line is appended for each run; `--output-details` adds a list for each of `input_lens`, `output_lens`,
`ttfts`, `itls`, `errors`. When a request was sent is not written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_MARKS = tuple(
    re.compile(rb'"%s"\s*:' % key)
    for key in (b"sharegpt_output_len", b"dataset_name", b"request_rate", b"max_concurrency")
)


class SglangBenchReader:
    """Results of SGLang's serving benchmark, a run a line."""

    name = "sglang_bench"
    version = 1
    describes = "results of sglang bench_serving (--output-file, --output-details), .jsonl"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """An object that begins with the arguments of the benchmark."""
        if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{":
            return False
        return all(mark.search(head) for mark in _MARKS)

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files into one capture, each a source; the runs of one file are labelled."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.sglang_bench.results import read_results

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_results(self, path, own) for path, own in each])


READERS = (SglangBenchReader(),)
