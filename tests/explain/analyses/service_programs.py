"""A small continuous-batching engine as tables, for tests: what it costs and how it is limited is given.

capture(serve(requests(100, every_ns=50_000_000), max_running=4))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from explain.serving import SOURCE
from tokenpath.capture.capture import Capture, build_table
from tokenpath.core.finding import Finding
from tokenpath.explain.report import explain

MS = 1_000_000


@dataclass
class Asked:
    """One request."""

    name: str
    sent: int
    prompt: int
    output: int
    cached: int = 0
    engine: int = 0
    queued: int = 0
    computed: int = 0
    given: int = 0
    preempted: int = 0
    tokens: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Limits:
    """An engine: its limits and what its steps cost."""

    max_running: int = 64
    budget: int = 2048
    kv_blocks: int = 4000
    base_ns: int = 8 * MS
    prefill_ns: int = 50_000
    decode_ns: int = 50_000
    host_ns: int = 300_000
    static: bool = False


def requests(
    num: int, every_ns: int, prompt: int = 200, output: int = 40, seed: int = 0, spread: float = 0.3
) -> list[Asked]:
    """Poisson arrivals, lengths with some spread."""
    random = np.random.default_rng(seed)
    at = np.cumsum(random.exponential(every_ns, num)).astype(int) + 10**9
    lengths = np.exp(random.normal(0, spread, (2, num)))
    return [
        Asked(
            f"q{n}",
            int(at[n]),
            max(2, int(prompt * lengths[0, n])),
            max(2, int(output * lengths[1, n])),
        )
        for n in range(num)
    ]


def serve(asked: Sequence[Asked], limits: Limits, send_ns: Any = None) -> list[dict[str, Any]]:
    """First come first served with chunked prefill and preemption of the last; the steps."""
    for one in asked:
        one.queued = one.sent + (1 * MS if send_ns is None else send_ns(one))
    waiting, running, steps = sorted(asked, key=lambda one: one.queued), [], []
    now = 0
    while waiting or running:
        if not running and waiting[0].queued > now:
            now = waiting[0].queued
        may_join = not limits.static or not running
        members, left, preempted = [], limits.budget, 0
        used = sum(one.computed + one.cached for one in running)
        while len(running) > 1 and used + len(running) > 16 * limits.kv_blocks:
            last = running.pop()
            used -= last.computed + last.cached
            last.computed, last.cached, preempted = 0, 0, preempted + 1
            last.preempted += 1
            waiting.insert(0, last)
        queue_open = may_join and not preempted
        for one in [*running]:
            need = one.prompt + one.given - one.cached - one.computed
            if (chunk := min(left, need)) > 0:
                members.append((one, chunk))
                left -= chunk
        while queue_open and waiting and waiting[0].queued <= now and left > 0:
            one = waiting[0]
            need = one.prompt + one.given - one.cached
            if len(running) >= limits.max_running or (
                running and used + one.cached + need > 16 * limits.kv_blocks
            ):
                break
            waiting.pop(0)
            running.append(one)
            members.append((one, min(left, need)))
            used += need + one.cached
            left -= min(left, need)
        is_decode = [one.given > 0 and chunk == 1 for one, chunk in members]
        tokens = sum(chunk for (_, chunk), d in zip(members, is_decode, strict=True) if not d)
        execute = limits.base_ns + limits.prefill_ns * tokens + limits.decode_ns * sum(is_decode)
        start = now
        now += execute + limits.host_ns
        rows = []
        for (one, chunk), decode in zip(members, is_decode, strict=True):
            before = one.computed + one.cached
            one.computed += chunk
            emits = one.computed + one.cached == one.prompt + one.given
            if emits:
                one.given += 1
                one.tokens.append(now)
            rows.append((one.name, "decode" if decode else "prefill", chunk, before, int(emits)))
        running = [one for one in running if one.given < one.output]
        steps.append(
            {
                "rows": rows, "engine": asked[0].engine, "start": start, "end": now,
                "marks": (start + limits.host_ns // 3, start + limits.host_ns // 2, start + limits.host_ns // 2 + execute),
                "running": len(members), "preempted": preempted,
                "queued": sum(one.queued <= start for one in waiting),
                "used": min(-(-sum(o.computed + o.cached for o in running) // 16), limits.kv_blocks),
                "total": limits.kv_blocks,
            }
        )  # fmt: skip
    return steps


def capture(
    asked: Sequence[Asked],
    steps: Sequence[dict[str, Any]],
    settings: dict[str, int] | None = None,
    back_ns: int = 1 * MS,
    names: dict[str, str] | None = None,
    order: Sequence[int] | None = None,
) -> Capture:
    """The tables of a step log and a client; `names` renames requests, `order` shuffles shares of steps."""
    of = names or {}
    table: dict[str, list[dict[str, Any]]] = {
        "source": [SOURCE],
        "step": [],
        "request_step": [],
        "request": [],
    }
    for number, step in enumerate(steps):
        counted = {
            phase: [row for row in step["rows"] if row[1] == phase]
            for phase in ("prefill", "decode")
        }
        table["step"].append(
            {
                "source_id": 0, "name": "step", "observer": "scheduler", "number": number, "engine": "vllm",
                "engine_id": step["engine"], "start_ns": step["start"], "end_ns": step["end"],
                **dict(zip(("schedule_end_ns", "execute_start_ns", "execute_end_ns"), step["marks"], strict=True)),
                "num_running": step["running"], "num_queued": step["queued"], "num_preempted": step["preempted"],
                "kv_used_blocks": step["used"], "kv_total_blocks": step["total"],
                **{f"num_{phase}_tokens": sum(row[2] for row in rows) for phase, rows in counted.items()},
                **{f"num_{phase}_requests": len(rows) for phase, rows in counted.items()},
            }
        )  # fmt: skip
        keys = ("request_id", "phase", "num_tokens", "num_computed_before", "num_emitted")
        for row in step["rows"]:
            share = dict(zip(keys, (of.get(row[0], row[0]), *row[1:]), strict=True))
            table["request_step"].append({"source_id": 0, "step_id": number, **share})
    if order is not None:
        table["request_step"] = [table["request_step"][at] for at in order]
    for one in asked:
        common = {
            "source_id": 0, "request_id": of.get(one.name, one.name), "prompt_tokens": one.prompt,
            "output_tokens": one.output,
        }  # fmt: skip
        table["request"].append(
            common
            | {"observer": "engine", "arrival_ns": one.queued, "queued_ns": one.queued,
               "first_token_ns": one.tokens[0], "last_token_ns": one.tokens[-1]}
        )  # fmt: skip
        table["request"].append(
            common
            | {"observer": "client", "arrival_ns": one.sent, "queued_ns": None,
               "first_token_ns": one.tokens[0] + back_ns, "last_token_ns": one.tokens[-1] + back_ns}
        )  # fmt: skip
    stated = {"block_size": 16, **(settings or {})}
    table["setting"] = [{"source_id": 0, "name": k, "value": str(v)} for k, v in stated.items()]
    return Capture(
        {
            name: build_table(name, {key: [row[key] for row in rows] for key in rows[0]})
            for name, rows in table.items()
        }
    )


def run(asked: Sequence[Asked], limits: Limits, **more: Any) -> Capture:
    """Serve and write, limits among the settings."""
    send = more.pop("send_ns", None)
    settings = {"max_num_seqs": limits.max_running, "max_num_batched_tokens": limits.budget}
    return capture(asked, serve(asked, limits, send), settings, **more)


def findings(made: Capture) -> list[Finding]:
    """What explain claims about requests, ranked."""
    report, _ = explain(made)
    return [finding for finding in report.findings if finding.scope == "requests"]


def mean_latency_ns(asked: Sequence[Asked]) -> float:
    """Queued to last token."""
    return sum(one.tokens[-1] - one.queued for one in asked) / len(asked)


def fresh(asked: Sequence[Asked]) -> list[Asked]:
    """The same requests, not yet served."""
    return [replace(one, computed=0, given=0, preempted=0, tokens=[]) for one in asked]
