"""Inspect: what a file is and what it holds, without a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenpath.api.load import Progress, load
from tokenpath.capture.capture import Capture
from tokenpath.core.report import Cell, Report, ShownTable, TableColumn, Trust, Unit
from tokenpath.core.units import format_bytes


def inspect(
    paths: Sequence[str | Path],
    *,
    keep_hosts: bool = False,
    progress: Progress | None = None,
    columns: Mapping[str, str] | None = None,
) -> Report:
    """A report with the sources, devices, tables, threads and skipped events of the input."""
    capture = load(paths, keep_hosts=keep_hosts, progress=progress, columns=columns)
    sources = capture["source"].to_pylist()
    first = sources[0] if sources else {}
    num_events = sum(row["num_events"] for row in sources)
    lost = sum(row["num_events"] for row in capture["skip"].to_pylist() if row["lost"])
    size = sum(row["num_bytes"] for row in sources)
    files = f"{len(sources)} files" if len(sources) != 1 else str(first.get("path"))
    states = sorted({row["state"] for row in sources if row["state"] != "measured"})
    sentence = (
        f"{num_events:,} events in {format_bytes(size)}, {lost:,} of them lost or repaired; "
        f"{capture.num_rows('kernel'):,} pieces of device work, "
        f"{capture.num_rows('api_call'):,} API calls, {capture.num_rows('op'):,} operators, "
        f"{capture.num_rows('frame'):,} Python frames, {capture.num_rows('step'):,} steps."
    )
    return Report(
        verb="inspect",
        headline=" · ".join(
            [files, str(first.get("format")), str(first.get("profiler") or "unknown profiler")]
            + [state.upper() for state in states]
        ),
        answer=(sentence,),
        trust=Trust.GOOD,
        window=None,
        funnel=None,
        findings=(),
        dismissed=(),
        notes=(),
        tables=[
            _rows("sources", "Sources", sources, _SOURCE),
            _rows("devices", "Devices", capture["device"].to_pylist(), _DEVICE),
            _counts(capture),
            _rows("skips", "Skipped and repaired", capture["skip"].to_pylist(), _SKIP),
            _rows("steps", "Steps", capture["step"].slice(0, 200).to_pylist(), _STEP,
                  capture.num_rows("step")),
        ],
        state=states[0] if states else "measured",
        facts={"sources": sources, "skips": capture["skip"].to_pylist()},
    )  # fmt: skip


_SOURCE = (
    TableColumn("path", "file", Unit.TEXT),
    TableColumn("format", "format", Unit.TEXT),
    TableColumn("rank", "rank", Unit.COUNT),
    TableColumn("world_size", "of", Unit.COUNT),
    TableColumn("num_events", "events", Unit.COUNT),
    TableColumn("num_skipped", "skipped", Unit.COUNT),
    TableColumn("num_bytes", "size", Unit.BYTES),
    TableColumn("trace_id", "trace id", Unit.TEXT, is_key_figure=False),
    TableColumn("clock", "clock", Unit.TEXT, is_key_figure=False),
)
_DEVICE = (
    TableColumn("index", "index", Unit.COUNT),
    TableColumn("name", "name", Unit.TEXT),
    TableColumn("num_sms", "SMs", Unit.COUNT),
    TableColumn("memory_bytes", "memory", Unit.BYTES),
    TableColumn("hardware", "catalogue", Unit.TEXT),
    TableColumn("resolved_by", "resolved by", Unit.TEXT, is_key_figure=False),
)
_SKIP = (
    TableColumn("reason", "reason", Unit.TEXT),
    TableColumn("lost", "information lost", Unit.TEXT),
    TableColumn("num_events", "events", Unit.COUNT),
    TableColumn("example", "first", Unit.TEXT),
)
_STEP = (
    TableColumn("name", "label", Unit.TEXT),
    TableColumn("engine", "engine", Unit.TEXT),
    TableColumn("phase", "phase", Unit.TEXT),
    TableColumn("num_prefill_tokens", "prefill tokens", Unit.COUNT),
    TableColumn("num_decode_requests", "decode requests", Unit.COUNT),
)
_COUNT = (
    TableColumn("table", "table", Unit.TEXT),
    TableColumn("num_rows", "rows", Unit.COUNT),
    TableColumn("num_bytes", "in memory", Unit.BYTES),
)


def _rows(
    key: str,
    title: str,
    rows: Sequence[dict[str, Cell]],
    columns: Sequence[TableColumn],
    num_rows_in_all: int | None = None,
) -> ShownTable:
    cells = [[_shown(row[column.key]) for column in columns] for row in rows]
    return ShownTable(key, title, columns, cells, num_rows_in_all or len(cells))


def _shown(value: Cell) -> Cell:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value


def _counts(capture: Capture) -> ShownTable:
    held = sorted(
        ((name, capture.num_rows(name), capture[name].nbytes) for name in capture),
        key=lambda item: -item[1],
    )
    return ShownTable("tables", "Tables", _COUNT, [row for row in held if row[1]], len(held))
