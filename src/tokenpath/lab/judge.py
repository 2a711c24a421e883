"""Was the diagnosis right: the findings of a report against the truth of a scenario. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenpath.lab.truth import FaultKind, InjectedFault, Truth, load_fault_kinds

FIRST_THREE = 3
FALSE_ALARM_SHARE = 0.02
"""A cost above this share of the wall in a scenario without a fault is a false alarm (the lab's own bar)."""
COUNTED_SHARE = 0.02
"""From this loss, as a share of the wall, a fault counts in the headline: the same bar as for false alarms.
Smaller ones are in the table by magnitude."""


@dataclass(frozen=True)
class Claim:
    """What the judge looks at in a finding."""

    code: str
    """Its code."""
    share: float
    """What the fix would bring over the wall (or the latency); the time explained where no gain is known; 0 to 1."""
    loss_ns: float | None
    """The same in ns of the run (or of a mean request); None when the finding has no time."""
    place: Mapping[str, str]
    """Where it is said to sit."""


@dataclass(frozen=True)
class Judgement:
    """How one scenario was diagnosed."""

    id: str
    """Scenario."""
    seed: int
    """Its seed."""
    world: str
    """Its world."""
    kinds: tuple[str, ...]
    """Injected faults, the costliest first; empty for none."""
    levels: tuple[int, ...]
    """Their magnitudes as ranks."""
    lost_share: float
    """Loss of the costliest fault over the wall; 0 for none."""
    first_codes: tuple[str, ...]
    """The first three codes of the report."""
    top1: bool | None
    """The finding ranked first is right; None without a fault."""
    top3: bool | None
    """Every injected fault is among the first three; None without a fault."""
    place: bool | None
    """The right finding names the right place; None when there is none, or the kind has no place."""
    loss_error: float | None
    """|claimed - lost| / lost of the costliest fault; None when it was not found among the first three."""
    false_alarm: bool | None
    """A cost above 2 % of the wall; None with a fault."""
    decoy_first: bool | None
    """A decoy is ranked first; None without a decoy."""

    @property
    def is_counted(self) -> bool:
        """Whether the scenario is in the headline: no fault, or one large enough to matter."""
        return not self.kinds or self.lost_share >= COUNTED_SHARE


def claims_of(report: Mapping[str, Any]) -> list[Claim]:
    """The claims of a report in JSON form, in its order.

    Costs and abstentions; statements about quality only where their code is the diagnosis of some fault. Device
    times are summed over devices in a report, so they are divided by their number here.
    """
    diagnoses = {code for kind in load_fault_kinds().values() for code in kind.codes}
    devices = max(1, len(report.get("facts", {}).get("devices", ())))
    claims = []
    for finding in report["findings"]:
        if finding["kind"] == "quality" and finding["code"] not in diagnoses:
            continue
        duration_ns, gain_ns = finding["duration_ns"], finding["gain_ns"]
        time_ns = duration_ns if gain_ns is None else gain_ns
        share = finding["share"] or 0.0
        if gain_ns is not None and duration_ns:
            share *= gain_ns / duration_ns
        if time_ns is not None and finding["scope"] != "requests":
            time_ns /= devices
        claims.append(Claim(finding["code"], share, time_ns, finding["place"]))
    return claims


def judge(truth: Truth, claims: Sequence[Claim]) -> Judgement:
    """Compare the first claims with the truth."""
    kinds = load_fault_kinds()
    first = claims[:FIRST_THREE]
    found = [_first_right(first, kinds[fault.kind], fault) for fault in truth.faults]
    right = {code for fault in truth.faults for code in kinds[fault.kind].codes}
    decoys = {code for decoy in truth.decoys for code in decoy.codes}
    main = truth.faults[0] if truth.faults else None
    return Judgement(
        id=truth.id,
        seed=truth.seed,
        world=truth.world,
        kinds=tuple(fault.kind for fault in truth.faults),
        levels=tuple(fault.level for fault in truth.faults),
        lost_share=main.lost_ns / truth.wall_ns if main is not None and truth.wall_ns else 0.0,
        first_codes=tuple(claim.code for claim in first),
        top1=bool(first) and first[0].code in right if truth.faults else None,
        top3=all(claim is not None for claim in found) if truth.faults else None,
        place=_place(truth.faults, found, kinds),
        loss_error=_loss_error(main, found[0]) if main is not None else None,
        false_alarm=None
        if truth.faults
        else any(claim.share > FALSE_ALARM_SHARE for claim in claims),
        decoy_first=None
        if not truth.decoys
        else bool(first) and first[0].code in decoys and first[0].code not in right,
    )


def _first_right(claims: Sequence[Claim], kind: FaultKind, fault: InjectedFault) -> Claim | None:
    """The first claim with a right code; among equals, one that also names the right place."""
    right = [claim for claim in claims if claim.code in kind.codes]
    placed = [claim for claim in right if _is_there(claim, kind, fault)]
    return next(iter(placed or right), None)


def _is_there(claim: Claim, kind: FaultKind, fault: InjectedFault) -> bool:
    return all(claim.place.get(key) == str(fault.place[key]) for key in kind.place)


def _place(
    faults: Sequence[InjectedFault],
    found: Sequence[Claim | None],
    kinds: Mapping[str, FaultKind],
) -> bool | None:
    asked = [
        _is_there(claim, kinds[fault.kind], fault)
        for fault, claim in zip(faults, found, strict=True)
        if claim is not None and kinds[fault.kind].place
    ]
    return all(asked) if asked else None


def _loss_error(fault: InjectedFault, claim: Claim | None) -> float | None:
    if claim is None or claim.loss_ns is None or fault.lost_ns <= 0:
        return None
    return abs(claim.loss_ns - fault.lost_ns) / fault.lost_ns
