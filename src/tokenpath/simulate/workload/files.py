"""Workload files: which format a file has, found in its content, and the requests in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenpath.core.errors import InputError, UnknownFormat, UsageError
from tokenpath.simulate.workload.lengths import LengthLaw
from tokenpath.simulate.workload.own_format import is_own, read_own
from tokenpath.simulate.workload.rows import ReadWorkload, read_head
from tokenpath.simulate.workload.servegen import draw_servegen, is_servegen, read_servegen
from tokenpath.simulate.workload.trace_csv import format_of, names_of, read_csv
from tokenpath.simulate.workload.trace_jsonl import (
    first_record,
    is_llmservingsim,
    is_mooncake,
    read_llmservingsim,
    read_mooncake,
)
from tokenpath.simulate.workload.transform import cut_read

FORMATS = ("tokenpath", "mooncake", "llmservingsim", "servegen", "azure", "burstgpt", "lengths")
_JSON_FORMATS = (
    ("tokenpath", is_own, read_own),
    ("mooncake", is_mooncake, read_mooncake),
    ("llmservingsim", is_llmservingsim, read_llmservingsim),
)


def sniff(path: Path) -> str | None:
    """The format of a file or folder, by its content; None where it is no workload file."""
    if not path.exists():
        raise InputError("no such file", where=str(path), next_step="check the name")
    if is_servegen(path):
        return "servegen"
    if path.is_dir():
        return None
    head = read_head(path)
    record = first_record(head)
    if record is not None:
        return next((name for name, knows, _ in _JSON_FORMATS if knows(record)), None)
    known = format_of(names_of(head))
    return known.name if known else None


def read_workload(
    paths: str | Path | Sequence[str | Path],
    *,
    output: LengthLaw | None = None,
    begin_s: float | None = None,
    duration_s: float | None = None,
    seed: int = 0,
) -> ReadWorkload:
    """The requests of a workload file, in order of arrival from 0 on.

    Several paths are for ServeGen, whose clients' files belong together; its requests are drawn (`seed`) for
    `duration_s` from `begin_s` on, an hour if not said. `output` is the law of outputs for lists of prompt
    lengths alone. `duration_s` of other formats keeps the requests of so long a stretch (see `cut`).
    """
    files = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if not files:
        raise UsageError("no file", where="workload", allowed="at least one")
    kinds = {sniff(path) for path in files}
    if kinds == {"servegen"}:
        clients = read_servegen(files)
        begin_s = clients.busy_hour_s() if begin_s is None else begin_s
        drawn = draw_servegen(clients, begin_s=begin_s, duration_s=duration_s or 3600.0, seed=seed)
        with_rates = sum(client.windows is not None for client in clients.clients)
        own = sum(bool(client.windows and client.lengths) for client in clients.clients)
        note = (
            f"drawn from {with_rates} clients from {begin_s:g} s on; {own} of them have lengths of "
            "their own, the others take those of all"
        )
        return ReadWorkload(drawn, "servegen", clients.skips, (note,))
    if len(files) > 1:
        raise UsageError(
            f"{len(files)} files",
            where="workload",
            allowed="one file, or the files of ServeGen's clients",
        )
    return cut_read(_read_one(files[0], output), begin_s, duration_s)


def _read_one(path: Path, output: LengthLaw | None) -> ReadWorkload:
    if path.is_dir():
        raise UnknownFormat("a folder without files of clients", where=str(path), allowed="a file")
    head = read_head(path)
    record = first_record(head)
    if record is not None:
        for _, knows, read in _JSON_FORMATS:
            if knows(record):
                return read(path)
    known = format_of(names_of(head)) if record is None else None
    if known is None:
        raise UnknownFormat(
            "no workload file" if head.strip() else "the file is empty",
            where=str(path),
            allowed=", ".join(FORMATS),
            next_step="see docs/workload.md; requests of a load generator are read as a capture",
        )
    return read_csv(path, known, output)
