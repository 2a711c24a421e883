"""What is served on what: model, part, parallel layout, number types, engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokenpath.core.costs import bytes_per_element, canonical_dtype
from tokenpath.core.errors import InputError
from tokenpath.core.hardware import Hardware
from tokenpath.core.model_catalogue import Model

Engine = Literal["vllm", "sglang", "trtllm"]
ENGINES: tuple[Engine, ...] = ("vllm", "sglang", "trtllm")


@dataclass(frozen=True, slots=True)
class Deployment:
    """One replica of an engine; raises InputError for a layout that cannot be."""

    model: Model
    """Shape and storage of the weights."""
    hardware: Hardware
    """The part, one per rank."""
    engine: Engine = "vllm"
    """Whose kernels and host loop."""
    engine_version: str | None = None
    """As the engine prints it; None: not said."""
    tp: int = 1
    """Tensor-parallel ranks of attention (and of all else, without `dp`)."""
    pp: int = 1
    """Pipeline stages."""
    dp: int = 1
    """Ranks that hold attention whole and split the batch (attention data parallelism)."""
    ep: int = 1
    """Groups that routed experts are split over; the rest of tp x dp splits each expert."""
    kv_dtype: str = "bf16"
    """Type of the KV cache."""
    expert_imbalance: float | None = None
    """Load of the busiest expert-parallel rank over the mean, if measured; None: the fitted one."""

    def __post_init__(self) -> None:
        """Check the layout against the model."""
        for name in ("tp", "pp", "dp", "ep"):
            if getattr(self, name) < 1:
                raise InputError(
                    f"{name} = {getattr(self, name)}",
                    allowed="an integer of at least 1",
                    next_step=f"leave {name} out for 1",
                )
        canonical_dtype(self.kv_dtype)
        shape = self.model.shape
        if shape.num_heads % self.tp:
            raise _layout_error(
                f"{shape.num_heads} attention heads cannot be split over tp = {self.tp} ranks",
                "a divisor of the heads",
                [t for t in range(1, shape.num_heads + 1) if shape.num_heads % t == 0],
                self.tp,
                "tp",
            )
        if self.pp > shape.num_layers:
            raise _layout_error(
                f"{shape.num_layers} layers cannot be split over pp = {self.pp} stages",
                "at most one stage per layer",
                [shape.num_layers],
                self.pp,
                "pp",
            )
        experts = shape.moe.num_experts if shape.moe else 1
        fitting = [e for e in range(1, self.tp * self.dp + 1) if not (self.tp * self.dp) % e]
        if self.ep > 1 and (self.ep not in fitting or experts < self.ep):
            raise _layout_error(
                f"{experts} experts cannot be spread over ep = {self.ep} groups "
                f"of {self.tp * self.dp} ranks",
                "a divisor of tp x dp, at most the number of experts",
                [e for e in fitting if e <= experts],
                self.ep,
                "ep",
            )

    @property
    def num_ranks(self) -> int:
        """GPUs of the replica."""
        return self.tp * self.pp * self.dp

    @property
    def expert_tp(self) -> int:
        """Ranks that share each routed expert."""
        return self.tp * self.dp // self.ep

    @property
    def kv_element_bytes(self) -> float:
        """Bytes of one element of the cache."""
        return bytes_per_element(self.kv_dtype)

    def kv_bytes_per_token(self) -> float:
        """Bytes that one token adds to the cache of one rank, layers with a window included."""
        shape = self.model.shape
        # KV heads are copied where ranks outnumber them, whatever the remainder.
        tp = min(self.tp, shape.num_kv_heads)
        while shape.num_kv_heads % tp:
            tp -= 1
        return shape.kv_bytes_per_token(self.kv_dtype, tp) / self.pp


def _layout_error(what: str, allowed: str, working: list[int], asked: int, name: str) -> InputError:
    nearest = min(working, key=lambda v: (abs(v - asked), v))
    return InputError(what, allowed=allowed, next_step=f"nearest that works: {name} = {nearest}")
