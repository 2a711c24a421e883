"""What-ifs as they are written."""

from __future__ import annotations

import pytest

from replay.runs import run
from replay.test_what_ifs import device_bound, replay_of, synchronised
from tokenpath.capture.capture import Capture
from tokenpath.core.errors import UsageError
from tokenpath.replay.grammar import parse_what_if


def gain_us(capture: Capture, text: str) -> float:
    replay = replay_of(capture)
    return replay.what_if(parse_what_if(text).build(capture, replay)[0]).gain_ns / 1_000


@pytest.mark.parametrize(
    ("text", "gain"),
    [
        ("scale family=gemm 0.5", 100),
        ("scale name=^k[12]$ 0.5", 200),
        ("remove family=elementwise", 402),
        ("scale name=K0 0", 201),
        ("fuse elementwise", 201),
    ],
)
def test_kernels(text: str, gain: float) -> None:
    assert gain_us(device_bound(), text) == gain


def test_waits_and_calls() -> None:
    assert gain_us(synchronised(), "remove sync") == 99
    assert gain_us(synchronised(), "remove call=LaunchKernel") >= 0
    assert gain_us(synchronised(), "graphs") == 0


@pytest.mark.parametrize(
    "text",
    ["", "scale", "scale gemm 0.5", "scale family=gemm", "scale family=gemm -1", "scale family=gemm nan",
     "remove everything", "hide gemm", "balance", "gpu nothing-known", "remove frame=", "scale name=( 0.5"],
)  # fmt: skip
def test_what_cannot_be_read_names_what_can(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_what_if(text)
    assert "--what-if" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["scale family=conv 0.5", "hide communication", "balance ranks", "remove frame=x", "gpu l4"],
)
def test_what_changes_nothing_is_refused(text: str) -> None:
    capture = device_bound()
    replay = replay_of(capture)
    with pytest.raises(UsageError):
        parse_what_if(text).build(capture, replay)


def test_families_of_the_capture_are_named() -> None:
    capture = run([], [(None, 7, "compute", 0, 1)], families=["norm"])
    with pytest.raises(UsageError, match="norm"):
        parse_what_if("scale family=gemm 2").build(capture, replay_of(capture))
