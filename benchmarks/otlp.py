"""How many spans a second are read from OTLP, beside json.loads of the same lines.

    python benchmarks/otlp.py [--spans 100000] [--attributes 10] [--runs 5]

Inputs are generated: vLLM's `llm_request` with its first attributes (it has 13: six latencies with random
digits, four counts, an id), 500 spans a line or message, each span a request. Rates are by CPU seconds of
this process, which reads with one thread; machines are noisy, so json.loads of the same lines, the floor of
any reader that makes Python objects, is measured in turn with the reader.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenpath.ingest.otlp.reader import OtlpReader
from tokenpath.ingest.reader import Options

A_LINE = 500
T0 = 1_796_049_211_000_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--attributes", type=int, default=10)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, binary = Path(folder) / "a.jsonl", Path(folder) / "a.pb"
        spans = [span(number, options.attributes) for number in range(options.spans)]
        batches = [spans[at : at + A_LINE] for at in range(0, len(spans), A_LINE)]
        path.write_text(
            "".join(json.dumps(request(b), separators=(",", ":")) + "\n" for b in batches)
        )
        messages = [protobuf(batch) for batch in batches]
        binary.write_bytes(b"".join(varint(len(m)) + m for m in messages))
        sizes = [round(file.stat().st_size / len(spans)) for file in (path, binary)]
        num = len(spans[0]["attributes"])
        print(f"{num} attributes a span; {sizes[0]} bytes as JSON, {sizes[1]} as protobuf")
        works: dict[str, Callable[[], object]] = {
            "json.loads, a line at a time": lambda: loads(path),
            "tokenpath, JSON lines": lambda: OtlpReader().read([path], Options()),
            "tokenpath, protobuf": lambda: OtlpReader().read([binary], Options()),
        }
        rates: dict[str, list[float]] = {name: [] for name in works}
        for turn in range(options.runs + 1):
            for name, work in works.items():
                begin = time.process_time()
                work()
                if turn:  # the first one imports and warms up
                    rates[name].append(len(spans) / (time.process_time() - begin))
    for name, found in rates.items():
        low, middle, high = min(found), statistics.median(found), max(found)
        print(f"{name:30} {middle:10,.0f} spans/s ({low:,.0f} to {high:,.0f}, {len(found)} runs)")


def loads(path: Path) -> int:
    with path.open("rb") as file:
        return sum(len(json.loads(line)) for line in file)


def attributes(number: int) -> dict[str, Any]:
    rng = random.Random(number)
    latencies = "time_to_first_token e2e time_in_queue time_in_model_prefill time_in_model_decode"
    return {
        **{f"gen_ai.latency.{name}": rng.random() for name in latencies.split()},
        "gen_ai.latency.time_in_model_inference": rng.random(),
        "gen_ai.usage.prompt_tokens": rng.randrange(4096),
        "gen_ai.usage.completion_tokens": rng.randrange(512),
        "gen_ai.request.id": f"cmpl-{rng.getrandbits(64):016x}-0",
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.max_tokens": 16,
        "gen_ai.request.temperature": 1.0,
        "gen_ai.request.n": 1,
    }


def span(number: int, num_attributes: int) -> dict[str, Any]:
    rng = random.Random(-number - 1)
    chosen = list(attributes(number).items())[:num_attributes]
    return {
        "traceId": f"{rng.getrandbits(128) | 1:032x}",
        "spanId": f"{rng.getrandbits(64) | 1:016x}",
        "parentSpanId": f"{rng.getrandbits(64) | 1:016x}",
        "name": "llm_request",
        "kind": "SPAN_KIND_SERVER",
        "startTimeUnixNano": str(T0 + number * 1_000_000),
        "endTimeUnixNano": str(T0 + number * 1_000_000 + 999_999_937),
        "attributes": [{"key": k, "value": value(v)} for k, v in chosen],
        "status": {},
        "flags": 256,
    }


def value(of: Any) -> dict[str, Any]:
    if isinstance(of, str):
        return {"stringValue": of}
    return {"intValue": str(of)} if isinstance(of, int) else {"doubleValue": of}


def request(spans: list[dict[str, Any]]) -> dict[str, Any]:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "vllm"}}]}
    scope = {"scope": {"name": "vllm.tracing.otel"}, "spans": spans}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def part(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def protobuf(spans: list[dict[str, Any]]) -> bytes:
    scope = part(1, part(1, b"vllm.tracing.otel")) + b"".join(part(2, encoded(s)) for s in spans)
    resource = part(1, part(1, b"service.name") + part(2, part(1, b"vllm")))
    return part(1, part(1, resource) + part(2, scope))


def encoded(of: dict[str, Any]) -> bytes:
    head = part(1, bytes.fromhex(of["traceId"])) + part(2, bytes.fromhex(of["spanId"]))
    head += part(5, of["name"].encode()) + varint(6 << 3) + varint(2)
    for number, key in ((7, "startTimeUnixNano"), (8, "endTimeUnixNano")):
        head += varint(number << 3 | 1) + struct.pack("<Q", int(of[key]))
    for attribute in of["attributes"]:
        ((kind, item),) = attribute["value"].items()
        if kind == "stringValue":
            data = part(1, item.encode())
        elif kind == "intValue":
            data = varint(3 << 3) + varint(int(item))
        else:
            data = varint(4 << 3 | 1) + struct.pack("<d", item)
        head += part(9, part(1, attribute["key"].encode()) + part(2, data))
    return head


if __name__ == "__main__":
    main()
