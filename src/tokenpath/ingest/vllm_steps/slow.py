"""Lines to columns, one JSON object at a time: for what `fast` leaves, and for damaged lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenpath.ingest import fields
from tokenpath.ingest.json_lines import Block, parse
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.vllm_steps.record import KINDS, NULL, STEP_FIELDS, Adds, Ids, Marks, Rows

_SHARE_FIELDS = 5
_KIND_OF = {kind: number for number, kind in enumerate(KINDS)}


def read_block(block: Block, first_line: int, ids: Ids, losses: Losses) -> Rows:
    """The columns of a block of lines. What is no record, or lacks what it needs, is counted."""
    scan = _Scan(ids, losses)
    at = block.offset
    for number, line in enumerate(block.data.splitlines(keepends=True), first_line):
        if not line.isspace():
            scan.take(line, number, at)
        at += len(line)
    return scan.rows()


class _Scan:
    def __init__(self, ids: Ids, losses: Losses) -> None:
        self._ids, self._losses = ids, losses
        self._steps: list[list[int]] = []
        self._lines: list[int] = []
        self._counts: list[int] = []
        self._shares: list[tuple[int, int, int, int, int]] = []
        self._adds, self._finished, self._preempted = Adds(), Marks(), Marks()

    def take(self, line: bytes, number: int, at: int) -> None:
        record = parse(line)
        if not isinstance(record, dict):
            self._losses.add("damaged record", offset=at)
            return
        event = record.get("ev")
        if event == "step":
            self._step(record, number, at)
        elif event == "add":
            self._add(record, number, at)
        elif event != "config":
            what = fields.text(event) or ""
            self._losses.add("unknown event", offset=at, what=what[:80])

    def _step(self, record: dict[str, Any], number: int, at: int) -> None:
        values = [fields.count(record.get(name)) for name in STEP_FIELDS]
        self._steps.append([NULL if value is None else value for value in values])
        self._lines.append(number)
        before = len(self._shares)
        shares = record.get("reqs")
        for share in shares if isinstance(shares, list) else ():
            self._share(share, at)
        self._counts.append(len(self._shares) - before)
        for text, reason in fields.mapping(record.get("done")).items():
            self._finished.line.append(number)
            self._finished.request.append(self._ids.number(fields.text(text) or ""))
            self._finished.reason.append(fields.text(reason))
        preempted = record.get("preempted")
        for text in preempted if isinstance(preempted, list) else ():
            if isinstance(text, str):
                self._preempted.line.append(number)
                self._preempted.request.append(self._ids.number(fields.text(text) or ""))
                self._preempted.reason.append(None)

    def _share(self, share: object, at: int) -> None:
        if isinstance(share, list) and len(share) >= _SHARE_FIELDS:
            text, kind = share[0], _KIND_OF.get(share[1]) if isinstance(share[1], str) else None
            numbers = [fields.count(value) for value in share[2:_SHARE_FIELDS]]
            if isinstance(text, str) and kind is not None and None not in numbers:
                before, tokens, emitted = (number or 0 for number in numbers)
                request = self._ids.number(fields.text(text) or "")
                self._shares.append((request, kind, before, tokens, emitted))
                return
        self._losses.add("damaged share of a step", offset=at)

    def _add(self, record: dict[str, Any], number: int, at: int) -> None:
        text = record.get("req")
        if not isinstance(text, str):
            self._losses.add("request without an id", offset=at)
            return
        self._adds.line.append(number)
        self._adds.request.append(self._ids.number(fields.text(text) or ""))
        time, prompt = fields.count(record.get("t_us")), fields.count(record.get("prompt"))
        self._adds.at_us.append(NULL if time is None else time)
        self._adds.prompt.append(NULL if prompt is None else prompt)

    def rows(self) -> Rows:
        steps = np.array(self._steps, np.int64).reshape(-1, len(STEP_FIELDS))
        shares = np.array(self._shares, np.int64).reshape(-1, _SHARE_FIELDS)
        return Rows(
            {name: steps[:, number] for number, name in enumerate(STEP_FIELDS)},
            np.array(self._lines, np.int64),
            np.array(self._counts, np.int64),
            shares[:, 0].astype(np.int32),
            shares[:, 1].astype(np.int32),
            shares[:, 2].copy(),
            shares[:, 3].copy(),
            shares[:, 4].copy(),
            self._adds,
            self._finished,
            self._preempted,
        )
