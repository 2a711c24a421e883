"""From the decision to start a replica to its first request: a timeline whose parts add up."""

from __future__ import annotations

from dataclasses import dataclass

from tokenpath.core.errors import UsageError
from tokenpath.core.units import NS_PER_S


@dataclass(frozen=True)
class ColdStartSettings:
    """What a start takes. Rates are those of one node, durations are stated by whoever measured them.

    None: not known, so it is left out, and `ColdStart.unknown` names it.
    """

    provision_ns: int | None = None
    """Until a node with the GPUs is there: scheduling, a machine that boots."""
    image_bytes: float | None = None
    """Container image as it is downloaded (compressed); 0 where the node has it."""
    image_bytes_per_s: float | None = None
    """Rate of the download and unpacking together."""
    process_ns: int | None = None
    """Until the engine's process loads weights: interpreter, imports, device, process groups."""
    weight_bytes: float | None = None
    """Weights of the replica on all ranks: `ModelShape.weight_bytes`."""
    storage_bytes_per_s: float | None = None
    """Rate at which weights come from where they are stored."""
    device_bytes_per_s: float | None = None
    """Rate at which weights go from the host to all GPUs together; None: part of `storage_bytes_per_s`."""
    is_streamed: bool = False
    """Whether weights go to the GPUs while others are still coming; else one after the other."""
    stream_chunk_bytes: float = 2**30
    """Streamed: what must have come before the first of it goes on (a file, a buffer)."""
    compile_ns: int | None = None
    """Compilation of the model; 0 where a cache holds it, or eager."""
    num_graphs: int | None = None
    """Device graphs captured, one each batch size; 0: none."""
    graph_ns: int | None = None
    """Capture of one of them."""
    warm_up_ns: int | None = None
    """Profiling run for the KV cache's size, allocation, first requests."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is None or isinstance(value, bool):
                continue
            is_rate = name.endswith("_bytes_per_s")
            if value < 0 or (is_rate and value == 0):
                raise UsageError(
                    f"{name} is {value}", allowed="above 0" if is_rate else "0 or more"
                )


@dataclass(frozen=True)
class Part:
    """A stretch of the timeline."""

    name: str
    """`provision`, `image`, `process`, `weights`, `compile`, `graphs` or `warm_up`."""
    start_ns: int
    """From the decision to start."""
    end_ns: int
    """Exclusive; the next part begins here."""


@dataclass(frozen=True)
class ColdStart:
    """A timeline."""

    parts: tuple[Part, ...]
    """Without gaps, from 0 on."""
    unknown: tuple[str, ...]
    """Parts that are left out because nothing says how long they take."""

    @property
    def total_ns(self) -> int:
        """Until the replica takes requests: its `ready_ns`, counted from the decision."""
        return self.parts[-1].end_ns if self.parts else 0


def cold_start(settings: ColdStartSettings) -> ColdStart:
    """The timeline of a start: each part begins when the one before has ended."""
    lengths = {
        "provision": settings.provision_ns,
        "image": _transfer_ns(settings.image_bytes, settings.image_bytes_per_s),
        "process": settings.process_ns,
        "weights": _weights_ns(settings),
        "compile": settings.compile_ns,
        "graphs": _graphs_ns(settings),
        "warm_up": settings.warm_up_ns,
    }
    parts: list[Part] = []
    at = 0
    for name, length in lengths.items():
        if length is not None:
            parts.append(Part(name, at, at + length))
            at += length
    unknown = tuple(name for name, length in lengths.items() if length is None)
    return ColdStart(tuple(parts), unknown)


def _transfer_ns(num_bytes: float | None, bytes_per_s: float | None) -> int | None:
    if num_bytes == 0:
        return 0
    if num_bytes is None or bytes_per_s is None:
        return None
    return round(num_bytes / bytes_per_s * NS_PER_S)


def _weights_ns(settings: ColdStartSettings) -> int | None:
    """Storage to host to GPU: one after the other, or the slower of both after the first chunk."""
    come = _transfer_ns(settings.weight_bytes, settings.storage_bytes_per_s)
    if come is None or settings.device_bytes_per_s is None or settings.weight_bytes is None:
        return come
    go = round(settings.weight_bytes / settings.device_bytes_per_s * NS_PER_S)
    if not settings.is_streamed:
        return come + go
    share = min(1.0, settings.stream_chunk_bytes / max(1.0, settings.weight_bytes))
    return max(come, go) + round(min(come, go) * share)


def _graphs_ns(settings: ColdStartSettings) -> int | None:
    if settings.num_graphs == 0:
        return 0
    if settings.num_graphs is None or settings.graph_ns is None:
        return None
    return settings.num_graphs * settings.graph_ns
