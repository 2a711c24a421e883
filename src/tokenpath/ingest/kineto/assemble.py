"""From the collected rows of one file to declared tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.tables import TABLES
from tokenpath.core.kernel_names import classify_many
from tokenpath.ingest import arrow
from tokenpath.ingest.kineto import collectives
from tokenpath.ingest.kineto.categories import OUT_OF_MEMORY_CODE, Sort
from tokenpath.ingest.kineto.collect import Rows
from tokenpath.ingest.kineto.columns import NULL
from tokenpath.ingest.kineto.processes import Pairs
from tokenpath.ingest.kineto.sorting import Sorter
from tokenpath.ingest.kineto.stores import NO_CODE, required
from tokenpath.ingest.workers import each

Array = NDArray[Any]
Int32s = NDArray[np.int32]
_COPY_NAMES = frozenset({"dma_request"})
"""Copies that have no category of their own (MTIA)."""
_SYNC_KINDS = {
    "Event Sync": "event_sync",
    "Stream Sync": "stream_sync",
    "Context Sync": "context_sync",
    "Stream Wait Event": "event_wait",
}


@dataclass(frozen=True)
class Ids:
    """How a file's rows refer to rows of the whole capture."""

    source: int
    """Row of `source`."""
    thread_of_pair: Int32s
    """Row of `thread` by pair; NO_CODE for pairs without host rows."""
    device_of: Callable[[NDArray[np.int64]], Int32s]
    """Rows of `device` for device numbers of the file."""


def build_tables(
    rows: Rows, sorter: Sorter, pairs: Pairs, ids: Ids, num_workers: int = 1
) -> dict[str, pa.Table]:
    """Declared tables of one file; columns leave `rows` as they are built."""
    builder = _Builder(rows, pairs, ids)
    of_kernels = collectives.take_rows(sorter.stores["kernel_collective"], pairs.texts)
    of_ops = collectives.take_rows(sorter.stores["op_collective"], pairs.texts)
    of_both = collectives.collective_rows(of_kernels, of_ops)
    makers: dict[str, Callable[[], pa.Table | None]] = {
        "op": lambda: builder.op(of_ops),
        "frame": builder.frame,
        "api_call": builder.api_call,
        "kernel": builder.kernel,
        "range": builder.ranges,
        "dependency": builder.dependency,
        "memory_event": builder.memory_event,
        "collective": lambda: builder.collective(of_both),
    }
    tables = each(lambda make: make(), makers.values(), num_workers)
    return {name: table for name, table in zip(makers, tables, strict=True) if table is not None}


class _Builder:
    def __init__(self, rows: Rows, pairs: Pairs, ids: Ids) -> None:
        self._rows, self._pairs, self._ids = rows, pairs, ids

    def _take(self, store: str, field: str) -> Array | None:
        return self._rows.columns[store].pop(field)

    def _number(self, store: str, field: str) -> pa.Array | None:
        values = self._take(store, field)
        if values is None:
            return None
        if values.dtype == np.float64:
            return arrow.reals(values)
        return arrow.integers(values, NO_CODE if values.dtype == np.int32 else NULL)

    def _text(self, store: str, field: str) -> pa.Array | None:
        codes = self._take(store, field)
        return None if codes is None else arrow.texts(codes, self._pairs.texts)

    def _name(self, store: str, num_rows: int) -> pa.Array:
        """Names; a nameless event gets the empty text."""
        codes = self._take(store, "name")
        if codes is None:
            codes = np.full(num_rows, NO_CODE, np.int32)
        if (codes < 0).any():
            empty = len(self._pairs.texts)
            return arrow.texts(np.where(codes < 0, empty, codes), [*self._pairs.texts, ""])
        return arrow.texts(codes, self._pairs.texts)

    def _host(self, store: str) -> dict[str, pa.Array | None]:
        num_rows = self._rows.num_rows[store]
        pair = self._take(store, "pair")
        return {
            "source_id": arrow.constant(self._ids.source, num_rows),
            "thread_id": arrow.integers(self._ids.thread_of_pair[pair]),
            "start_ns": self._number(store, "start"),
            "end_ns": self._number(store, "end"),
            "name": self._name(store, num_rows),
        }

    def op(self, of_ops: list[dict[str, Any]]) -> pa.Table | None:
        num_rows = self._rows.num_rows["op"]
        if not num_rows:
            return None
        columns = self._host("op") | {
            "external_id": self._number("op", "external"),
            "sequence": self._number("op", "sequence"),
            "input_shapes": self._text("op", "dims"),
            "input_dtypes": self._text("op", "types"),
            "call_stack": self._text("op", "stack"),
            "collective": collectives.op_column(of_ops, num_rows),
        }
        return arrow.build(TABLES["op"], num_rows, columns)

    def frame(self) -> pa.Table | None:
        num_rows = self._rows.num_rows["frame"]
        if not num_rows:
            return None
        columns = self._host("frame") | {
            "python_id": self._number("frame", "python"),
            "python_parent_id": self._number("frame", "parent"),
        }
        return arrow.build(TABLES["frame"], num_rows, columns)

    def api_call(self) -> pa.Table | None:
        num_rows = self._rows.num_rows["api_call"]
        if not num_rows:
            return None
        columns = self._host("api_call")
        columns["correlation_id"] = self._number("api_call", "correlation")
        return arrow.build(TABLES["api_call"], num_rows, columns)

    def _place(self, store: str) -> tuple[Int32s, NDArray[np.int64]]:
        device = required(self._take(store, "device"))
        return self._ids.device_of(device), required(self._take(store, "stream"))

    def kernel(self) -> pa.Table | None:
        num_rows = self._rows.num_rows["kernel"]
        if not num_rows:
            return None
        device, stream = self._place("kernel")
        kind, family = self._classify(num_rows)
        columns: dict[str, pa.Array | None] = {
            "source_id": arrow.constant(self._ids.source, num_rows),
            "device_id": arrow.integers(device),
            "stream_id": arrow.integers(stream),
            "start_ns": self._number("kernel", "start"),
            "end_ns": self._number("kernel", "end"),
            "name": self._name("kernel", num_rows),
            "kind": kind,
            "family": family,
            "grid": self._triple("grid"),
            "block": self._triple("block"),
            "registers_per_thread": self._number("kernel", "registers"),
            "shared_memory_bytes": self._number("kernel", "shared"),
            "blocks_per_sm": self._number("kernel", "blocks_per_sm"),
            "warps_per_sm": self._number("kernel", "warps_per_sm"),
            "occupancy_percent": self._number("kernel", "occupancy"),
            "bytes": self._number("kernel", "bytes"),
            "correlation_id": self._number("kernel", "correlation"),
            "external_id": self._number("kernel", "external"),
            "graph_id": self._number("kernel", "graph"),
            "graph_node_id": self._number("kernel", "graph_node"),
        }
        return arrow.build(TABLES["kernel"], num_rows, columns)

    def _triple(self, name: str) -> pa.Array | None:
        axes = [self._take("kernel", f"{name}{axis}") for axis in range(3)]
        known = [axis for axis in axes if axis is not None]
        if len(known) < len(axes):
            return None
        return arrow.triples(np.stack(known, axis=1), known[0] != NO_CODE)

    def _classify(self, num_rows: int) -> tuple[pa.Array, pa.Array]:
        """Kind and family, decided once for each distinct name."""
        sort = required(self._take("kernel", "sort"))
        name = self._rows.columns["kernel"]["name"]
        labels = ["memcpy", "memset", "compute", "communication"]
        kinds = np.where(sort == Sort.MEMCPY, 0, np.where(sort == Sort.MEMSET, 1, 2)).astype(
            np.int32
        )
        families = kinds.copy()
        rows = np.flatnonzero(kinds == 2)
        codes = np.full(num_rows, NO_CODE, np.int32) if name is None else name
        distinct, which = np.unique(codes[rows], return_inverse=True)
        texts = ["" if code < 0 else self._pairs.texts[code] for code in distinct.tolist()]
        classes = classify_many(texts)
        family_labels = list(labels)
        code_of = {label: code for code, label in enumerate(family_labels)}
        family_of = np.empty(len(texts), np.int32)
        kind_of = np.empty(len(texts), np.int32)
        for at, found in enumerate(classes):
            label = str(found.family)
            if label not in code_of:
                code_of[label] = len(family_labels)
                family_labels.append(label)
            family_of[at] = code_of[label]
            kind_of[at] = 3 if found.is_communication else 2
            if texts[at] in _COPY_NAMES:
                family_of[at] = kind_of[at] = 0
        families[rows], kinds[rows] = family_of[which], kind_of[which]
        return arrow.texts(kinds, labels), arrow.texts(families, family_labels)

    def ranges(self) -> pa.Table | None:
        parts = [
            part
            for part in (
                self._host_range("range"),
                self._host_range("overhead"),
                self._device_range(),
            )
            if part is not None
        ]
        if len(parts) < 2:
            return parts[0] if parts else None
        return pa.concat_tables(parts).unify_dictionaries().combine_chunks()

    def _host_range(self, store: str) -> pa.Table | None:
        num_rows = self._rows.num_rows[store]
        if not num_rows:
            return None
        columns = self._host(store)
        columns["side"] = arrow.texts(np.zeros(num_rows, np.int32), ["host"])
        if store == "range":
            columns["external_id"] = self._number("range", "external")
        else:
            named: pa.Array = columns["name"]
            marked = [f"overhead: {text}" for text in named.dictionary.to_pylist()]
            columns["name"] = pa.DictionaryArray.from_arrays(
                named.indices, pa.array(marked, pa.string())
            )
        return arrow.build(TABLES["range"], num_rows, columns)

    def _device_range(self) -> pa.Table | None:
        num_rows = self._rows.num_rows["device_range"]
        if not num_rows:
            return None
        device, stream = self._place("device_range")
        columns = {
            "source_id": arrow.constant(self._ids.source, num_rows),
            "side": arrow.texts(np.zeros(num_rows, np.int32), ["device"]),
            "device_id": arrow.integers(device, NO_CODE),
            "stream_id": arrow.integers(stream),
            "start_ns": self._number("device_range", "start"),
            "end_ns": self._number("device_range", "end"),
            "name": self._name("device_range", num_rows),
            "external_id": self._number("device_range", "external"),
        }
        return arrow.build(TABLES["range"], num_rows, columns)

    def dependency(self) -> pa.Table | None:
        num_rows = self._rows.num_rows["sync"]
        if not num_rows:
            return None
        task, name = self._take("sync", "task"), self._rows.columns["sync"]["name"]
        texts = self._pairs.texts
        labels = [*_SYNC_KINDS.values()]
        codes = np.full(num_rows, labels.index("event_wait"), np.int32)
        said = task if task is not None else name
        if said is not None:
            for code in np.unique(said).tolist():
                kind = _SYNC_KINDS.get("" if code < 0 else texts[code])
                if kind is not None:
                    codes[said == code] = labels.index(kind)
        device, stream = self._place("sync")
        # The profiler writes -1, as a signed or unsigned number, for what does not apply.
        for values in (stream,):
            values[(values < 0) | (values == 2**32 - 1)] = NULL
        columns: dict[str, pa.Array | None] = {
            "source_id": arrow.constant(self._ids.source, num_rows),
            "kind": arrow.texts(codes, labels),
            "start_ns": self._number("sync", "start"),
            "end_ns": self._number("sync", "end"),
            "device_id": arrow.integers(device, NO_CODE),
            "stream_id": arrow.integers(stream, NULL),
            "correlation_id": self._number("sync", "correlation"),
        }
        for column, field in (
            ("from_stream_id", "wait_stream"),
            ("from_correlation_id", "wait_correlation"),
        ):
            other = self._take("sync", field)
            if other is not None:
                other[(other < 0) | (other == 2**32 - 1)] = NULL
                columns[column] = arrow.integers(other, NULL)
        return arrow.build(TABLES["dependency"], num_rows, columns)

    def memory_event(self) -> pa.Table | None:
        num_rows = self._rows.num_rows["memory"]
        if not num_rows:
            return None
        name = required(self._take("memory", "name"))
        sizes = required(self._take("memory", "bytes"))
        action = np.where(name == OUT_OF_MEMORY_CODE, 2, np.where(sizes < 0, 1, 0)).astype(np.int32)
        columns = {
            "source_id": arrow.constant(self._ids.source, num_rows),
            "at_ns": self._number("memory", "at"),
            "action": arrow.texts(action, ["alloc", "free", "oom"]),
            "address": self._number("memory", "address"),
            "bytes": arrow.integers(sizes),
            "stream_id": self._number("memory", "stream"),
        }
        return arrow.build(TABLES["memory_event"], num_rows, columns)

    def collective(self, rows: list[dict[str, Any]]) -> pa.Table | None:
        if not rows:
            return None
        columns: dict[str, pa.Array | None] = {}
        for column in TABLES["collective"].columns:
            values = [row.get(column.name) for row in rows]
            is_text = column.type == "text"
            columns[column.name] = (
                arrow.encode(values) if is_text else pa.array(values, column.arrow_type)
            )
        columns["source_id"] = arrow.constant(self._ids.source, len(rows))
        return arrow.build(TABLES["collective"], len(rows), columns)
