"""From slow groups of kernels to findings, one a code and family."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tokenpath.core.finding import Evidence, Finding, Kind
from tokenpath.core.kernel_words import split_name
from tokenpath.core.units import format_duration
from tokenpath.explain.analyses.contract import Context, Proposal
from tokenpath.explain.analyses.kernel_roofline_work import Group
from tokenpath.replay.change import WhatIf, with_kernel_times

MIN_SHARE = 0.003
"""A claim below this share of the window is left out."""


@dataclass(frozen=True)
class Claim:
    """One group of kernels that takes longer than it need, and why."""

    group: Group
    """The kernels."""
    excess_ns: int
    """Time above what is attainable, over all of them."""
    why: str
    """Half a sentence with the figures."""


@dataclass(frozen=True)
class Said:
    """What a code says in words."""

    falsifier: str
    """What would prove it wrong."""
    fix: str
    """What to do."""
    effort: str
    """One of `EFFORTS`."""
    confidence: float
    """Probability that the cause is right, before any of it was checked on the device."""


SAID = {
    "slow-kernel": Said(
        "another implementation of the same shape is not faster on this device",
        "tune or replace the kernel: another backend, tile configuration or library version",
        "kernel",
        0.8,
    ),
    "tail-wave": Said(
        "a tile size or split that fills the last wave does not shorten the kernel",
        "choose a tile size, split-K or stream-K schedule whose blocks fill whole waves, or pad the batch",
        "kernel",
        0.8,
    ),
    "attention-underfilled": Said(
        "a kernel that splits the keys over more blocks takes as long",
        "use a backend that splits keys and values (FlashDecoding, FlashInfer, FlashAttention 3 with "
        "num_splits, Triton's 3D kernel), or batch more requests",
        "setting",
        0.8,
    ),
    "attention-imbalance": Said(
        "with the longest request taken out of the batch, attention takes as long",
        "use a backend that balances blocks by tokens (FlashInfer plan, split-KV), or keep very long "
        "requests in batches of their own",
        "setting",
        0.7,
    ),
    "low-occupancy": Said(
        "fewer registers or less shared memory a block do not shorten the kernel",
        "lower registers or shared memory a block (launch bounds, smaller tiles, fewer stages)",
        "kernel",
        0.75,
    ),
    "wrong-precision": Said(
        "the products need 32 bits: in 16 bits the outputs leave their tolerance",
        "cast weights and inputs to the model's 16-bit type, or allow TF32 where 32 bits are meant",
        "code",
        0.85,
    ),
}
"""By code."""


def claims_of_code(
    context: Context, code: str, claims: Sequence[Claim], claim: str
) -> list[Proposal]:
    """One finding a family, with what fixing it would change; small ones are left out.

    `claim` is what the kernels do, in the words of the finding's sentence.
    """
    by_family: dict[str, list[Claim]] = defaultdict(list)
    for item in claims:
        by_family[item.group.family].append(item)
    found = []
    for items in by_family.values():
        items.sort(key=lambda item: (-item.excess_ns, item.group.name, item.group.device))
        excess = sum(item.excess_ns for item in items)
        if excess < MIN_SHARE * context.analysis.wall_ns:
            continue
        family = items[0].group.family.replace("_", " ")
        count = sum(item.group.count for item in items)
        total = sum(item.group.total_ns for item in items)
        sentence = (
            f"{count:,} {family} kernels ({format_duration(total)}) {claim}: "
            f"{format_duration(excess)} above attainable; worst: {items[0].why}"
        )
        finding = _finding(context, code, sentence, items)
        found.append(Proposal(finding, partial(_what_if, code, items)))
    return found


def _finding(context: Context, code: str, sentence: str, items: Sequence[Claim]) -> Finding:
    said = SAID[code]
    wall = context.analysis.wall_ns
    labels = [device.work.label for device in context.analysis.devices]
    excess = sum(item.excess_ns for item in items)
    count = sum(item.group.count for item in items)
    worst = items[0]
    place = {"family": worst.group.family, "kernel": function_of(worst.group.name)}
    devices = {item.group.device for item in items}
    if len(devices) == 1 and len(labels) > 1:
        place |= place_of_device(context, worst.group.device)
    rows = tuple(int(item.group.rows[0]) for item in items[:5])
    return Finding(
        code=code,
        sentence=sentence,
        kind=Kind.COST,
        value=excess / wall if wall else None,
        unit="share of the window",
        duration_ns=excess,
        share=excess / wall if wall else None,
        gain_ns=excess,
        gain_method="estimated",
        status=context.status,
        evidence=(Evidence("kernel", rows, count, "see table kernel_roofline"),),
        falsifier=said.falsifier,
        fix=said.fix,
        details={"kernels": [_details(item, labels) for item in items[:5]]},
        place=place,
        confidence=said.confidence,
        effort=said.effort,
    )


def _what_if(code: str, items: Sequence[Claim]) -> WhatIf:
    """Every kernel of the claims shorter by its group's excess."""
    rows = np.concatenate([item.group.rows for item in items])
    measured = np.concatenate([item.group.duration_ns for item in items])
    keep = np.concatenate(
        [
            np.full(len(item.group.rows), 1 - item.excess_ns / max(item.group.total_ns, 1))
            for item in items
        ]
    )
    new = (measured * np.clip(keep, 0.0, 1.0)).astype(np.int64)
    return with_kernel_times(f"without {code}", rows, measured, new)


def function_of(kernel: str) -> str:
    """The function in a kernel's name, without template arguments and parameters, at most 80 characters."""
    return split_name(kernel).head[:80] or kernel[:80]


def place_of_device(context: Context, device: int) -> dict[str, str]:
    """Device label and, where known, rank of a position in `analysis.devices`."""
    analysis = context.analysis
    work = analysis.devices[device].work
    source = int(analysis.capture.ids("device", "source_id")[work.device_id])
    rank = analysis.capture["source"]["rank"][source].as_py()
    return {"device": work.label} | ({} if rank is None else {"rank": str(rank)})


def _details(item: Claim, labels: Sequence[str]) -> dict[str, object]:
    group = item.group
    return {
        "kernel": group.name,
        "device": labels[group.device],
        "count": group.count,
        "quiet_ns": group.quiet_ns,
        "excess_ns": item.excess_ns,
        "why": item.why,
    }
