"""Functions of several modules compiled as one piece: the same results as Python, loaded without numba."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from tokenpath.capture import compile_modules, machine_code

HELPERS = """
FACTOR = 3
def tripled(values, i):
    return values[i] * FACTOR
"""
ENTRY = """
from helpers_of_a_test import tripled
def add_tripled(first, values):
    total = first
    for i in range(len(values)):
        total += tripled(values, i)
    return total
"""
SIGNATURE = ("int64", "int64:1")


@pytest.fixture
def modules(tmp_path, monkeypatch) -> list[ModuleType]:
    """Two modules on disk, the second calling the first, and an empty cache."""
    monkeypatch.setenv("TOKENPATH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = []
    for name, text in (("helpers_of_a_test", HELPERS), ("entry_of_a_test", ENTRY)):
        (tmp_path / f"{name}.py").write_text(text)
        loaded.append(__import__(name))
    yield loaded
    for module in loaded:
        del sys.modules[module.__name__]


def load(modules: list[ModuleType]) -> machine_code.MachineCode:
    return compile_modules.load_modules(modules[-1].add_tripled, modules, SIGNATURE)


def test_machine_code_of_several_modules_gives_what_python_gives(modules):
    values = np.arange(5)
    assert load(modules)(7, values) == modules[-1].add_tripled(7, values) == 37


def test_it_is_compiled_once(modules, monkeypatch):
    load(modules)
    monkeypatch.setattr(compile_modules, "compile_modules", None)
    assert load(modules)(0, np.arange(3)) == 9


def test_a_name_may_not_be_two_things(modules):
    modules[1].FACTOR = 4
    with pytest.raises(ValueError, match="FACTOR is two things"):
        compile_modules.compile_modules(modules[-1].add_tripled, modules, SIGNATURE)


def test_a_bound_loop_takes_the_integers_that_remain(modules):
    values = np.arange(5)
    bound = load(modules).bind(values)
    assert bound(7) == 37
    values[0] = 100
    assert bound(7) == 337
    with pytest.raises(TypeError, match="1 integers, not 2"):
        bound(7, 8)


def test_arrays_of_other_types_cannot_be_bound(modules):
    with pytest.raises(TypeError, match="int32:1"):
        load(modules).bind(np.arange(5, dtype=np.int32))
    with pytest.raises(TypeError, match="contiguous"):
        load(modules).bind(np.arange(10)[::2])


def test_whether_it_has_to_be_compiled_can_be_asked_before(modules):
    assert not compile_modules.are_kept(modules, SIGNATURE)
    load(modules)
    assert compile_modules.are_kept(modules, SIGNATURE)
    assert not compile_modules.are_kept(modules, ("int64", "int32:1"))
