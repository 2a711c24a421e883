"""A small engine that writes the serving tables, for tests: random steps, chunked prefill, preemption."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tokenpath.capture.capture import Capture, build_table

SOURCE = {
    "path": "engine",
    "format": "x",
    "reader_version": 1,
    "num_bytes": 1,
    "clock_offset_ns": 0,
    "clock": "epoch",
    "state": "synthetic",
    "num_events": 0,
    "num_skipped": 0,
}


@dataclass
class Request:
    """One request on its way."""

    name: str
    sent_ns: int
    queued_ns: int
    prompt: int
    output: int
    computed: int = 0
    emitted: int = 0
    tokens_ns: list[int] = field(default_factory=list)
    client_ns: list[int] = field(default_factory=list)
    first_step: int | None = None


@dataclass
class Engine:
    """What ran: `steps` as dictionaries of their times and members."""

    requests: list[Request]
    steps: list[dict[str, Any]]


def run(seed: int, num_requests: int = 8, budget: int = 64, max_running: int = 4) -> Engine:
    """Serve random requests; every moment is known."""
    rng = random.Random(seed)
    at, requests = 10**9, []
    for number in range(num_requests):
        at += rng.randrange(0, 30_000_000)
        sent = at
        requests.append(
            Request(
                f"r{number}",
                sent,
                sent + rng.randrange(0, 3_000_000),
                rng.randrange(1, 150),
                rng.randrange(1, 6),
            )
        )
    now, steps = requests[0].queued_ns, []
    while any(request.emitted < request.output for request in requests):
        waiting = [r for r in requests if r.queued_ns <= now and r.emitted < r.output]
        if not waiting:
            now = min(r.queued_ns for r in requests if r.emitted < r.output)
            continue
        left, members = budget, []
        for request in waiting[:max_running]:
            if rng.random() < 0.1:
                continue  # preempted, or passed over
            need = request.prompt + request.emitted - request.computed
            tokens = min(left, need)
            if tokens:
                members.append((request, tokens, tokens == need))
                left -= tokens
        if not members:
            now += 1_000_000
            continue
        now += rng.randrange(0, 2_000_000)
        marks = [now]
        for longest in (1_000_000, 500_000, 20_000_000, 1_000_000):
            marks.append(marks[-1] + rng.randrange(0, longest))
        step = {"marks": marks, "members": []}
        for request, tokens, emits in members:
            phase = "decode" if request.emitted and tokens == 1 else "prefill"
            step["members"].append((request.name, phase, tokens, request.computed, emits))
            if request.first_step is None:
                request.first_step = len(steps)
            request.computed += tokens
            if emits:
                request.emitted += 1
                request.tokens_ns.append(marks[-1])
                request.client_ns.append(marks[-1] + rng.randrange(0, 4_000_000))
        steps.append(step)
        now = marks[-1]
    for request in requests:
        request.client_ns.sort()
    return Engine(requests, steps)


def capture_of(engine: Engine, *, parts: bool = True) -> Capture:
    """The tables that a step log and a client would give; without `parts` only starts and ends of steps."""
    rows: list[dict[str, Any]] = []
    shares: list[dict[str, Any]] = []
    for number, step in enumerate(engine.steps):
        members, marks = step["members"], step["marks"]
        row = {
            "source_id": 0,
            "name": f"step {number}",
            "observer": "scheduler",
            "number": number,
            "start_ns": marks[0],
            "end_ns": marks[4],
            "schedule_end_ns": marks[1] if parts else None,
            "execute_start_ns": marks[2] if parts else None,
            "execute_end_ns": marks[3] if parts else None,
        }
        for phase in ("prefill", "decode"):
            mine = [member for member in members if member[1] == phase]
            row[f"num_{phase}_requests"] = len(mine)
            row[f"num_{phase}_tokens"] = sum(member[2] for member in mine)
        rows.append(row)
        shares += [
            {
                "source_id": 0,
                "request_id": name,
                "step_id": number,
                "phase": phase,
                "num_tokens": tokens,
                "num_computed_before": computed,
                "num_emitted": int(emits),
            }
            for name, phase, tokens, computed, emits in members
        ]
    seen = []
    for request in engine.requests:
        common = {"source_id": 0, "request_id": request.name, "output_tokens": request.output}
        common |= {"prompt_tokens": request.prompt}
        start = None if request.first_step is None else engine.steps[request.first_step]["marks"][0]
        seen.append(
            common
            | {
                "observer": "engine",
                "arrival_ns": request.queued_ns,
                "queued_ns": request.queued_ns,
                "scheduled_ns": start,
                "first_token_ns": request.tokens_ns[0],
                "last_token_ns": request.tokens_ns[-1],
            }
        )
        seen.append(
            common
            | {
                "observer": "client",
                "arrival_ns": request.sent_ns,
                "queued_ns": None,
                "scheduled_ns": None,
                "first_token_ns": request.client_ns[0],
                "last_token_ns": request.client_ns[-1],
            }
        )
    tables = {"source": [SOURCE], "step": rows, "request_step": shares, "request": seen}
    return Capture({name: _table(name, part) for name, part in tables.items()})


def _table(name: str, rows: list[dict[str, Any]]) -> Any:
    return build_table(name, {key: [row[key] for row in rows] for key in rows[0]})
