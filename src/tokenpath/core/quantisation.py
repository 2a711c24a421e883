"""How weights are stored and multiplied: bits per parameter with scales, and the number type of the maths.

A scheme names the type of the linear layers of a dense model and of routed experts apart, because most
checkpoints quantise only a part: embedding and output head stay at 16 bits in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from tokenpath.core.errors import InputError

if TYPE_CHECKING:
    from tokenpath.core.hardware import Hardware


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """Storage and arithmetic of a matrix."""

    name: str
    """bf16, fp8, fp8_block, int8, nvfp4, mxfp4 or int4."""
    bits_per_param: float
    """Bits of one parameter, scales included."""
    compute: tuple[str, ...]
    """Types that the product can be computed in, fastest first; the first that the part has is used."""

    def compute_dtype(self, hardware: Hardware) -> str:
        """The type of `core.hardware` that a GEMM runs in: weight-only formats are widened to bf16."""
        for dtype in self.compute:
            if hardware.peak(dtype) is not None:
                return dtype
        return "fp16"


_SOURCES = """OCP Microscaling Formats v1.0: blocks of 32 elements with an 8-bit scale. NVFP4: blocks of 16 with
an FP8 scale (NVIDIA, Introducing NVFP4, 2025-06). GPTQ and AWQ: groups of 128 with a 16-bit scale and a
4-bit zero. fp8_block: 128 x 128 blocks with a 32-bit scale (arXiv 2412.19437)."""

FORMATS: Mapping[str, WeightFormat] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            WeightFormat("bf16", 16.0, ("bf16", "fp16")),
            WeightFormat("fp32", 32.0, ("tf32", "fp32")),
            WeightFormat("fp8", 8.0, ("fp8", "bf16", "fp16")),
            WeightFormat("fp8_block", 8.0 + 32 / 128**2, ("fp8", "bf16", "fp16")),
            WeightFormat("int8", 8.0, ("int8", "bf16", "fp16")),
            WeightFormat("nvfp4", 4.0 + 8 / 16, ("fp4", "bf16", "fp16")),
            # On parts without FP4 units the experts of gpt-oss are widened in the kernel.
            WeightFormat("mxfp4", 4.0 + 8 / 32, ("fp4", "bf16", "fp16")),
            WeightFormat("int4", 4.0 + 20 / 128, ("bf16", "fp16")),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Scheme:
    """Formats of the parts of a model."""

    name: str
    """Key of `SCHEMES`."""
    linear: WeightFormat
    """Attention projections, dense and shared MLPs."""
    experts: WeightFormat
    """Routed experts."""
    head: WeightFormat
    """Embedding and output head."""


def _scheme(name: str, linear: str, experts: str) -> Scheme:
    return Scheme(
        name, FORMATS[linear], FORMATS[experts], FORMATS["fp32" if linear == "fp32" else "bf16"]
    )


SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        scheme.name: scheme
        for scheme in (
            _scheme("bf16", "bf16", "bf16"),
            _scheme("fp32", "fp32", "fp32"),
            _scheme("fp8", "fp8", "fp8"),
            _scheme("fp8_block", "fp8_block", "fp8_block"),
            _scheme("int8", "int8", "int8"),
            _scheme("int4", "int4", "int4"),
            _scheme("int4_experts", "bf16", "int4"),
            _scheme("nvfp4", "nvfp4", "nvfp4"),
            # The checkpoints of mixture models keep their attention at 16 or 8 bits.
            _scheme("nvfp4_experts", "bf16", "nvfp4"),
            _scheme("mxfp4_experts", "bf16", "mxfp4"),
        )
    }
)
_ALIASES = {
    "fp16": "bf16",
    "float16": "bf16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "awq": "int4",
    "gptq": "int4",
    "w4a16": "int4",
    "int4_wo": "int4",
    "w8a8": "int8",
    "mxfp4": "mxfp4_experts",
    "fp4": "nvfp4",
}


def find_scheme(name: str) -> Scheme:
    """The scheme of a name as people and checkpoints write it; InputError with the known ones."""
    key = name.lower().replace("-", "_")
    key = _ALIASES.get(key, key)
    if key not in SCHEMES:
        raise InputError(
            f"unknown quantisation {name!r}",
            allowed=", ".join([*SCHEMES, *_ALIASES]),
            next_step="name how the weights are stored",
        )
    return SCHEMES[key]
