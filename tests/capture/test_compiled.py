"""Loops in plain Python and compiled: the same results, work that grows with the rows, numba only if worth it."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tokenpath.capture import compiled, machine_code, nesting
from tokenpath.capture.nesting import innermost, nesting_order, parents, self_time


def arrays(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(rows, np.int64)
    return table[:, 0].astype(np.int32), table[:, 1].copy(), table[:, 2].copy()


class Counted(np.ndarray):
    """An array that counts how often one of its elements is read."""

    reads = 0

    def __getitem__(self, index):
        Counted.reads += 1
        return super().__getitem__(index)


def reads_of(loop, counted: np.ndarray, *arguments) -> int:
    Counted.reads = 0
    loop(0)(*(array.view(Counted) if array is counted else array for array in arguments))
    return Counted.reads


SHAPES = {
    "staircase": lambda n: [(0, i, i + n) for i in range(n)],
    "falling staircase": lambda n: [(0, i, i + n - i // 2) for i in range(n)],
    "one in another": lambda n: [(0, i, 2 * n - i) for i in range(n)],
    "all equal": lambda n: [(0, 0, 9)] * n,
    "tree, then a staircase": lambda n: [(0, i, n if i < n // 2 else n + i) for i in range(n)],
    "one after another": lambda n: [(0, 2 * i, 2 * i + 1) for i in range(n)],
    "in one around all": lambda n: [(0, 0, 9 * n)] + [(0, i, i + n) for i in range(1, n)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_of_parents_is_linear(shape):
    for size in (1_000, 2_000):
        group, start, end = arrays(SHAPES[shape](size))
        order = nesting_order(group, start, end)
        parent, stack = np.full(size, -1, np.int32), np.empty(size, np.int64)
        # Each row is pushed once and popped at most once, and each comparison reads two ends.
        reads = reads_of(nesting._parents, end, order, group, end, parent, stack)
        assert reads <= 4 * size


@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_of_innermost_grows_with_the_logarithm_of_the_depth(shape):
    for size in (500, 4_000):
        rows = SHAPES[shape](size)
        group, start, end = arrays(rows)
        order, parent = nesting_order(group, start, end), parents(group, start, end)
        jump, depth = np.arange(size, dtype=np.int32), np.zeros(size, np.int32)
        nesting._link_ancestors(0)(order, parent, jump, depth)
        # From the deepest row, look for ever longer intervals.
        outside = np.arange(200)
        found = np.full(200, order[-1])
        wanted = np.linspace(0, 9 * size + 1, 200).astype(np.int64)
        reads = reads_of(nesting._climb, end, outside, end, parent, jump, wanted, found)
        assert reads <= 200 * 2 * (3 * math.log2(size) + 3)


@pytest.mark.parametrize("size", [compiled.COMPILE_FROM_ROWS - 1, compiled.COMPILE_FROM_ROWS])
def test_both_paths_agree_on_many_rows_in_many_groups(size, monkeypatch):
    random = np.random.default_rng(size)
    group = random.integers(-3, 3_000, size).astype(np.int32)
    start = random.integers(0, 2_000, size)
    end = start + random.integers(0, 300, size)
    at = [random.permutation(column) for column in (group, start, end)]
    results = []
    for limit in (sys.maxsize, 0):
        monkeypatch.setattr(compiled, "COMPILE_FROM_ROWS", limit)
        parent = parents(group, start, end)
        own = self_time(start, end, parent)
        results.append((parent, own, innermost(group, start, end, parent, *at)))
    for one, other in zip(*results, strict=True):
        assert one.dtype == other.dtype
        assert (one == other).all()
    assert (results[0][0] >= 0).any()
    assert (results[0][2] >= 0).any()


@compiled.compiled
def add_up(values, result):
    for i in range(len(values)):
        result[0] += values[i]


def total(size: int) -> int:
    result = np.zeros(1, np.int64)
    add_up(size)(np.ones(size, np.int64), result)
    return int(result[0])


def test_a_loop_over_few_rows_does_not_load_numba():
    program = """
import sys
import numpy as np
from tokenpath.capture import compiled, machine_code, nesting
group, start = np.zeros(100, np.int32), np.arange(100)
parent = nesting.parents(group, start, start + 9)
nesting.innermost(group, start, start + 9, parent, group, start, start + 20)
nesting.self_time(start, start + 9, parent)
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_the_limit_decides(monkeypatch):
    monkeypatch.setattr(compiled, "COMPILE_FROM_ROWS", 50)
    monkeypatch.setattr(compiled, "WARM_FROM_ROWS", 50)
    assert add_up(49) is add_up(0)
    assert add_up(50) is not add_up(0)
    assert add_up(50) is add_up(51)
    assert (total(49), total(50)) == (49, 50)


@compiled.compiled
def double(values, by):
    for i in range(len(values)):
        values[i] *= by
    return len(values)


def doubled() -> list[int]:
    values = np.arange(3)
    assert double(compiled.COMPILE_FROM_ROWS)(values, 2) == 3
    return values.tolist()


def kept_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("double-*.o"))


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A cache folder of its own, and no memory of what was loaded before."""
    monkeypatch.setenv("TOKENPATH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def load_double() -> Callable[..., object]:
    return machine_code.load_loop(double(0), ("int64:1", "int64"))


def test_machine_code_is_kept_and_loaded_without_numba(fresh, monkeypatch):
    load_double()
    (kept,) = kept_in(fresh)
    assert kept.stat().st_mode & 0o077 == 0

    def no_numba(*_):
        raise AssertionError("compiled again")

    monkeypatch.setattr(machine_code, "compile_function", no_numba)
    values = np.arange(4)
    assert load_double()(values, 3) == 4
    assert values.tolist() == [0, 3, 6, 9]


def test_damaged_machine_code_is_not_run_but_compiled_again(fresh):
    load_double()
    (kept,) = kept_in(fresh)
    data = bytearray(kept.read_bytes())
    data[-1] ^= 1
    kept.write_bytes(bytes(data))
    values = np.arange(3)
    load_double()(values, 2)
    assert values.tolist() == [0, 2, 4]
    assert kept.read_bytes() != bytes(data)


@pytest.mark.parametrize("writable", ["folder", "file"])
def test_machine_code_that_others_could_have_written_is_not_loaded(fresh, monkeypatch, writable):
    load_double()
    (kept,) = kept_in(fresh)
    loosened = fresh if writable == "folder" else kept
    loosened.chmod(loosened.stat().st_mode | 0o022)
    compiled_again = []
    original = machine_code.compile_function
    monkeypatch.setattr(
        machine_code, "compile_function", lambda *a: compiled_again.append(a) or original(*a)
    )
    values = np.arange(3)
    load_double()(values, 2)
    assert values.tolist() == [0, 2, 4]
    assert compiled_again


def test_without_a_folder_for_its_cache_a_loop_is_compiled_all_the_same(fresh):
    fresh.write_text("a file where the folder should be")
    assert doubled() == [0, 2, 4]
    values = np.arange(3)
    load_double()(values, 2)
    assert values.tolist() == [0, 2, 4]


def test_a_loop_refuses_arrays_that_it_was_not_compiled_for(fresh):
    loop = load_double()
    with pytest.raises(TypeError, match="int32"):
        loop(np.arange(3, dtype=np.int32), 2)
    with pytest.raises(TypeError, match="contiguous"):
        loop(np.arange(6)[::2], 2)
