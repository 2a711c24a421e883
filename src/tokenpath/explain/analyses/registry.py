"""Which analyses there are, and running those whose tables exist."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

from tokenpath.explain.analyses.contract import Context, Result


@dataclass(frozen=True)
class Entry:
    """An analysis and when it can run."""

    module: str
    """Module of this package with a function `analyse`."""
    needs: tuple[str, ...]
    """Tables that must have rows; without them the analysis is not even imported."""


ANALYSES: tuple[Entry, ...] = (
    Entry("stragglers", ("kernel", "collective")),
    Entry("communication", ("kernel",)),
    Entry("hang", ("collective",)),
    Entry("kernel_roofline", ("kernel",)),
    Entry("elementwise", ("kernel",)),
    Entry("steady_state", ("kernel",)),
    Entry("graph_padding", ("kernel", "step")),
    Entry("flops_funnel", ("kernel",)),
    Entry("critical_path", ("kernel",)),
    Entry("scheduler", ("step", "request", "request_step")),
    Entry("client", ("request",)),
    Entry("host", ("kernel", "api_call")),
    Entry("host_copies", ("kernel", "api_call")),
    Entry("kv_cache", ("step", "request", "request_step")),
    Entry("speculation", ("step", "request", "request_step")),
    Entry("memory", ("memory_block",)),
    Entry("memory_growth", ("kernel", "api_call")),
    Entry("host_cold_start", ("span",)),
    Entry("cpu", ("op",)),
)
"""In the order in which they run; no analysis sees another's result."""


def run_all(context: Context, entries: Sequence[Entry] = ANALYSES) -> Result:
    """The results of all analyses whose tables exist, joined."""
    results = [
        _run(entry, context)
        for entry in entries
        if all(context.capture.num_rows(table) for table in entry.needs)
    ]
    return Result(
        [finding for result in results for finding in result.findings],
        [table for result in results for table in result.tables],
        [note for result in results for note in result.notes],
        [proposal for result in results for proposal in result.proposals],
    )


def _run(entry: Entry, context: Context) -> Result:
    module = importlib.import_module(f"tokenpath.explain.analyses.{entry.module}")
    result: Result = module.analyse(context)
    return result
