"""Flight-recorder dumps: both forms say the same, ranks stay apart, hostile ones end in our errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingest.compare import lost, reasons, rows
from ingest.samples.flight_recorder import (
    T0,
    dump,
    entries,
    entry,
    pickled,
    write_json,
    write_pickle,
)
from tokenpath.core.errors import DamagedInput, InputError, LimitExceeded
from tokenpath.ingest import read


def test_both_forms_give_the_same_tables(tmp_path: Path) -> None:
    """But for the stacks, which only the pickle has, and the file itself."""
    one, other = read([write_json(tmp_path, dump(entries()))]), read([pickled(tmp_path)])
    for name in ("setting", "source_note", "skip"):
        assert sorted(map(str, one[name].to_pylist())) == sorted(map(str, other[name].to_pylist()))
    columns = [name for name in one["collective"].schema.names if name != "call_stack"]
    assert rows(one, "collective", *columns) == rows(other, "collective", *columns)


def test_ranks_of_a_folder_are_sources_of_one_capture(tmp_path: Path) -> None:
    for rank in range(3):
        state = "completed" if rank else "scheduled"
        write_pickle(tmp_path, dump([entry(1, state)])).rename(tmp_path / f"nccl_trace_rank_{rank}")
    (tmp_path / "README").write_text("not a trace")
    capture = read([tmp_path])
    assert rows(capture, "source", "rank") == [0, 1, 2]
    assert rows(capture, "collective", "source_id", "state") == [
        (0, "scheduled"),
        (1, "completed"),
        (2, "completed"),
    ]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_12", 12),
        ("_dump_7.json", 7),
        ("fr_1.pickle.gz", 1),
        ("global-rank=30.json", 30),
        ("dump.json", None),
    ],
)
def test_the_rank_is_in_the_name(tmp_path: Path, name: str, rank: int | None) -> None:
    write_json(tmp_path, dump(entries())).rename(tmp_path / name)
    assert rows(read([tmp_path / name]), "source", "rank", "rank_source") == [
        (rank, None if rank is None else "file name")
    ]


def test_groups_and_status_are_settings(tmp_path: Path) -> None:
    state = {"0x7f": {"rank": "3", "hostname": "gpu-node-117.prod.corp"}}
    capture = read([write_json(tmp_path, dump(entries(), nccl_comm_state=state))])
    settings = dict(rows(capture, "setting", "name", "value"))
    assert settings["version"] == "2.10"
    assert settings["pg_config.5.desc"] == "pp"
    assert settings["pg_config.0.ranks"] == "[0, 1, 2, 3]"
    assert settings["pg_status.0.last_completed_collective"] == "1"
    assert settings["nccl_comm_state.0x7f.rank"] == "3"
    assert "gpu-node" not in str(settings)


def test_the_note_names_the_first_unfinished(tmp_path: Path) -> None:
    capture = read([write_json(tmp_path, dump(entries()))])
    sentences = rows(capture, "source_note", "sentence")
    assert sentences[0] == (
        "2 of 3 collectives had not finished when this was written; "
        "the first is allgather 2 of group 0 (started)"
    )
    calm = read([write_json(tmp_path, dump([entry(1, time_discovered_started_ns=0)]))])
    assert rows(calm, "source_note", "code") == ["watchdog-times"]
    never = entry(1, "scheduled")
    assert rows(read([write_json(tmp_path, dump([never]))]), "source_note", "code") == [
        "unfinished-collectives"
    ]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"input_sizes": [[2, 3], [4]], "input_dtypes": ["Half", "Long"]}, 2 * 3 * 2 + 4 * 8),
        ({"input_sizes": [[]], "input_dtypes": ["Double"]}, 8),
        ({"input_sizes": [[0]], "input_dtypes": ["Float"]}, 0),
        ({"input_sizes": [], "input_dtypes": []}, None),
        ({"input_sizes": [[1]], "input_dtypes": []}, None),
        ({"input_sizes": [[-1]], "input_dtypes": ["Float"]}, None),
        ({"input_sizes": [[2**62, 2**62]], "input_dtypes": ["Float"]}, None),
        ({"input_sizes": ["x"], "input_dtypes": ["Float"]}, None),
        ({"input_sizes": 5, "input_dtypes": {"a": 1}}, None),
    ],
)
def test_payload(tmp_path: Path, more: dict[str, Any], expected: int | None) -> None:
    capture = read([write_json(tmp_path, dump([entry(1, **more)]))])
    assert rows(capture, "collective", "payload_bytes") == [expected]


@pytest.mark.parametrize(
    ("name", "op", "peer"),
    [
        ("nccl:all_reduce", "allreduce", None),
        ("nccl:_reduce_scatter_base", "reduce_scatter", None),
        ("nccl:all_to_all", "alltoall", None),
        ("nccl:broadcast", "broadcast", None),
        ("nccl:recv 3<-2", "recv", 2),
        ("nccl:coalesced", "coalesced", None),
        ("xccl:all_reduce_barrier", "barrier", None),
        ("plain", "plain", None),
    ],
)
def test_names(tmp_path: Path, name: str, op: str, peer: int | None) -> None:
    capture = read([write_json(tmp_path, dump([entry(1, profiling_name=name)]))])
    assert rows(capture, "collective", "op", "peer") == [(op, peer)]


def test_what_is_odd_is_counted(tmp_path: Path) -> None:
    odd = [
        entry(1, "lost"),
        entry(2, time_discovered_started_ns=T0 + 900),
        {"state": "completed"},
        7,
        entry(2**63, time_created_ns=-5),
    ]
    capture = read([write_json(tmp_path, dump(odd, pg_status=[1], entries=odd))])
    assert lost(capture) == {
        "entry of unknown state": 1,
        "end before start": 1,
        "malformed entry": 2,
        "setting without a plain name or value": 1,
    }
    assert rows(capture, "collective", "state", "sequence", "start_ns", "end_ns") == [
        (None, 1, T0 + 100, None),
        ("completed", 2, None, T0 + 200),
        ("completed", None, T0 + 100, T0 + 200),
    ]
    assert rows(capture, "source", "num_events", "num_skipped") == [(5, 2)]


@pytest.mark.parametrize("ranks", ["", "0-7", "[" * 5000, "{}", "[]", 5, None])
def test_groups_of_unknown_form_have_no_size(tmp_path: Path, ranks: Any) -> None:
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}, "1": 5}
    capture = read([write_json(tmp_path, dump(entries(), pg_config=groups))])
    assert rows(capture, "collective", "group_size") == [None] * 3
    assert rows(capture, "source", "world_size") == [None]


def test_a_dump_without_collectives(tmp_path: Path) -> None:
    """`includeCollectives=False`, or nothing recorded."""
    value = dump([])
    del value["entries"]
    assert read([write_json(tmp_path, value)]).num_rows("collective") == 0


def test_hostile_pickles(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (exec, ("raise SystemExit",))

    with pytest.raises(InputError, match=r"asks for (builtins|__builtin__)\.exec: refused"):
        read([write_pickle(tmp_path, dump([], evil=Evil()))])
    with pytest.raises(DamagedInput, match="neither collectives nor"):
        read([write_pickle(tmp_path, ["pg_config"])])
    with pytest.raises(LimitExceeded, match="named over and over"):
        read([write_pickle(tmp_path, dump([entry(1)] * 500))])
    many = [[1]] * 1000
    shared = [entry(n, input_sizes=many) for n in range(50)]
    with pytest.raises(LimitExceeded, match="named over and over"):
        read([write_pickle(tmp_path, dump(shared))])
    once = [entry(n, process_group=["0", "x"]) for n in range(500)]
    assert read([write_pickle(tmp_path, dump(once))]).num_rows("collective") == 500
    pairs = {str(n): {str(m): m for m in range(50)} for n in range(50)}
    capture = read([write_pickle(tmp_path, dump([], nccl_comm_state=pairs))])
    assert reasons(capture)["setting beyond the bound"] >= 1


def test_cut_json_gives_what_is_there(tmp_path: Path) -> None:
    path = write_json(tmp_path, dump([entry(n) for n in range(50)]))
    text = path.read_text()
    at = text.index('"record_id": 30')
    path.write_text(text[:at])
    capture = read([path])
    assert rows(capture, "collective", "sequence") == list(range(30))
    assert reasons(capture)["truncated"] == 1
    assert json.loads(text)["version"] == "2.10"
