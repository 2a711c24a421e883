"""The truth of a scenario: round trip, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tokenpath.core.errors import InputError
from tokenpath.lab.truth import (
    Decoy,
    InjectedFault,
    Truth,
    load_fault_kinds,
    read_truth,
    write_truth,
)

TRUTH = Truth(
    id="d-000007",
    seed=7,
    world="device",
    faults=(InjectedFault("host-gc", 2, 40.0, {"thread": 1234}, 80_000_000),),
    decoys=(Decoy("gc-idle-thread", ("gc-pause",), 0),),
    wall_ns=1_080_000_000,
    healthy_wall_ns=1_000_000_000,
    config={"tp": 2},
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Round trip through the file, which is named by the id."""
    path = write_truth(TRUTH, tmp_path / "truth")
    assert path.name == "d-000007.json"
    assert read_truth(path) == TRUTH
    assert TRUTH.to_json()["kind"] == "host-gc"


@pytest.mark.parametrize(
    "fault",
    [
        InjectedFault("host-gc", 2, 40.0, {}, 0),
        InjectedFault("bench-client-bound", 2, 40.0, {}, 0),
        InjectedFault("no-such", 2, 40.0, {}, 0),
    ],
)
def test_wrong_truths_are_refused(tmp_path: Path, fault: InjectedFault) -> None:
    """A place without its keys, a fault of the other world, an unknown fault."""
    with pytest.raises(InputError):
        write_truth(replace(TRUTH, faults=(fault,)), tmp_path)


def test_every_kind_has_codes() -> None:
    """Each kind can be diagnosed and belongs to one world."""
    kinds = load_fault_kinds()
    assert len(kinds) >= 40
    assert all(kind.codes and kind.world in ("device", "serving") for kind in kinds.values())
