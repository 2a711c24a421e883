"""The load generator's results: `vllm bench serve --save-result --save-detailed` (docs/formats/load-generators.md)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tokenpath.lab.serving.observers import Names
from tokenpath.lab.serving.records import NEVER, Run


def write_bench(run: Run, names: Names, folder: Path) -> None:
    """One result; the warm-up is not in it."""
    first = run.load.num_warm_up
    requests = range(first, len(run.sent_ns))
    lists: dict[str, list[Any]] = {
        key: [] for key in ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors")
    }
    latencies = []
    for k in requests:
        tokens = run.tokens_ns[k]
        is_done = run.ended_ns[k] != NEVER
        sent = int(run.sent_ns[k])
        gaps = np.diff(np.array(tokens, np.int64)) / 1e9
        lists["input_lens"].append(int(run.load.prompt[k]))
        lists["output_lens"].append(len(tokens) if is_done else 0)
        lists["ttfts"].append((tokens[0] - sent) / 1e9 if is_done else 0.0)
        lists["itls"].append(gaps.tolist() if is_done else [])
        lists["start_times"].append(names.perf_s + sent / 1e9)
        lists["errors"].append("" if is_done else "Bad Request")
        latencies.append((int(run.ended_ns[k]) - sent) / 1e9 if is_done else 0.0)
    plan = run.plan
    done = np.array(latencies) > 0
    sent_ns = run.sent_ns[first:]
    duration = float((run.ended_ns[first:][done].max() - sent_ns.min()) / 1e9)
    result: dict[str, Any] = {
        "date": datetime.fromtimestamp(names.t0_unix_ns // 10**9, UTC).strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": "openai", "backend": "vllm", "label": None, "model_id": plan.model,
        "tokenizer_id": plan.model, "num_prompts": len(latencies), **_traffic(run),
        "duration": duration, "completed": int(done.sum()), "failed": int((~done).sum()),
        "total_input_tokens": sum(n for n, ok in zip(lists["input_lens"], done, strict=True) if ok),
        "total_output_tokens": sum(lists["output_lens"]),
    }  # fmt: skip
    result |= {
        "request_throughput": result["completed"] / duration,
        "output_throughput": result["total_output_tokens"] / duration,
        "total_token_throughput": (result["total_input_tokens"] + result["total_output_tokens"])
        / duration,
        **lists,
        "latencies": latencies,
    }
    e2e, ttft = (np.array(values)[done] * 1e3 for values in (latencies, lists["ttfts"]))
    counts = np.array(lists["output_lens"])[done]
    tpot = (e2e - ttft) / np.maximum(counts - 1, 1)
    itl = np.concatenate([np.array(gaps) for gaps in lists["itls"]]) * 1e3
    for label, values in (("ttft", ttft), ("tpot", tpot), ("itl", itl), ("e2el", e2e)):
        result |= {
            f"mean_{label}_ms": float(values.mean()), f"median_{label}_ms": float(np.median(values)),
            f"std_{label}_ms": float(values.std()), f"p99_{label}_ms": float(np.percentile(values, 99)),
        }  # fmt: skip
    (folder / f"{names.run}.json").write_text(json.dumps(result), "utf-8")


def _traffic(run: Run) -> dict[str, Any]:
    """How the load was made, as the tool's own options and the user's --metadata say it."""
    load = run.plan.load
    traffic: dict[str, Any] = {
        "request_rate": "inf" if load.num_clients else round(load.rate_per_s, 3),
        "burstiness": round(load.burstiness, 2),
        "max_concurrency": load.num_clients or None,
        "dataset_name": "random",
    }
    if load.num_groups:
        traffic |= {
            "dataset_name": "prefix_repetition",
            "prefix_repetition_prefix_len": load.prefix_tokens,
            "prefix_repetition_num_prefixes": load.num_groups,
        }
    elif load.num_turns > 1:
        traffic |= {"dataset_name": "multi_turn"}
    return traffic
