"""What really happened in a scenario: one JSON file a scenario, in a tree apart from what the examined may read.

The same format serves both worlds. `lost_ns` is the wall of the run (device world) or the mean latency of a
request (serving world) minus that of the same seed with this fault taken out; with two faults their losses need
not sum to `wall_ns - healthy_wall_ns`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from tokenpath.core.errors import InputError

World = Literal["device", "serving"]
Loss = Literal["wall", "request"]
FORMAT = 1
"""Version of the truth files."""


@dataclass(frozen=True)
class FaultKind:
    """One entry of faults.toml."""

    kind: str
    """Its key, such as `host-gc`."""
    group: str
    """Part of the system: kernel, host, scheduler, ..."""
    world: World
    """Which world can inject it."""
    title: str
    """What it is, in one line."""
    magnitude: str
    """What its magnitude measures, with the unit."""
    loss: Loss
    """What `lost_ns` compares: the wall of the run or the mean latency of a request."""
    codes: tuple[str, ...]
    """Finding codes that are the right diagnosis."""
    place: tuple[str, ...]
    """Keys of the place that a right diagnosis must name."""


@dataclass(frozen=True)
class InjectedFault:
    """One fault of a scenario."""

    kind: str
    """Key of faults.toml."""
    level: int
    """Rank of the magnitude from 0, meant to be undetectable, upwards."""
    magnitude: float
    """Size in the unit that faults.toml states for the kind."""
    place: Mapping[str, str | int]
    """Where: the keys of faults.toml, each with its value."""
    lost_ns: int
    """Loss against the same seed without this fault, in the kind's `loss`."""


@dataclass(frozen=True)
class Decoy:
    """Something loud that costs nothing."""

    kind: str
    """What it is."""
    codes: tuple[str, ...]
    """Finding codes that would be wrong if they were ranked first."""
    lost_ns: int
    """Its real cost against the same seed without it; near 0, or it were no decoy."""


@dataclass(frozen=True)
class Truth:
    """The answer to one scenario."""

    id: str
    """Name of the scenario's folder; says nothing of the fault."""
    seed: int
    """Seed of everything drawn."""
    world: World
    """Which world made it."""
    faults: tuple[InjectedFault, ...]
    """None, one or two faults, the costliest first."""
    decoys: tuple[Decoy, ...]
    """Loud but harmless things."""
    wall_ns: int
    """Wall of the run as written; in the serving world the mean latency of a request."""
    healthy_wall_ns: int
    """The same of this seed without any fault."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Model, GPU, engine and workload that were drawn, for tables by kind of scenario."""

    @property
    def kind(self) -> str | None:
        """The costliest fault; None for none."""
        return self.faults[0].kind if self.faults else None

    def to_json(self) -> dict[str, Any]:
        """The document of the truth file."""
        return {
            "format": FORMAT,
            "id": self.id,
            "seed": self.seed,
            "kind": self.kind,
            "world": self.world,
            "faults": [
                {
                    "kind": fault.kind,
                    "level": fault.level,
                    "magnitude": fault.magnitude,
                    "place": dict(fault.place),
                    "lost_ns": fault.lost_ns,
                }
                for fault in self.faults
            ],
            "decoys": [
                {"kind": decoy.kind, "codes": list(decoy.codes), "lost_ns": decoy.lost_ns}
                for decoy in self.decoys
            ],
            "wall_ns": self.wall_ns,
            "healthy_wall_ns": self.healthy_wall_ns,
            "config": dict(self.config),
        }


@cache
def load_fault_kinds() -> Mapping[str, FaultKind]:
    """All kinds of faults.toml by key, in the order of the file."""
    text = files(__package__).joinpath("faults.toml").read_text("utf-8")
    entries = tomllib.loads(text)
    return {
        key: FaultKind(
            kind=key,
            group=entry["group"],
            world=entry["world"],
            title=entry["title"],
            magnitude=entry["magnitude"],
            loss=entry["loss"],
            codes=tuple(entry["codes"]),
            place=tuple(entry["place"]),
        )
        for key, entry in entries.items()
        if isinstance(entry, dict)
    }


def write_truth(truth: Truth, truth_folder: Path) -> Path:
    """Write `truth_folder/ID.json`; its path comes back."""
    check_truth(truth)
    truth_folder.mkdir(parents=True, exist_ok=True)
    path = truth_folder / f"{truth.id}.json"
    path.write_text(json.dumps(truth.to_json(), indent=1) + "\n", "utf-8")
    return path


def read_truth(path: Path) -> Truth:
    """Read one truth file; raises `InputError` when it is no truth file of this version."""
    try:
        document = json.loads(path.read_text("utf-8"))
        if document["format"] != FORMAT or Path(document["id"]).name != document["id"]:
            raise ValueError("another format, or an id that is no plain name")
        truth = _truth_of(document)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InputError(
            f"this is no truth file of the lab ({error!r})",
            where=str(path),
            allowed=f"a JSON object with format {FORMAT}",
            next_step="write the scenario again",
        ) from None
    check_truth(truth)
    return truth


def _truth_of(document: Mapping[str, Any]) -> Truth:
    return Truth(
        id=document["id"],
        seed=document["seed"],
        world=document["world"],
        faults=tuple(InjectedFault(**fault) for fault in document["faults"]),
        decoys=tuple(
            Decoy(decoy["kind"], tuple(decoy["codes"]), decoy["lost_ns"])
            for decoy in document["decoys"]
        ),
        wall_ns=document["wall_ns"],
        healthy_wall_ns=document["healthy_wall_ns"],
        config=document["config"],
    )


def check_truth(truth: Truth) -> None:
    """Raise `InputError` when a fault is unknown, of the other world, or its place lacks a key."""
    kinds = load_fault_kinds()
    for fault in truth.faults:
        kind = kinds.get(fault.kind)
        if kind is None or kind.world != truth.world:
            known = [name for name, entry in kinds.items() if entry.world == truth.world]
            raise InputError(
                f"unknown fault {fault.kind} in the {truth.world} world",
                where=f"truth {truth.id}",
                allowed=", ".join(known),
                next_step="name a kind of faults.toml",
            )
        missing = [key for key in kind.place if key not in fault.place]
        if missing:
            raise InputError(
                f"the place of {fault.kind} lacks {', '.join(missing)}",
                where=f"truth {truth.id}",
                allowed=", ".join(kind.place),
                next_step="give every key of faults.toml a value",
            )
