"""Counter samples and hardware counters of ranges to tables."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from tokenpath.capture.tables import TABLES
from tokenpath.ingest import arrow
from tokenpath.ingest.kineto.categories import Sort
from tokenpath.ingest.kineto.sorting import Sorter


def counter_tables(
    sorter: Sorter, texts: list[str], base_ns: int, source: int
) -> dict[str, pa.Table]:
    """`counter_sample` and `kernel_counter` of a file, whichever has rows."""
    tables = {}
    for sort, name in ((Sort.COUNTER, "counter_sample"), (Sort.PROFILER_RANGE, "kernel_counter")):
        chosen = [row for row in sorter.counters if row[0] == sort]
        kept = [row for row in chosen if row[1] + base_ns > -(2**63) and row[2] + base_ns < 2**63]
        sorter.losses.add("timestamp out of range", len(chosen) - len(kept))
        if not kept:
            continue
        _, start, end, range_code, key, value = (list(column) for column in zip(*kept, strict=True))
        keys = arrow.texts(np.array(key, np.int32), texts)
        ranges = arrow.texts(np.array(range_code, np.int32), texts)
        columns: dict[str, pa.Array | None] = {
            "source_id": arrow.constant(source, len(kept)),
            "value": pa.array(value, pa.float64()),
        }
        at = pa.array([time + base_ns for time in start], pa.int64())
        if sort == Sort.COUNTER:
            labels = [json.dumps({"series": text}) for text in texts]
            columns |= {"at_ns": at, "name": ranges}
            columns["labels"] = arrow.texts(np.array(key, np.int32), labels)
        else:
            columns |= {"start_ns": at, "name": keys, "range_name": ranges}
            columns["end_ns"] = pa.array([time + base_ns for time in end], pa.int64())
        tables[name] = arrow.build(TABLES[name], len(kept), columns)
    sorter.counters = []
    return tables
