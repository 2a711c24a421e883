"""KV cache events of a real vLLM run."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

from ingest.compare import lost, rows
from tokenpath.ingest.kv_events.reader import KvEventsReader
from tokenpath.ingest.reader import Options


def test_blocks_of_p25b(reference_data: Path) -> None:
    path = reference_data / "engine/vllm-cpu/kv_events/p25b.kv_events.jsonl.gz"
    capture = KvEventsReader().read([path], Options())
    with gzip.open(path) as file:
        events = [event for line in file for event in json.loads(line)["events"]]
    blocks = Counter(
        {
            "stored": sum(len(e["block_hashes"]) for e in events if e["type"] == "BlockStored"),
            "removed": sum(len(e["block_hashes"]) for e in events if e["type"] == "BlockRemoved"),
            "cleared": sum(e["type"] == "AllBlocksCleared" for e in events),
        }
    )
    assert Counter(rows(capture, "kv_event", "action")) == blocks
    assert rows(capture, "source", "num_events") == [len(events)]
    assert lost(capture) == {}
    live: set[str] = set()
    for action, block, parent in rows(capture, "kv_event", "action", "block_hash", "parent_hash"):
        if action == "stored":
            assert parent is None or parent in live, "a parent outlives its children"
            live.add(block)
        elif action == "removed":
            live.remove(block)
