"""Texts of PyTorch's operators are taken apart, and the quick way gives what the plain one gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.ingest.nsys.operators import split_large, split_small, take_operators


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aten::mm, op_id = 5", ("aten::mm", None, None)),
        ("aten::mm, seq = 3, op_id = 5", ("aten::mm", 3, None)),
        ("aten::mm, seq = 3", ("aten::mm", 3, None)),
        ("detach_, op_id = 5, sizes = [[2], []]", ("detach_", None, "[[2], []]")),
        ("a::b, seq = 1, op_id = 5, sizes = [[2]], input_op_ids = [(4,0)]", ("a::b", 1, "[[2]]")),
        (
            "autograd::engine::evaluate_function: MmBackward0, op_id = 9",
            ("autograd::engine::evaluate_function: MmBackward0", None, None),
        ),
        ("a::b, seq = x, op_id = 5", ("a::b", None, None)),
        ("a::b, seq = 1234567890123456789012, op_id = 5", ("a::b", None, None)),
        ("execute_context_1(8)_generation_0(0), op_id = 5", None),
        ("step 5, op_id = 5", None),
        ("aten::mm", None),
        ("", None),
        (None, None),
    ],
)
def test_texts(text: str | None, expected: tuple[str, int | None, str | None] | None) -> None:
    found = take_operators(pa.array([text], pa.string()), np.array([True]))
    parts = (found.names, found.sequence, found.shapes)
    rows = list(zip(*(part.to_pylist() for part in parts), strict=True))
    assert rows == ([] if expected is None else [expected])


def test_a_text_that_may_be_none_is_none() -> None:
    assert len(take_operators(pa.array(["a::b, op_id = 1"]), np.array([False])).rows) == 0


_PIECES = st.sampled_from(
    ["aten::mm", ", op_id = ", ", seq = ", ", sizes = ", ", input_op_ids = ", "12", ",", " ", "é"]
)
_TEXTS = st.none() | st.lists(_PIECES, max_size=9).map("".join)


@given(st.lists(st.tuples(_TEXTS, st.booleans()), max_size=20))
def test_both_ways_are_the_same(rows: list[tuple[str | None, bool]]) -> None:
    texts = pa.array(["before", *(text for text, _ in rows)], pa.string())[1:]
    may_be = np.array([flag for _, flag in rows], np.bool_)
    small, large = split_small(texts, may_be), split_large(texts, may_be)
    assert small[0].tolist() == large[0].tolist()
    for one, other in zip(small[1:], large[1:], strict=True):
        assert one.to_pylist() == other.to_pylist()
