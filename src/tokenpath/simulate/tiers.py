"""KV tiers below the GPU: content that was computed once is kept in host memory and on disk, and loaded.

Content goes down as soon as a prompt has been computed (write-through, the default of vLLM's offloading
connector, LMCache and SGLang's HiCache); what the host has no room for goes on to the disk, least recently
used first. A request that is admitted takes from the GPU's own cache what is there, and loads what follows.
The tiers know content by the ids of the workload, granule by granule. A scheduler that asks (`AskingScheduler`)
counts what they have as computed, so that it takes nothing of its budget of tokens for a step.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from tokenpath.core.errors import UsageError
from tokenpath.core.units import NS_PER_S


@dataclass(frozen=True)
class Tier:
    """A place for KV below the GPU."""

    name: str
    """`host`, `disk`, ..."""
    capacity_bytes: float
    """Room for KV, of one replica."""
    bytes_per_s: float
    """Rate at which it is read into the GPU, of one replica."""
    latency_ns: int = 0
    """What a load takes beside its bytes."""

    def __post_init__(self) -> None:
        if self.capacity_bytes < 0 or not self.bytes_per_s > 0 or self.latency_ns < 0:
            raise UsageError(
                f"tier {self.name}: {self.capacity_bytes} bytes at {self.bytes_per_s} bytes per second, "
                f"latency {self.latency_ns} ns",
                allowed="capacity and latency 0 or more, a rate above 0",
            )


@dataclass(frozen=True)
class TierSettings:
    """The tiers of a replica."""

    tiers: tuple[Tier, ...]
    """Fastest first."""
    kv_bytes_per_token: float
    """KV bytes of a token on all ranks of a replica together."""
    is_layerwise: bool = True
    """Whether a layer is loaded while the one before it computes: a step then takes the longer of both
    times, else their sum."""
    min_tokens: int = 1
    """Fewer tokens than these are computed rather than loaded."""


class TierStore:
    """What the tiers of one replica hold."""

    def __init__(self, settings: TierSettings) -> None:
        if not settings.tiers:
            raise UsageError("no tier", allowed="one or more")
        if not settings.kv_bytes_per_token > 0:
            raise UsageError(
                f"kv_bytes_per_token is {settings.kv_bytes_per_token}", allowed="above 0"
            )
        self.settings = settings
        self._held: list[OrderedDict[int, int]] = [OrderedDict() for _ in settings.tiers]
        self._num_bytes = [0.0] * len(settings.tiers)
        self._free_ns = [0] * len(settings.tiers)
        self.loaded_tokens = {tier.name: 0 for tier in settings.tiers}
        """Tokens loaded from each tier so far."""

    def find(self, ids: Sequence[int], granule: int, cached: int, limit: int) -> int:
        """Tokens from the start on that are on the GPU (`cached`) or in a tier, at most `limit`."""
        count = cached // granule
        while count < len(ids) and any(ids[count] in held for held in self._held):
            count += 1
        until = min(count * granule, limit)
        return until if until - cached >= self.settings.min_tokens else cached

    def load(self, ids: Sequence[int], granule: int, begin: int, until: int, now_ns: int) -> int:
        """Load tokens `begin` to `until`, which `find` has named; when all are on the GPU.

        A tier serves loads in the order in which they are asked for.
        """
        per_tier = [0] * len(self._held)
        for number in range(begin // granule, -(-until // granule)):
            tokens = min(until, (number + 1) * granule) - max(begin, number * granule)
            # A step that was decided ahead may load what the last tier has lost since: it is on its way.
            gone = len(self._held) - 1
            place = next((at for at, held in enumerate(self._held) if ids[number] in held), gone)
            if ids[number] in self._held[place]:
                self._held[place].move_to_end(ids[number])
            per_tier[place] += tokens
        done = now_ns
        for at, (tier, tokens) in enumerate(zip(self.settings.tiers, per_tier, strict=True)):
            if tokens == 0:
                continue
            self.loaded_tokens[tier.name] += tokens
            length = round(tokens * self.settings.kv_bytes_per_token / tier.bytes_per_s * NS_PER_S)
            self._free_ns[at] = max(now_ns, self._free_ns[at]) + length
            done = max(done, self._free_ns[at] + tier.latency_ns)
        return done

    def store(self, ids: Sequence[int], granule: int, tokens: int) -> None:
        """Content of so many computed tokens goes down, whole granules only."""
        for one in ids[: tokens // granule]:
            known = next((at for at, held in enumerate(self._held) if one in held), None)
            if known is None:
                self._put(0, one, granule)
            else:
                self._held[known].move_to_end(one)

    def num_held_bytes(self, name: str) -> float:
        """Bytes that a tier holds."""
        names = [tier.name for tier in self.settings.tiers]
        return self._num_bytes[names.index(name)]

    def _put(self, tier: int, one: int, granule: int) -> None:
        size = granule * self.settings.kv_bytes_per_token
        self._held[tier][one] = granule
        self._num_bytes[tier] += size
        while self._num_bytes[tier] > self.settings.tiers[tier].capacity_bytes:
            lost, tokens = self._held[tier].popitem(last=False)
            self._num_bytes[tier] -= tokens * self.settings.kv_bytes_per_token
            if tier + 1 < len(self._held):
                self._put(tier + 1, lost, tokens)
