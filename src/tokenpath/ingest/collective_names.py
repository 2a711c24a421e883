"""Names of collectives and element types as PyTorch writes them."""

from __future__ import annotations

from collections.abc import Sequence

from tokenpath.core.units import INT64_MAX

BYTES_OF_DTYPE = {
    # c10::ScalarType names, as ParamCommsUtils of PyTorch writes them
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
    "Float8_e4m3fn": 1,
    "Float8_e5m2": 1,
    "Float8_e4m3fnuz": 1,
    "Float8_e5m2fnuz": 1,
    "Float8_e8m0fnu": 1,
    "Short": 2,
    "UInt16": 2,
    "Half": 2,
    "BFloat16": 2,
    "Int": 4,
    "UInt32": 4,
    "Float": 4,
    "Long": 8,
    "UInt64": 8,
    "Double": 8,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
}
"""Bytes of one element."""

_PLAIN_NAMES = {
    "_allgather_base": "allgather",
    "_all_gather_base": "allgather",
    "allgather_into_tensor_coalesced": "allgather",
    "all_gather_into_tensor_coalesced": "allgather",
    "all_gather": "allgather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_reduce": "allreduce",
    "all_reduce_barrier": "barrier",
    "allreduce_coalesced": "allreduce",
    "all_to_all": "alltoall",
    "all_to_allv": "alltoall",
    "alltoall_base": "alltoall",
    "alltoallv": "alltoall",
}


def plain_name(name: str) -> str:
    """One name for what different layers name differently: `allreduce`, `allgather`, `alltoall`, ..."""
    return _PLAIN_NAMES.get(name, name)


def bytes_of(sizes: Sequence[object], dtypes: Sequence[object]) -> int | None:
    """Bytes of tensors from their shapes and element types; None when one of them is not known."""
    if not sizes or len(sizes) != len(dtypes):
        return None
    total = 0
    for shape, dtype in zip(sizes, dtypes, strict=True):
        width = BYTES_OF_DTYPE.get(dtype) if isinstance(dtype, str) else None
        if width is None or not isinstance(shape, list | tuple) or len(shape) > 64:
            return None
        for size in shape:
            if type(size) is not int or not 0 <= size <= INT64_MAX:
                return None
            width = min(width * size, INT64_MAX + 1)
        total += width
    return total if total <= INT64_MAX else None
