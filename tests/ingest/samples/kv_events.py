"""KV cache events: our JSON lines, and batches of MessagePack in both encodings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.packing import pack
from ingest.samples import Sample

STORED = {
    "type": "BlockStored",
    "block_hashes": [7, 2**63 + 1],
    "parent_block_hash": 5,
    "token_ids": [101] * 28,
    "block_size": 16,
    "medium": "GPU",
}
REMOVED = {"type": "BlockRemoved", "block_hashes": [7], "medium": "CPU"}
CLEARED = {"type": "AllBlocksCleared"}
EVENTS = [STORED, REMOVED, CLEARED, {"type": "BlockLent"}, 3]
ARRAYS = [
    ["BlockStored", [7, 2**63 + 1], 5, [101] * 28, 16, None, "GPU"],
    ["BlockRemoved", [7], "CPU"],
    ["AllBlocksCleared"],
    ["BlockLent"],
    3,
]
AT = 1_700_000_000_500_000_000
ROWS = [
    (AT, "stored", "7", "5", 16, "gpu", 2),
    (AT, "stored", "9223372036854775809", "7", 12, "gpu", 2),
    (AT, "removed", "7", None, None, "host", 2),
    (AT, "cleared", None, None, None, None, 2),
]
COLUMNS = ("at_ns", "action", "block_hash", "parent_hash", "num_tokens", "medium", "engine_id")
SKIPPED = {"unknown event": 2, "dropped by the publisher": 3}


def write_json(folder: Path) -> Path:
    path = folder / "t.kv_events.jsonl"
    events = [{**STORED, "token_ids": 28}, *EVENTS[1:]]
    batches = [
        {"seq": 4, "ts_us": 500, "dp_rank": 2, "events": events},
        {"seq": 8, "ts_us": 600, "dp_rank": 2, "events": []},
    ]
    path.write_text("".join(json.dumps(batch) + "\n" for batch in batches))
    return path


def batches(events: list[Any]) -> list[Any]:
    first, last = [AT / 1e9, events, 2], {"ts": 1_700_000_001.0, "events": [], "dp_rank": 2}
    return [[b"kv", (n).to_bytes(8, "big"), pack(batch)] for n, batch in ((4, first), (8, last))]


def write(folder: Path, values: list[Any]) -> Path:
    path = folder / "t.kv_events.msgpack"
    path.write_bytes(b"".join(map(pack, values)))
    return path


def planted(folder: Path, secret: str) -> Path:
    event = {**STORED, "parent_block_hash": secret, "block_hashes": [secret], "medium": secret}
    return write(folder, [[1.5, [event, {"type": secret, secret: secret}], 0]])


def many(folder: Path, num_events: int) -> Path:
    return write(folder, [[float(n), [REMOVED], 0] for n in range(num_events)])


SAMPLES = [
    Sample(
        "kv_events_json",
        "kv_events",
        write_json,
        {
            ("kv_event", *COLUMNS): [(500_000, *row[1:]) for row in ROWS],
            ("source_note", "code"): ["clock-unknown", "messages-dropped"],
        },
        SKIPPED,
        planted,
    ),
    Sample(
        "kv_events_maps",
        "kv_events",
        lambda folder: write(folder, batches(EVENTS)),
        {("kv_event", *COLUMNS): ROWS, ("source", "clock"): ["epoch"]},
        SKIPPED,
        planted,
        many,
    ),
    Sample(
        "kv_events_arrays",
        "kv_events",
        lambda folder: write(folder, batches(ARRAYS)),
        {("kv_event", *COLUMNS): ROWS},
        SKIPPED,
        planted,
    ),
]
