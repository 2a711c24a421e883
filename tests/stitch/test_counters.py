"""Counters find the kernel that another source recorded, or say that they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.capture.capture import Capture, build_table
from tokenpath.capture.validate import validate
from tokenpath.stitch import link
from tokenpath.stitch.counters import UNJOINED, base_name, join_launches


def join(launches: list[str], kernels: list[str], sources: list[int] | None = None) -> list[int]:
    """Positions of the launches among the kernels, -1 for none."""
    source = np.array(sources or [0] * len(kernels), np.int32)
    return join_launches(launches, source, np.arange(len(kernels)), kernels).tolist()


@pytest.mark.parametrize(
    ("launches", "kernels", "expected"),
    [
        (["a", "b"], ["a", "b"], [0, 1]),
        # All launches of some names only, others in between.
        (["b", "b"], ["a", "b", "a", "b"], [1, 3]),
        # A part of the launches, at the only place where it fits.
        (["a", "b"], ["x", "b", "a", "b", "a"], [2, 3]),
        # Order across names differs, but each name has as many.
        (["a", "b", "a"], ["b", "a", "a"], [1, 0, 2]),
        # Two of three: which two is not known.
        (["a", "a"], ["a", "a", "a"], [-1, -1]),
        (["a", "a", "b"], ["b", "a", "a", "a"], [-1, -1, 0]),
        # More launches than kernels, and names that nobody has.
        (["a", "a"], ["a"], [-1, -1]),
        (["a", "z"], ["a"], [0, -1]),
        (["z"], ["a"], [-1]),
        (["gemm<int>(T1 *)"], ["void ns::gemm<int>(int*)"], [0]),
        ([], ["a"], []),
        (["a"], [], [-1]),
    ],
)
def test_names_and_order(launches: list[str], kernels: list[str], expected: list[int]) -> None:
    assert join(launches, kernels) == expected


def test_two_sources_that_both_fit_are_joined_to_none() -> None:
    assert join(["a"], ["a", "a"], [0, 1]) == [-1]
    assert join(["a"], ["a", "b"], [0, 1]) == [0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void ns::gemm<float, (int)4>(float*, int)", "gemm"),
        ("gemm", "gemm"),
        ("void (anonymous namespace)::fill(int)", "fill"),
        ("ampere_sgemm_128x64_nt", "ampere_sgemm_128x64_nt"),
        ("", ""),
        ("<lambda>", "<lambda>"),
    ],
)
def test_base_names(name: str, expected: str) -> None:
    assert base_name(name) == expected


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.data())
def test_a_launch_is_never_joined_to_a_kernel_of_another_name(
    kernels: list[str], data: Any
) -> None:
    """And a contiguous part of the kernels is either joined where it came from, or not at all."""
    first = data.draw(st.integers(0, len(kernels) - 1))
    part = kernels[first : data.draw(st.integers(first, len(kernels))) + 1]
    found = join(part, kernels)
    assert all(at < 0 or kernels[at] == name for at, name in zip(found, part, strict=True))
    assert all(at in (-1, first + number) for number, at in enumerate(found))
    whole = join(kernels, kernels)
    assert whole == list(range(len(kernels)))


def capture_of(launches: list[tuple[int | None, str]], kernels: list[str]) -> Capture:
    """A source with kernels, another with two counters a launch."""
    number = len(kernels)
    source = {
        "path": ["a", "b"],
        "format": ["nsys", "ncu"],
        "reader_version": np.ones(2, np.int32),
        "num_bytes": [1, 1],
        "clock_offset_ns": [0, 0],
        "clock": ["monotonic", "monotonic"],
        "state": ["measured", "measured"],
        "num_events": [number, len(launches)],
        "num_skipped": [0, 0],
    }
    device = {"source_id": np.zeros(1, np.int32), "index": [0]}
    kernel = {
        "source_id": np.zeros(number, np.int32),
        "device_id": np.zeros(number, np.int32),
        "stream_id": np.zeros(number, np.int64),
        "start_ns": np.arange(number) * 10,
        "end_ns": np.arange(number) * 10 + 5,
        "name": kernels,
        "kind": ["memcpy" if name == "copy" else "compute" for name in kernels],
        "family": ["other"] * number,
    }
    twice = [launch for launch in launches for _ in range(2)]
    counter = {
        "source_id": np.ones(len(twice), np.int32),
        "launch": [launch for launch, _ in twice],
        "name": ["dram", "sm"] * len(launches),
        "value": np.arange(len(twice), dtype=np.float64),
        "range_name": [name for _, name in twice],
    }
    tables = {"source": source, "device": device, "kernel": kernel, "kernel_counter": counter}
    return Capture({name: build_table(name, columns) for name, columns in tables.items()})


def test_link_joins_them() -> None:
    linked = link(capture_of([(0, "gemm"), (1, "norm")], ["copy", "gemm", "norm"]))
    validate(linked)
    assert linked["kernel_counter"]["kernel_id"].to_pylist() == [1, 1, 2, 2]
    assert linked.num_rows("skip") == 0


def test_what_is_not_joined_is_counted() -> None:
    linked = link(capture_of([(0, "gemm"), (1, "lost"), (None, "gemm")], ["gemm"]))
    assert linked["kernel_counter"]["kernel_id"].to_pylist() == [0, 0, None, None, None, None]
    (row,) = linked["skip"].to_pylist()
    assert (row["reason"], row["num_events"], row["lost"], row["source_id"]) == (
        UNJOINED,
        1,
        False,
        1,
    )
