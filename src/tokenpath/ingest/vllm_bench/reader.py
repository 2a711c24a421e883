"""The reader of results of `vllm bench serve`.

Source: vllm/benchmarks/serve.py of vLLM 0.33 (`--save-result`, `--save-detailed`, `--append-result`) and
benchmarks/benchmark_serving.py, its form until 0.9. Per request (only with `--save-detailed`): `input_lens`,
`output_lens`, `ttfts`, `itls` and, since 0.11, `start_times`; newer ones keep `latencies` in any case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_MARKS = tuple(
    re.compile(rb'"%s"\s*:' % key)
    for key in (b"(?:tokenizer_id|endpoint_type)", b"num_prompts", b"total_input(?:_tokens)?")
)
_RATE = re.compile(rb'"(?:request_throughput|completed)"\s*:')
_SGLANG = re.compile(rb'"sharegpt_output_len"\s*:')


class VllmBenchReader:
    """Results of vLLM's serving benchmark, one or several appended to one file."""

    name = "vllm_bench"
    version = 1
    describes = "results of vllm bench serve (--save-result, --save-detailed), .json"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """An object with the settings and the totals of the benchmark."""
        if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{" or _SGLANG.search(head):
            return False
        return all(mark.search(head) for mark in (*_MARKS, _RATE))

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the files into one capture, each a source; the runs of one file are labelled."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.vllm_bench.results import read_results

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_results(self, path, own) for path, own in each])


READERS = (VllmBenchReader(),)
