"""What a piece of device work computes, told by its HLO category, opcode, framework operator or name.

Opcodes: xla/hlo/ir/hlo_opcode.h. Categories are what XLA's profiler calls them: an opcode, or `loop fusion`,
`convolution fusion`, ... Framework operators are JAX primitives: `jit(f)/jit(main)/dot_general`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tokenpath.core.kernel_names import Family, classify

_COLLECTIVES = {
    "all-reduce": "allreduce",
    "all-gather": "allgather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "alltoall",
    "ragged-all-to-all": "alltoall",
    "collective-permute": "collective_permute",
    "collective-broadcast": "broadcast",
    "send": "send",
    "recv": "recv",
}
_HOST_COPIES = frozenset(
    {"copy-start", "copy-done", "infeed", "outfeed", "memcpy", "host-send", "host-recv"}
)
_OF_OPCODE = {
    Family.GEMM: "dot ragged-dot triangular-solve cublas-gemm dot-general",
    Family.CONVOLUTION: "convolution cudnn-conv conv-general-dilated",
    Family.REDUCE: "reduce reduce-window reduce-sum reduce-max reduce-min argmax argmin cumsum",
    Family.SORT: "sort topk top-k",
    Family.INDEX: "gather scatter dynamic-slice dynamic-update-slice select-and-scatter",
    Family.COPY: "copy transpose reshape bitcast concatenate pad reverse slice data-formatting",
    Family.RANDOM: "rng rng-bit-generator rng-get-and-update-state threefry2x32 random-bits",
    Family.ELEMENTWISE: (
        "add subtract sub multiply mul divide div negate exponential exp log tanh logistic power pow max min"
        " maximum minimum compare select select-n clamp convert convert-element-type sqrt rsqrt broadcast"
        " broadcast-in-dim iota abs sign floor ceil cosine cos sine sin and or xor not erf"
        " integer-pow square non-fusion-elementwise"
    ),
}
_FAMILIES = {opcode: family for family, opcodes in _OF_OPCODE.items() for opcode in opcodes.split()}
_NUMBER = re.compile(r"(?:\.\d+|\.clone|\.remat\d*)+$", re.ASCII)
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z0-9])", re.ASCII)
_TENSORFLOW = {
    "bias-add": "add",
    "real-div": "div",
    "cast": "convert",
    "greater-equal": "compare",
    "less-equal": "compare",
    "greater": "compare",
    "less": "compare",
    "squared-difference": "square",
    "mat-mul": "dot",
    "batch-mat-mul": "dot",
    "einsum": "dot",
    "conv-2d": "convolution",
    "conv2-d": "convolution",
    "random-uniform": "rng",
    "truncated-normal": "rng",
    "sum": "reduce",
    "mean": "reduce",
    "resource-gather": "gather",
    "gather": "gather",
    "concat": "concatenate",
    "strided-slice": "slice",
    "assign-variable-op": "copy",
    "assign-add-variable-op": "add",
    "assign-sub-variable-op": "sub",
}
"""TensorFlow's operator types, as words, by an opcode that does the same."""


@dataclass(frozen=True)
class Work:
    """What device work is."""

    kind: str
    """`compute`, `communication`, `memcpy`, `memset`: column `kind` of `kernel`."""
    family: str
    """Column `family` of `kernel`."""
    collective: str | None = None
    """Column `op` of `collective` for the part that a core spends on one; None for other work."""


def opcode_of(name: str) -> str:
    """`%all-reduce.17` -> `all-reduce`; names of fusions keep their words."""
    return _NUMBER.sub("", name.strip().lstrip("%")).lower()


def of_hlo(name: str, category: str | None, framework_op: str | None) -> Work:
    """What an HLO instruction does that a core ran.

    The category decides where it names an opcode. Of a fusion it names no more than the shape of the
    loop, and on TPU a `convolution fusion` may be a matrix product, so there the framework's operator is
    asked; what neither tells is looked up by name, which ends in `other`.
    """
    for word in (category, opcode_of(name)):
        opcode = "" if word is None else word.strip().lower().replace(" ", "-").replace("_", "-")
        base = opcode.removesuffix("-start").removesuffix("-done")
        if base in _COLLECTIVES:
            # The start of an asynchronous one only issues it; the core waits in the other part.
            waits = not opcode.endswith("-start")
            return Work(
                "communication", str(Family.COMMUNICATION), _COLLECTIVES[base] if waits else None
            )
        if opcode in _HOST_COPIES:
            return Work("memcpy", "memcpy")
        if opcode in _FAMILIES:
            return Work("compute", str(_FAMILIES[opcode]))
    family = _of_framework_op(framework_op)
    if family is None and category is not None and category.startswith("convolution"):
        family = Family.CONVOLUTION
    if family is None:
        family = classify(opcode_of(name)).family
    return Work("compute", str(family))


def of_gpu(name: str, hlo_op: str | None, framework_op: str | None) -> Work:
    """What a kernel or copy on a GPU does: by its own name first, then by the HLO it was made for."""
    lowered = name.lower()
    if lowered.startswith("memcpy"):
        return Work("memcpy", "memcpy")
    if lowered.startswith("memset"):
        return Work("memset", "memset")
    found = classify(name.removesuffix(".kd"))
    if found.family is Family.OTHER:
        if hlo_op is not None:
            return of_hlo(hlo_op, None, framework_op)
        return Work("compute", str(_of_framework_op(framework_op) or Family.OTHER))
    if found.is_communication:
        return Work("communication", str(found.family), _collective_of(hlo_op or name))
    return Work("compute", str(found.family))


def _of_framework_op(path: str | None) -> Family | None:
    if not path:
        return None
    # JAX: `jit(f)/jit(main)/dot_general:`; TensorFlow: `layer/dropout/Mul:Mul`, name and type.
    last = path.rstrip(":").rsplit("/", 1)[-1].rsplit(":", 1)[-1].split("[", 1)[0]
    words = _CAPITAL.sub("-", last.replace("_", "-")).lower().removesuffix("-v2")
    return _FAMILIES.get(words) or _FAMILIES.get(_TENSORFLOW.get(words, ""))


def _collective_of(name: str) -> str | None:
    squeezed = re.sub(r"[^a-z]", "", name.lower())
    for word, op in _COLLECTIVES.items():
        if word not in ("send", "recv") and word.replace("-", "") in squeezed:
            return op
    return None
