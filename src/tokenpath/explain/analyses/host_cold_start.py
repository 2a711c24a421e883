"""How long an engine took to start, by the phases that it traced: loading, compiling, capturing graphs."""

from __future__ import annotations

import re

import numpy as np

from tokenpath.capture.nesting import parents, self_time
from tokenpath.core.report import ShownTable, TableColumn, Unit
from tokenpath.explain.analyses.contract import Context, Result

_START = re.compile(
    r"load|init|prepare model|warm|compil|captur|profil|allocate kv|autotun|download|weights",
    re.IGNORECASE,
)
"""Names of spans of starting; vLLM has Overall Loading, EngineCoreProc init, Load model, Allocate KV cache, ..."""
_COLUMNS = (
    TableColumn("phase", "phase", Unit.TEXT),
    TableColumn("self_ns", "itself", Unit.NS),
    TableColumn("total_ns", "with what is inside", Unit.NS),
    TableColumn("after_ns", "after the start", Unit.NS),
    TableColumn("process", "process", Unit.TEXT, is_key_figure=False),
)


def analyse(context: Context) -> Result:
    """A table of the phases, the longest first; nothing where no spans of starting were recorded."""
    capture = context.capture
    codes, names = capture.codes("span", "name")
    wanted = np.array([_START.search(name) is not None for name in names] or [False])
    # A server span is a request, whatever its name.
    kinds, kind_names = capture.codes("span", "kind")
    is_request = np.isin(
        kinds, [at for at, name in enumerate(kind_names) if name in ("server", "client")]
    )
    rows = np.flatnonzero(wanted[np.maximum(codes, 0)] & (codes >= 0) & ~is_request)
    if len(rows) < 2:
        return Result()
    start, end = capture.int64("span", "start_ns")[rows], capture.int64("span", "end_ns")[rows]
    attributes = capture["span"]["attributes"].to_pylist()
    texts = [dict(attributes[row] or ()) for row in rows.tolist()]
    processes = [
        text.get("vllm.process_name") or text.get("vllm.process_kind") or "" for text in texts
    ]
    number = {name: at for at, name in enumerate(sorted(set(processes)))}
    group = np.array([number[name] for name in processes], np.int32)
    own = self_time(start, end, parents(group, start, end))
    origin = int(start.min())
    shown = [
        (
            names[codes[row]],
            int(own[at]),
            int(end[at] - start[at]),
            int(start[at]) - origin,
            processes[at] or None,
        )
        for at, row in enumerate(rows.tolist())
    ]
    shown.sort(key=lambda row: (-row[1], row[0]))
    note = "Phases of several processes overlap; within one process the times of the column `itself` add up."
    return Result(
        tables=[ShownTable("cold_start", "Cold start by phase", _COLUMNS, shown, len(shown), note)]
    )
