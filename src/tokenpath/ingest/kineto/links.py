"""Flow arrows to ids, in files whose device work carries no correlation id (Ascend)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.kineto.columns import NULL
from tokenpath.ingest.kineto.stores import required
from tokenpath.ingest.losses import Losses

Columns = dict[str, NDArray[Any] | None]
_MAX_BACK = 64


def link_by_flows(
    flows: Columns, num_flows: int, host: dict[str, Columns], device: Columns, losses: Losses
) -> None:
    """Give both ends of each arrow from a host row to device work the same id, in place.

    `host` holds, by the name of the id column that the arrow fills, the rows an arrow may start in:
    `correlation` -> API calls, `external` -> operators. A row that starts several arrows gives its id
    to all that they point at. An arrow belongs to the row of its thread that starts at its time, else
    to the innermost one around it. Arrows with one side missing, or none that fits, are counted.
    """
    if num_flows == 0:
        return
    category, number = flows["category"], flows["id"]
    phase, pair, at = (required(flows[name]) for name in ("phase", "pair", "at"))
    category = np.full(num_flows, -1) if category is None else category
    number = np.zeros(num_flows, np.int64) if number is None else number
    starts = np.flatnonzero(phase == ord("s"))
    finishes = np.flatnonzero(phase == ord("f"))
    first_start: dict[tuple[int, int], int] = {}
    for row in starts.tolist():
        first_start.setdefault((int(category[row]), int(number[row])), row)
    targets = _rows_at(device, pair[finishes], at[finishes])
    sources = {name: _rows_at(rows, pair[starts], at[starts]) for name, rows in host.items()}
    position_of_start = {int(row): i for i, row in enumerate(starts.tolist())}
    met: set[int] = set()
    for finish, target in zip(finishes.tolist(), targets.tolist(), strict=True):
        start = first_start.get((int(category[finish]), int(number[finish])))
        if start is None:
            losses.add("flow arrow without start", dropped=False)
            continue
        met.add(start)
        if target < 0:
            continue
        for name, rows in host.items():
            source = int(sources[name][position_of_start[start]])
            if source >= 0:
                _join(rows, source, device, target, name, int(number[finish]))
                break
    lonely = len(starts) - len(met)
    losses.add("flow arrow without finish", lonely, dropped=False)


def _join(host: Columns, source: int, device: Columns, target: int, name: str, number: int) -> None:
    for rows in (host, device):
        if rows[name] is None:
            rows[name] = np.full(len(required(rows["start"])), NULL, np.int64)
    of_host, of_device = required(host[name]), required(device[name])
    if of_device[target] == NULL:
        if of_host[source] == NULL:
            of_host[source] = number
        of_device[target] = of_host[source]


def _rows_at(rows: Columns, pair: NDArray[Any], at: NDArray[np.generic]) -> NDArray[np.int64]:
    """For each (pair, time) the row that starts there, else the innermost around it, else -1."""
    start, end, pairs = rows.get("start"), rows.get("end"), rows.get("pair")
    result = np.full(len(at), -1, np.int64)
    if start is None or end is None or pairs is None or len(start) == 0:
        return result
    for thread in np.unique(pair).tolist():
        asked = np.flatnonzero(pair == thread)
        own = np.flatnonzero(pairs == thread)
        if len(own) == 0:
            continue
        own = own[np.lexsort((~end[own], start[own]))]
        last = np.searchsorted(start[own], at[asked], side="right") - 1
        for question, position in zip(asked.tolist(), last.tolist(), strict=True):
            for back in range(position, max(-1, position - _MAX_BACK), -1):
                row = own[back]
                if end[row] >= at[question]:
                    result[question] = row
                    break
    return result
