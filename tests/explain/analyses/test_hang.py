"""Dumps of a hanging job: who is missing, who disagrees, where it is stuck."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from explain.analyses.rank_programs import report_of
from ingest.samples.flight_recorder import dump, entry
from tokenpath.api import explain, load
from tokenpath.core.finding import Finding

CODES = ("missing-rank", "collective-mismatch", "stuck-collective")
Dumps = Mapping[int, Sequence[dict[str, Any]]]


def found(
    folder: Path, dumps: Dumps, groups: Mapping[str, list[int]] | None = None
) -> list[Finding]:
    """Write a dump a rank, read them, and say why the job hangs."""
    config = {
        name: {"name": name, "desc": "default_pg" if name == "0" else "tp", "ranks": str(ranks)}
        for name, ranks in (groups or {"0": [0, 1, 2, 3]}).items()
    }
    for rank, entries in dumps.items():
        path = folder / f"nccl_trace_rank_{rank}.json"
        path.write_text(json.dumps(dump([*entries], pg_config=config)), encoding="utf-8")
    report = report_of(load([folder]), ["hang"])
    return [finding for finding in report.findings if finding.code in CODES]


def done(upto: int) -> list[dict[str, Any]]:
    return [entry(number) for number in range(1, upto + 1)]


def test_the_rank_that_never_came(tmp_path: Path) -> None:
    waiting = [*done(4), entry(5, "started")]
    (finding,) = found(tmp_path, {0: waiting, 1: waiting, 2: done(3), 3: waiting})
    assert finding.code == "missing-rank"
    assert finding.place == {"group": "0", "rank": "2"}
    assert "rank 2 never came to allreduce 4 of group 0 (last there: 3)" in finding.sentence


def test_the_dump_begins_later(tmp_path: Path) -> None:
    """A full ring forgets: that rank 1 has no entry 1 says nothing."""
    (finding,) = found(
        tmp_path,
        {
            0: [*done(3), entry(4, "started")],
            1: [entry(3), entry(4, "started")],
            2: [*done(3), entry(4, "started")],
            3: done(3),
        },
    )
    assert (finding.code, finding.place["rank"]) == ("missing-rank", "3")


def test_another_operation_under_the_number(tmp_path: Path) -> None:
    odd = entry(3, "started", profiling_name="nccl:broadcast")
    usual = [*done(2), entry(3, "started")]
    (finding,) = found(tmp_path, {0: usual, 1: [*done(2), odd], 2: usual, 3: usual})
    assert finding.code == "collective-mismatch"
    assert finding.place["rank"] == "1"
    assert (
        "broadcast of 48.0 B Float against allreduce of 48.0 B Float"
        in finding.sentence.replace("48 B", "48.0 B")
    )


def test_another_size_under_the_number(tmp_path: Path) -> None:
    odd = entry(3, "started", input_sizes=[[3, 5]])
    usual = [*done(2), entry(3, "started")]
    (finding,) = found(tmp_path, {0: usual, 1: usual, 2: [*done(2), odd], 3: usual})
    assert (finding.code, finding.place["rank"]) == ("collective-mismatch", "2")


def test_a_device_that_does_not_get_there(tmp_path: Path) -> None:
    started, scheduled = ([*done(2), entry(3, state)] for state in ("started", "scheduled"))
    (finding,) = found(tmp_path, {0: started, 1: started, 2: started, 3: scheduled})
    assert finding.code == "stuck-collective"
    assert finding.place["rank"] == "3"


def test_a_rank_without_a_dump(tmp_path: Path) -> None:
    started = [*done(2), entry(3, "started")]
    (finding,) = found(tmp_path, {0: started, 1: started, 2: started})
    assert finding.code == "stuck-collective"
    assert finding.place["rank"] == "3"
    assert "rank 3 of the group wrote no dump" in finding.sentence


def test_who_waits_elsewhere_is_a_victim(tmp_path: Path) -> None:
    """Rank 1 is not in the world's collective because it waits for rank 0 in its own group."""
    pair = {"process_group": ["7", "tp"]}
    world = [*done(2), entry(3, "started")]
    dumps = {
        0: [*done(2), entry(1, **pair)],
        1: [*done(2), entry(1, **pair), entry(2, "started", **pair)],
        2: world,
        3: world,
    }
    (finding,) = found(tmp_path, dumps, {"0": [0, 1, 2, 3], "7": [0, 1]})
    assert finding.place == {"group": "7", "rank": "0"}


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_ranks_in_another_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    states = {order[0]: done(3)} | {rank: [*done(3), entry(4, "started")] for rank in order[1:]}
    (finding,) = found(tmp_path, states)
    assert finding.place["rank"] == str(order[0])


def test_a_job_that_got_through(tmp_path: Path) -> None:
    assert not found(tmp_path, {rank: done(5) for rank in range(4)})


def test_the_answer_says_why(tmp_path: Path) -> None:
    dumps = {rank: [*done(3), entry(4, "started")] for rank in range(3)} | {3: done(3)}
    assert found(tmp_path, dumps)
    report = explain([tmp_path]).report
    assert report.answer[0].startswith("Rank 3 never came to allreduce 4 of group 0")
    assert report.headline.startswith("a hanging job")
