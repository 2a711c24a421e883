"""Settings of everything around the engine, by dotted name: `router.policy=kv-aware`, `tiers.host_bytes=2e11`.

`Settings` holds a section for each part of a cluster; `with_values` changes them by name, and the methods
make of them what the parts are built with.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from tokenpath.core.errors import UsageError
from tokenpath.core.hardware import Hardware
from tokenpath.core.units import parse_duration_ns
from tokenpath.simulate.cold_start import ColdStartSettings
from tokenpath.simulate.router import RouterSettings
from tokenpath.simulate.speculation import Acceptance, SpeculationSettings
from tokenpath.simulate.tiers import Tier, TierSettings
from tokenpath.simulate.transfer import ANSWERS, LATENCY_NS, Link, TransferSettings, find_link


@dataclass(frozen=True)
class TransferSection:
    """Separate prefill and decode replicas."""

    link: str = "infiniband-ndr"
    """What KV crosses: `scale-up`, `scale-out` or one of `transfer.LINE_RATES`."""
    bytes_per_s: float | None = None
    """Measured rate of a port of the link; None: its line rate."""
    latency_ns: int = LATENCY_NS
    """What a transfer takes beside its bytes."""
    answered_by: str | None = None
    """Who emits the first token, see `transfer.ANSWERED_BY`; None: as the engine does (`transfer.ANSWERS`)."""
    kv_bytes_per_token: float | None = None
    """KV bytes of a token that one port carries; None: those of the model on the rank that has most of it."""
    sent_before_end: float = 0.0
    """Share of the KV that is sent while the prefill goes on."""
    decode_queue_limit: int | None = None
    """Requests on their way to or in the queue of a decode scheduler, at most; None: no limit."""


@dataclass(frozen=True)
class TierSection:
    """KV below the GPU, of a replica."""

    host_bytes: float = 0.0
    """Room in host memory; 0: none is used."""
    host_bytes_per_s: float = 25e9
    """Rate of loads from it: four fifths of what PCIe 4 x16 carries, assumed and not measured."""
    disk_bytes: float = 0.0
    """Room on disk; 0: none is used."""
    disk_bytes_per_s: float = 5e9
    """Rate of loads from it: a PCIe 4 SSD read in order, assumed and not measured."""
    disk_latency_ns: int = 100_000
    """What a load from disk takes beside its bytes: an SSD's read latency, assumed and not measured."""
    is_layerwise: bool = True
    """Whether a layer is loaded while the one before it computes."""
    min_tokens: int = 1
    """Fewer tokens than these are computed rather than loaded."""


@dataclass(frozen=True)
class SpeculationSection:
    """Speculative decoding."""

    num_drafts: int = 0
    """Draft tokens of a step; 0: no speculation."""
    acceptance: tuple[float, ...] = ()
    """Probability that draft 1, 2, ... is accepted, given those before it; the last goes on."""
    lengths: tuple[float, ...] = ()
    """Or the measured mean acceptance lengths with 1, 2, ... drafts."""
    draft_pass_ns: float = 0.0
    """Time of one draft pass."""
    draft_request_ns: float = 0.0
    """What it takes longer for each request."""
    passes_per_step: int | None = None
    """Draft passes of a step; None: one each draft."""
    is_sampled: bool = True
    """Whether acceptance is drawn at random; else every request gets the mean."""


@dataclass(frozen=True)
class ClientSection:
    """The way between clients and the engine."""

    send_ns: int = 0
    """From the client to the engine's queue: network, HTTP, tokenisation."""
    deliver_ns: int = 0
    """From the engine to the client: detokenisation, network."""


@dataclass(frozen=True)
class RunSection:
    """The run itself."""

    seed: int = 0
    """Of all that is drawn at random."""
    detail: str = "step"
    """Which tables are written, see `recorder.DETAILS`."""
    stops_on_overload: bool = True
    """Whether an overloaded run is broken off."""
    step_noise: bool = True
    """Whether single steps differ from the curve as they did where it was calibrated, drawn with `seed`; step models
    that were not fitted on steps know of no such noise and have none."""


@dataclass(frozen=True)
class Settings:
    """All sections."""

    router: RouterSettings = field(default_factory=RouterSettings)
    """How requests are spread."""
    transfer: TransferSection = field(default_factory=TransferSection)
    """How KV gets from prefill to decode replicas."""
    tiers: TierSection = field(default_factory=TierSection)
    """KV below the GPU."""
    speculation: SpeculationSection = field(default_factory=SpeculationSection)
    """Speculative decoding."""
    cold_start: ColdStartSettings = field(default_factory=ColdStartSettings)
    """What starting a replica takes."""
    client: ClientSection = field(default_factory=ClientSection)
    """The way between clients and the engine."""
    run: RunSection = field(default_factory=RunSection)
    """The run itself."""

    @staticmethod
    def names() -> list[str]:
        """Every dotted name, section by section."""
        return [
            f"{section}.{name}"
            for section, kind in typing.get_type_hints(Settings).items()
            for name in _kinds(kind)
        ]

    def with_values(self, pairs: Iterable[str]) -> Settings:
        """The settings with `section.name=value` texts applied, in order.

        UsageError for a name that is not known, which names the nearest, and for a value that is no value.
        """
        result = self
        for pair in pairs:
            name, equals, text = (part.strip() for part in pair.partition("="))
            if not (name and equals):
                raise UsageError(
                    f"{pair!r} is no setting",
                    where="--set",
                    allowed="section.name=value, e.g. router.policy=least-load",
                )
            if name not in self.names():
                raise _unknown(name, self.names())
            section, key = name.split(".", 1)
            old = getattr(result, section)
            value = _parse(name, text, _kinds(type(old))[key])
            result = replace(result, **{section: replace(old, **{key: value})})
        return result

    def values(self) -> dict[str, str]:
        """Every setting that is not at its default, as text by dotted name."""
        plain = Settings()
        found = {}
        for name in self.names():
            section, key = name.split(".", 1)
            value = getattr(getattr(self, section), key)
            if value != getattr(getattr(plain, section), key):
                found[name] = _written(value)
        return found

    @property
    def round_trip_ns(self) -> int:
        """From the engine to the client and back."""
        return self.client.send_ns + self.client.deliver_ns

    def make_speculation(self) -> SpeculationSettings | None:
        """What a replica is built with; None: no speculation. UsageError without any acceptance."""
        mine = self.speculation
        if mine.num_drafts == 0:
            return None
        if bool(mine.acceptance) == bool(mine.lengths):
            raise UsageError(
                f"{mine.num_drafts} drafts and "
                + ("two kinds of acceptance" if mine.lengths else "no acceptance"),
                allowed="speculation.acceptance or speculation.lengths, one of them",
            )
        known = (
            Acceptance(mine.acceptance) if mine.acceptance else Acceptance.of_lengths(mine.lengths)
        )
        return SpeculationSettings(
            known.with_drafts(mine.num_drafts),
            mine.draft_pass_ns,
            mine.draft_request_ns,
            mine.passes_per_step,
            self.run.seed if mine.is_sampled else None,
        )

    def make_tiers(self, kv_bytes_per_token: float) -> TierSettings | None:
        """What a replica is built with; None: nothing below the GPU."""
        mine = self.tiers
        tiers = [
            tier
            for tier in (
                Tier("host", mine.host_bytes, mine.host_bytes_per_s),
                Tier("disk", mine.disk_bytes, mine.disk_bytes_per_s, mine.disk_latency_ns),
            )
            if tier.capacity_bytes > 0
        ]
        if not tiers:
            return None
        return TierSettings(tuple(tiers), kv_bytes_per_token, mine.is_layerwise, mine.min_tokens)

    def make_transfer(
        self,
        kv_bytes: Callable[[int], float],
        hardware: Hardware | None = None,
        engine: str | None = None,
    ) -> TransferSettings:
        """What prefill and decode replicas are joined with; `engine` says who answers where nobody did."""
        mine = self.transfer
        if mine.bytes_per_s is None:
            link = find_link(mine.link, hardware, mine.latency_ns)
        else:
            link = Link(mine.link, mine.bytes_per_s, mine.latency_ns)
        answered_by = mine.answered_by or ANSWERS.get(engine or "", "transfer")
        return TransferSettings(
            link, kv_bytes, answered_by, mine.sent_before_end, mine.decode_queue_limit
        )


def _kinds(of: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(of)
    return {one.name: hints[one.name] for one in dataclasses.fields(of)}


def _unknown(name: str, names: list[str]) -> UsageError:
    section, _, key = name.partition(".")
    mine = [one for one in names if one.startswith(f"{section}.")]
    near = get_close_matches(name, names, n=1, cutoff=0.4)
    if not near and key:
        near = [one for one in names if one.split(".", 1)[1] == key][:1]
    sections = sorted({one.split(".", 1)[0] for one in names})
    return UsageError(
        f"no setting {name!r}",
        where="--set",
        allowed=", ".join(mine) if mine else "sections " + ", ".join(sections),
        next_step=f"the nearest is {near[0]}" if near else None,
    )


def _parse(name: str, text: str, kind: Any) -> Any:
    """The text as a value of the setting's type."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if type(None) in kinds and text.lower() == "none":
        return None
    if typing.get_origin(kind) is tuple:
        return tuple(_parse(name, part, float) for part in text.split(",") if part.strip())
    try:
        if bool in kinds:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        if int in kinds:
            return parse_duration_ns(text) if name.endswith("_ns") else _whole(text)
        if float in kinds:
            if name.endswith("_ns"):
                return float(parse_duration_ns(text))
            return _finite(text)
    except (ValueError, KeyError):
        raise UsageError(
            f"{text!r} for {name}", where="--set", allowed=_allowed(name, kinds)
        ) from None
    return text


def _whole(text: str) -> int:
    """A whole number, also as 1e6."""
    value = float(text)
    if value != int(value):
        raise ValueError(text)
    return int(text) if text.lstrip("+-").isdigit() else int(value)


def _finite(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise ValueError(text)
    return value


def _allowed(name: str, kinds: tuple[Any, ...]) -> str:
    if bool in kinds:
        return "true or false"
    if name.endswith("_ns"):
        words = "a duration such as 1.5ms, 20us or 3s"
    else:
        words = "a whole number" if int in kinds else "a number"
    return words + (", or none" if type(None) in kinds else "")


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
