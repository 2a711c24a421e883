"""Operators that need not be, on a host without a device: chains, copies, products in double."""

from __future__ import annotations

from pathlib import Path

from explain.explaining import report_of
from ingest.traces import Trace
from tokenpath.core.finding import Finding, Kind

Call = tuple[str, float, str]
WIDE = [64, 1024]
PRODUCT: Call = ("aten::addmm", 900, "float")


def findings(calls: list[Call], folder: Path) -> list[Finding]:
    """What is found in ten steps of these operators on tensors of one size."""
    trace, now = Trace(device_name=None), 0.0
    for number in range(10):
        begin = now
        for name, length, dtype in calls:
            inputs = {"Input Dims": [WIDE, WIDE], "Input type": [dtype, dtype]}
            trace.complete("cpu_op", name, now, length, 100, 100, inputs)
            if name == "aten::contiguous":
                trace.complete("cpu_op", "aten::clone", now + 1, length - 2, 100, 100, inputs)
                trace.complete("cpu_op", "aten::copy_", now + 2, length - 4, 100, 100, inputs)
            now += length + 3
        trace.complete(
            "user_annotation", f"ProfilerStep#{number}", begin, now - begin, 100, 100, {}
        )
    return [f for f in report_of(trace, folder).findings if f.kind is Kind.COST]


def test_a_chain_is_worth_what_one_operator_would_save(tmp_path: Path) -> None:
    chain: list[Call] = [
        (f"aten::{name}", 100, "float") for name in ("mul", "tanh", "add", "mul", "mul")
    ]
    (finding,) = findings([PRODUCT, *chain, PRODUCT], tmp_path)
    assert finding.code == "unfused-elementwise"
    assert finding.duration_ns == 10 * 500_000
    assert 0.6 <= (finding.gain_ns or 0) / 5_000_000 <= 0.8


def test_two_pointwise_operators_between_products_are_a_layer(tmp_path: Path) -> None:
    gate: list[Call] = [("aten::silu", 100, "float"), ("aten::mul", 100, "float")]
    assert findings([PRODUCT, *gate, PRODUCT, *gate], tmp_path) == []


def test_copies_to_another_layout(tmp_path: Path) -> None:
    (finding,) = findings([PRODUCT, ("aten::contiguous", 150, "float"), PRODUCT], tmp_path)
    assert finding.code == "layout-copies"
    assert finding.gain_ns == 10 * 150_000


def test_products_in_double_among_others(tmp_path: Path) -> None:
    (finding,) = findings([PRODUCT, ("aten::mm", 1_800, "double"), PRODUCT], tmp_path)
    assert finding.code == "wrong-precision"
    assert finding.gain_ns == 10 * 900_000


def test_a_model_in_double_is_what_was_asked_for(tmp_path: Path) -> None:
    assert findings([("aten::mm", 1_800, "double")] * 3, tmp_path) == []
