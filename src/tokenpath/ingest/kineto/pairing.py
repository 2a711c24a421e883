"""Begin and end events (`ph` B and E) to complete ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.kineto.columns import NULL, Col, Flag
from tokenpath.ingest.losses import Losses

Rows = NDArray[np.int64]


def pair_begin_end(rows: Rows, losses: Losses) -> Rows:
    """Complete events, in the order of their begins in the file, from begin and end rows.

    On each thread, in the order of time, an end closes the innermost open begin of its name, or the
    innermost of all when it has no name (the Chrome trace format asks for proper nesting; files that
    break it are read as far as the names allow). What finds no partner is counted.
    """
    order = np.lexsort((rows[:, Col.TS], rows[:, Col.PAIR]))
    phases, names = rows[:, Col.PHASE].tolist(), rows[:, Col.NAME].tolist()
    threads = rows[:, Col.PAIR].tolist()
    begins: list[int] = []
    ends: list[int] = []
    open_rows: list[int] = []
    thread = None
    lonely: dict[str, list[int]] = {"end without begin": [], "begin without end": []}
    for row in order.tolist():
        if threads[row] != thread:
            lonely["begin without end"] += open_rows
            open_rows, thread = [], threads[row]
        if phases[row] == ord("B"):
            open_rows.append(row)
            continue
        for at in range(len(open_rows) - 1, max(-1, len(open_rows) - 65), -1):
            if names[row] == NULL or names[row] == names[open_rows[at]]:
                begins.append(open_rows.pop(at))
                ends.append(row)
                break
        else:
            lonely["end without begin"].append(row)
    lonely["begin without end"] += open_rows
    for reason, alone in lonely.items():
        if alone:
            losses.add(reason, len(alone), offset=int(rows[alone, Col.OFFSET].min()))
    complete = rows[begins]
    complete[:, Col.DUR] = rows[ends, Col.TS] - complete[:, Col.TS]
    complete[:, Col.PHASE] = ord("X")
    # The times have been looked at already, so their flags must not be counted again.
    complete[:, Col.FLAGS] &= Flag.SPYRE
    return complete[np.argsort(complete[:, Col.OFFSET], kind="stable")]
