"""The load generator of the recorded runs: a row a request, a line of token times each (docs/formats/vllm_steps.md)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tokenpath.lab.serving.observers import Names
from tokenpath.lab.serving.records import NEVER, Run

_HEADER = (
    "req,group,shared_prefix,prompt_tokens,max_tokens,output_tokens,arrival_us,first_token_us,"
    "last_token_us,end_us,ttft_ms,e2e_ms,trace_id"
)


def write_load(run: Run, names: Names, folder: Path) -> None:
    """Requests as CSV, tokens as JSON lines; the warm-up is in neither."""
    rows, lines = [_HEADER], []
    load = run.load
    for k in range(load.num_warm_up, len(run.sent_ns)):
        tokens = [at // 1000 for at in run.tokens_ns[k]]
        sent = int(run.sent_ns[k])
        head = (
            f"{names.request[k]},{load.group[k]},{load.prefix[k]},{load.prompt[k]},{load.output[k]}"
        )
        if run.ended_ns[k] == NEVER:
            rows.append(f"{head},0,{sent // 1000},,,,,,{names.trace[k]}")
            continue
        ended = int(run.ended_ns[k])
        rows.append(
            f"{head},{len(tokens)},{sent // 1000},{tokens[0]},{tokens[-1]},{ended // 1000},"
            f"{(run.tokens_ns[k][0] - sent) / 1e6:.3f},{(ended - sent) / 1e6:.3f},{names.trace[k]}"
        )
        lines.append(json.dumps({"req": names.request[k], "token_us": tokens}))
    (folder / f"{names.run}.requests.csv").write_text("\n".join(rows) + "\n", "utf-8")
    packed = gzip.compress(("\n".join(lines) + "\n").encode(), 1, mtime=0)
    (folder / f"{names.run}.tokens.jsonl.gz").write_bytes(packed)
