"""Attributes of collectives, which the profiler writes on the operator, the kernel, or both."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from tokenpath.ingest.arrow import texts
from tokenpath.ingest.collective_names import BYTES_OF_DTYPE, plain_name
from tokenpath.ingest.kineto.columns import NULL
from tokenpath.ingest.kineto.stores import NO_CODE, Store

_FIELDS = (
    "op",
    "elements_in",
    "elements_out",
    "dtype",
    "group_size",
    "group",
    "sequence",
    "external",
)


def take_rows(store: Store, values: list[str]) -> list[dict[str, Any]]:
    """The rows of a store of collectives as dictionaries: `row` and the fields that are known."""
    if store.num_rows == 0:
        return []
    columns = {name: store.take(name) for name in ("row", *_FIELDS)}
    rows: list[dict[str, Any]] = []
    for at in range(store.num_rows):
        row: dict[str, Any] = {}
        for name, column in columns.items():
            if column is None:
                continue
            value = int(column[at])
            if name in ("op", "dtype", "group"):
                if value != NO_CODE:
                    row[name] = values[value]
            elif value != (NO_CODE if name == "group_size" else NULL):
                row[name] = value
        rows.append(row)
    return rows


def op_column(rows: list[dict[str, Any]], num_ops: int) -> pa.Array | None:
    """The column `op.collective`: a JSON object for the operators that are collectives."""
    if not rows:
        return None
    codes = np.full(num_ops, NO_CODE, np.int32)
    code_of: dict[str, int] = {}
    for row in rows:
        known = {name: row[name] for name in _FIELDS if name in row and name != "external"}
        text = json.dumps(known, ensure_ascii=False)
        codes[row["row"]] = code_of.setdefault(text, len(code_of))
    return texts(codes, list(code_of))


def collective_rows(
    of_kernels: list[dict[str, Any]], of_ops: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """One row a collective: those of the kernels, and those of operators that no such kernel names."""
    known = {row["external"] for row in of_kernels if "external" in row}
    rest = [row for row in of_ops if row.get("external") not in known or "external" not in row]
    return [_describe(row, row["row"]) for row in of_kernels] + [
        _describe(row, None) for row in rest
    ]


def _describe(row: dict[str, object], kernel: object) -> dict[str, object]:
    op, dtype = str(row["op"]), row.get("dtype")
    elements, size = row.get("elements_in"), BYTES_OF_DTYPE.get(str(dtype))
    payload = None
    if isinstance(elements, int) and size is not None and 0 <= elements < 2**58:
        payload = elements * size
    return {
        "op": plain_name(op),
        "payload_bytes": payload,
        "dtype": dtype,
        "group": row.get("group"),
        "group_size": row.get("group_size"),
        "sequence": row.get("sequence"),
        "kernel_id": kernel,
    }
