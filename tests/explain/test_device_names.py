"""A TPU is called a TPU."""

from __future__ import annotations

import pytest

from tokenpath.explain.work import device_noun


@pytest.mark.parametrize(
    ("name", "noun"),
    [
        ("TPU v6 Lite", "TPU"),
        ("NVIDIA H100 80GB HBM3", "GPU"),
        (None, "GPU"),
        ("AMD Instinct", "GPU"),
    ],
)
def test_what_a_device_is_called(name: str | None, noun: str) -> None:
    assert device_noun(name) == noun
