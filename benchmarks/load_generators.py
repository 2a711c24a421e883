"""Requests and tokens a second of the readers of load generators, with the spread of five runs.

python benchmarks/load_generators.py
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from tokenpath.ingest import read

REQUESTS, TOKENS, ROWS, REPEATS = 2_000, 200, 100_000, 5


def vllm(folder: Path) -> Path:
    lists = {
        "input_lens": [128] * REQUESTS,
        "output_lens": [TOKENS] * REQUESTS,
        "ttfts": [0.0123456789 * (1 + n % 7) for n in range(REQUESTS)],
        "itls": [[0.001 + 1e-9 * n] * (TOKENS - 1) for n in range(REQUESTS)],
        "start_times": [1000.123456 + n / 97 for n in range(REQUESTS)],
        "errors": [""] * REQUESTS,
    }
    head = {"tokenizer_id": "t", "num_prompts": REQUESTS, "total_input_tokens": 1, "completed": 1}
    path = folder / "vllm.json"
    path.write_text(json.dumps({**head, **lists}))
    return path


def table(folder: Path) -> Path:
    path = folder / "requests.csv"
    rows = (f"r{n},{n / 997:.6f},{n % 4096},{n % 512},{n % 300}.25\n" for n in range(ROWS))
    path.write_text("request_id,arrival_s,prompt_tokens,output_tokens,ttft_ms\n" + "".join(rows))
    return path


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        for path, num in ((vllm(Path(name)), REQUESTS * TOKENS), (table(Path(name)), ROWS)):
            seconds = []
            for _ in range(REPEATS):
                begin = time.process_time()
                read([path])
                seconds.append(time.process_time() - begin)
            rates = sorted(num / one for one in seconds)
            what = "tokens" if path.suffix == ".json" else "rows"
            print(
                f"{path.name}: {rates[len(rates) // 2]:,.0f} {what}/s of CPU "
                f"({rates[0]:,.0f} to {rates[-1]:,.0f}), {path.stat().st_size / 1e6:.1f} MB"
            )


if __name__ == "__main__":
    main()
