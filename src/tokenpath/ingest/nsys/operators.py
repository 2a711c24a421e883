"""The texts by which PyTorch names its operators in NVTX, taken apart.

`torch.autograd.profiler.emit_nvtx` writes
`aten::mm, seq = 12, op_id = 345, sizes = [[2, 3], [3, 4]], input_op_ids = [...]`, each part but the first
one only where it is known (torch/csrc/profiler/util.cpp, getNvtxStr). What is left of its first mark is a
name like `aten::mm`, `detach_` or `MmBackward0`; other names with such a tail are user ranges.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.compiled import COMPILE_FROM_ROWS, compiled
from tokenpath.capture.intervals import Int64s
from tokenpath.core.units import INT64_MIN
from tokenpath.ingest import arrow
from tokenpath.ingest.sqlite_scan import gather_texts

Bytes = NDArray[np.uint8]

_OP_ID, _SEQUENCE, _SIZES, _INPUTS = ", op_id = ", ", seq = ", ", sizes = ", ", input_op_ids = "
_OPERATOR = re.compile(r"(?:autograd::engine::evaluate_function: )?[A-Za-z_][\w:.<>~-]*", re.ASCII)
_MAX_DIGITS = 18


@dataclass(frozen=True)
class Operators:
    """Which texts are operators, and what they say."""

    rows: Int64s
    """Positions of the texts."""
    names: pa.DictionaryArray
    """Names of the operators."""
    sequence: pa.Array
    """Autograd sequence numbers."""
    shapes: pa.Array
    """JSON texts of the shapes."""


def take_operators(texts: pa.Array, may_be: NDArray[np.bool_]) -> Operators:
    """The operators among texts, of those that may be ones."""
    # For fewer texts Arrow's functions are quicker than loading the compiled loop.
    split = split_large if len(texts) >= COMPILE_FROM_ROWS else split_small
    rows, names, sequence, shapes = split(texts, may_be)
    names = names.dictionary_encode()
    is_operator = np.array(
        [_OPERATOR.fullmatch(text) is not None for text in names.dictionary.to_pylist()] or [False],
        np.bool_,
    )[names.indices.to_numpy()]
    if is_operator.all():
        return Operators(rows, names, sequence, shapes)
    kept = pa.array(np.flatnonzero(is_operator))
    return Operators(rows[is_operator], names.take(kept), sequence.take(kept), shapes.take(kept))


Parts = tuple[Int64s, pa.Array, pa.Array, pa.Array]
"""Positions of the texts with a mark, and their name, sequence number and shapes."""


def split_small(texts: pa.Array, may_be: NDArray[np.bool_]) -> Parts:
    """Take texts apart with Arrow's functions."""
    import pyarrow.compute as pc

    found = [pc.match_substring(texts, mark).fill_null(False) for mark in (_OP_ID, _SEQUENCE)]
    chosen = np.flatnonzero(np.logical_or(*(part.to_numpy(zero_copy_only=False) for part in found)))
    chosen = chosen[may_be[chosen]]
    head, rest = _cut(texts.take(pa.array(chosen)), _OP_ID)
    name, sequence = _cut(head, _SEQUENCE)
    _, shapes = _cut(rest, _SIZES)
    if shapes.null_count < len(shapes):
        shapes, _ = _cut(shapes, _INPUTS)
    return chosen, name, _numbers(sequence), shapes


def split_large(texts: pa.Array, may_be: NDArray[np.bool_]) -> Parts:
    """The same with a compiled loop."""
    _, offsets, content = texts.buffers()
    first = texts.offset
    begin = np.frombuffer(offsets, np.int32)[first : first + len(texts) + 1].astype(np.int64)
    data = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    op_id, sequence_mark, sizes, inputs = (
        np.frombuffer(mark.encode(), np.uint8) for mark in (_OP_ID, _SEQUENCE, _SIZES, _INPUTS)
    )
    name_end = np.full(len(texts), -1, np.int64)
    sequence = np.full(len(texts), INT64_MIN, np.int64)
    shapes_at = np.zeros(len(texts), np.int64)
    shapes_size = np.full(len(texts), -1, np.int64)
    wanted = (may_be & texts.is_valid().to_numpy(zero_copy_only=False)).astype(np.uint8)
    _split(len(texts))(
        data,
        begin,
        wanted,
        op_id,
        sequence_mark,
        sizes,
        inputs,
        name_end,
        sequence,
        shapes_at,
        shapes_size,
    )
    rows = np.flatnonzero(name_end >= 0)
    starts = begin[:-1][rows]
    return (
        rows,
        gather_texts(data, starts, name_end[rows] - starts),
        arrow.integers(sequence[rows], INT64_MIN),
        gather_texts(data, shapes_at[rows], shapes_size[rows]),
    )


def _cut(texts: pa.Array, mark: str) -> tuple[pa.Array, pa.Array]:
    """What is before a mark, all where there is none, and what is behind it, NULL where there is none."""
    import pyarrow.compute as pc

    has_mark = pc.match_substring(texts, mark)
    if not pc.any(has_mark).as_py():
        return texts, pa.nulls(len(texts), pa.string())
    parts = pc.split_pattern(texts, mark, max_splits=1)
    last = np.cumsum(pc.list_value_length(parts).fill_null(0).to_numpy())
    flat = parts.flatten()
    behind = flat.take(pa.array(np.maximum(last - 1, 0)))
    before = flat.take(pa.array(np.append(0, last[:-1])[: len(last)], mask=_nulls(texts)))
    return before, pc.if_else(has_mark, behind, None)


def _nulls(texts: pa.Array) -> NDArray[np.bool_]:
    result: NDArray[np.bool_] = texts.is_null().to_numpy(zero_copy_only=False)
    return result


def _numbers(texts: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.int64())
    is_number = pc.match_substring_regex(texts, f"^[0-9]{{1,{_MAX_DIGITS}}}$")
    return pc.if_else(is_number, texts, None).cast(pa.int64())


@compiled
def _split(
    data: Bytes,
    begin: Int64s,
    wanted: Bytes,
    op_id: Bytes,
    sequence_mark: Bytes,
    sizes: Bytes,
    inputs: Bytes,
    name_end: Int64s,
    sequence: Int64s,
    shapes_at: Int64s,
    shapes_size: Int64s,
) -> None:
    for row in range(len(wanted)):
        if wanted[row] == 0:
            continue
        end = begin[row + 1]
        # First places of the four marks; the third counts behind the first, the fourth behind the third.
        op_at, sequence_at, sizes_at, inputs_at = -1, -1, -1, -1
        for at in range(begin[row], end):
            if data[at] != 44:
                continue
            for which in range(4):
                mark = op_id
                if which == 1:
                    mark = sequence_mark
                elif which == 2:
                    mark = sizes
                elif which == 3:
                    mark = inputs
                size = len(mark)
                if at + size > end:
                    continue
                same = 1
                for byte in range(1, size):
                    if data[at + byte] != mark[byte]:
                        same = 0
                        break
                if same == 0:
                    continue
                if which == 0 and op_at < 0:
                    op_at = at
                elif which == 1 and sequence_at < 0:
                    sequence_at = at
                elif which == 2 and sizes_at < 0 and op_at >= 0 and at >= op_at + len(op_id):
                    sizes_at = at
                elif which == 3 and inputs_at < 0 and sizes_at >= 0 and at >= sizes_at + len(sizes):
                    inputs_at = at
        if op_at < 0 and sequence_at < 0:
            continue
        head_end = op_at if op_at >= 0 else end
        if sequence_at >= 0 and sequence_at + len(sequence_mark) <= head_end:
            name_end[row] = sequence_at
            number, first = 0, sequence_at + len(sequence_mark)
            if first < head_end <= first + 18:
                for at in range(first, head_end):
                    digit = int(data[at]) - 48
                    if digit < 0 or digit > 9:
                        number = -1
                    elif number >= 0:
                        number = number * 10 + digit
                if number >= 0:
                    sequence[row] = number
        else:
            name_end[row] = head_end
        if sizes_at >= 0:
            shapes_at[row] = sizes_at + len(sizes)
            shapes_size[row] = (inputs_at if inputs_at >= 0 else end) - shapes_at[row]
