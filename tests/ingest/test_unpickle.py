"""Pickles of plain data come back as they were; every other pickle is refused, and nothing is run."""

from __future__ import annotations

import collections
import contextlib
import decimal
import math
import os
import pickle
import pickletools
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpath.core.errors import DamagedInput, InputError, LimitExceeded, TokenpathError
from tokenpath.ingest import pickle_machine
from tokenpath.ingest import unpickle as module
from tokenpath.ingest.pickle_opcodes import OPERATIONS
from tokenpath.ingest.unpickle import unpickle

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
KEYS = st.one_of(st.text(max_size=8), st.integers(-(2**63), 2**64 - 1), st.booleans(), st.none())
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=300)
)
LEAVES_4 = st.one_of(SCALARS, st.binary(max_size=300), st.sets(KEYS), st.frozensets(KEYS))


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=5),
            st.tuples(inner),
            st.tuples(inner, inner),
            st.lists(inner, max_size=5).map(tuple),
            st.dictionaries(KEYS, inner, max_size=5),
            inner.map(lambda value: [value, value]),
        ),
        max_leaves=20,
    )


def read(data: bytes) -> Any:
    return unpickle(data, where="x.pickle").value


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            same(x, y) for x, y in zip(a.items(), b.items(), strict=True)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


@settings(max_examples=150, deadline=None)
@given(trees(SCALARS), st.sampled_from(PROTOCOLS))
def test_plain_data_of_every_protocol(value: Any, protocol: int) -> None:
    assert same(read(pickle.dumps(value, protocol)), value)


@settings(max_examples=150, deadline=None)
@given(trees(st.one_of(LEAVES_4, st.binary(max_size=300))), st.sampled_from((4, 5)))
def test_bytes_and_sets(value: Any, protocol: int) -> None:
    assert same(read(pickle.dumps(value, protocol)), value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "value",
    [
        *(2**n + d for n in (7, 8, 15, 16, 31, 32, 63, 64, 2040, 2048) for d in (-1, 0, 1)),
        *(-(2**n) + d for n in (7, 8, 15, 16, 31, 32, 63, 64, 2040) for d in (-1, 0, 1)),
        *(0.0, -0.0, 1e300, 5e-324, math.inf, -math.inf),
        *("", "\n", "\\u0041", "ä\u20ac\U0001f600", "\ud800", "x" * 70_000, "\\", "\x00"),
        *([], {}, (), [1], (1, 2, 3, 4), list(range(3000)), {n: str(n) for n in range(2500)}),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_edges(value: Any, protocol: int) -> None:
    assert same(read(pickle.dumps(value, protocol)), value)


def test_nan_large_texts_and_byte_arrays() -> None:
    assert math.isnan(read(pickle.dumps(math.nan, 0)))
    assert math.isnan(read(pickle.dumps(math.nan, 5)))
    assert read(pickle.dumps(bytearray(b"abc" * 1000), 5)) == bytearray(b"abc" * 1000)
    assert read(b"\x8d" + struct.pack("<Q", 3) + b"abc.") == "abc"
    assert read(b"\x8e" + struct.pack("<Q", 3) + b"abc.") == b"abc"


def test_what_old_writers_wrote() -> None:
    """Texts of Python 2, PUT and GET, DUP and POP."""
    assert read(b"S'a\\x41\\n\\'\\\\'\np0\n.") == "aA\n'\\"
    assert read(b'S"it\\q"\n.') == "itq"
    assert read(b"T\x02\x00\x00\x00ab.") == "ab"
    assert read(b"U\x02ab.") == "ab"
    assert read(b"(lp0\nI1\naI00\naI01\naL5L\naF1.5\na.") == [1, False, True, 5, 1.5]
    assert read(b"(K\x012l.") == [1, 1]
    assert read(b"(K\x01K\x020t.") == (1,)
    assert read(b"K\x07(K\x011.") == 7
    assert read(b"(dU\x01ag0\n.".replace(b"g0\n", b"K\x01s")) == {"a": 1}


def test_shared_parts_stay_shared() -> None:
    part = {"a": 1}
    value = read(pickle.dumps([part, part]))
    assert value[0] is value[1]


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("false",))


class Stateful:
    def __init__(self) -> None:
        self.a = 1


REFUSED: dict[str, tuple[Any, str]] = {
    "call": (Evil(), f"{os.system.__module__}.system"),
    "function": (os.getcwd, f"{os.getcwd.__module__}.getcwd"),
    "builtin": (eval, "eval"),
    "object": (Stateful(), "Stateful"),
    "deep inside": ([{"a": (1, [Evil()])}], "system"),
    "ordered dict": (collections.OrderedDict(a=1), "collections.OrderedDict"),
    "counter": (collections.Counter("aab"), "collections.Counter"),
    "decimal": (decimal.Decimal("1.5"), "decimal.Decimal"),
    "path": (Path("x"), "pathlib"),
    "complex": (1 + 2j, "complex"),
    "error": (ValueError("x"), "ValueError"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", REFUSED)
def test_whatever_is_more_than_data_is_refused_by_name(name: str, protocol: int) -> None:
    value, words = REFUSED[name]
    with pytest.raises(InputError, match="refused") as caught:
        read(pickle.dumps(value, protocol))
    if not (name == "object" and protocol < 2):  # copyreg._reconstructor comes first
        assert words in str(caught.value)
    assert "x.pickle, byte " in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'false'\ntR.",
        b"(S'false'\nios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x05false\x85R.",
        b"\x80\x02cos\nsystem\nU\x05false\x85R.",
        b"Pname\n.",
        b"K\x01Q.",
        b"\x82\x01.",
        b"\x83\x01\x00.",
        b"\x84\x01\x00\x00\x00.",
        b"K\x01)R.",
        b"}}b.",
        b"(K\x01o.",
        b"K\x01)\x81.",
        b"K\x01)}\x92.",
        b"\x97.",
        b"K\x01\x98.",
        b"K\x01K\x02\x93.",
    ],
)
def test_hostile_opcodes_are_refused(data: bytes) -> None:
    with pytest.raises(InputError, match=r"^x\.pickle, byte \d+: the pickle .*refused"):
        read(data)


def test_every_opcode_of_the_format_is_known() -> None:
    """Either executed or refused: none is taken for damage."""
    by_machine = {"BINGET", "LONG_BINGET", "MEMOIZE", "STOP"}
    known = {chr(code) for code in OPERATIONS}
    assert {o.name for o in pickletools.opcodes if o.code not in known} == by_machine


def test_names_cannot_break_the_message() -> None:
    with pytest.raises(InputError) as caught:
        read(b"c" + b"\x1b[31m" * 100 + b"\nsystem\n.")
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_values_that_hold_themselves() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    through: dict[str, Any] = {}
    through["a"] = [({"b": through},)]
    for value in (cycle, through):
        for protocol in PROTOCOLS:
            with pytest.raises(DamagedInput, match="holds itself"):
                read(pickle.dumps(value, protocol))


def test_billion_laughs_stay_small() -> None:
    """Each level names the one below ten times: 10**20 places, 21 lists."""
    value: Any = "ha"
    for _ in range(20):
        value = [value] * 10
    read(pickle.dumps(value))
    for _ in range(pickle_machine.MAX_DEPTH):
        value = [value] * 10
    with pytest.raises(LimitExceeded, match="nested deeper"):
        read(pickle.dumps(value))


def nested_by_memo(depth: int) -> bytes:
    """Lists within lists, made from the outermost inwards: no mark, no long stack."""
    data = b"]q\x000"
    for number in range(depth):
        outer, inner = struct.pack("<I", number), struct.pack("<I", number + 1)
        data += b"]r" + inner + b"0j" + outer + b"j" + inner + b"a0"
    return data + b"h\x00."


@pytest.mark.parametrize(
    "data",
    [
        b"]" * 1 + b"\x85" * 100_000 + b".",
        b"(" * 100_000,
        b"(" * 100_000 + b"l" * 100_000 + b".",
        nested_by_memo(150),
    ],
    ids=["tuples", "marks", "lists", "memo"],
)
def test_nesting_is_bounded(data: bytes) -> None:
    with pytest.raises(LimitExceeded, match="nested deeper"):
        read(data)


def test_nesting_up_to_the_bound_is_read() -> None:
    value: Any = []
    for _ in range(pickle_machine.MAX_DEPTH - 1):
        value = [value]
    assert read(pickle.dumps(value)) == value
    with pytest.raises(LimitExceeded, match="nested deeper"):
        read(pickle.dumps([value]))


@pytest.mark.parametrize(
    "data",
    [
        b"\x95" + b"\xff" * 8 + b"N.",
        b"\x8b\xff\xff\xff\x7f.",
        b"\x8b\x00\x00\x10\x00" + b"\1" * 2**20 + b".",
        b"I" + b"9" * 10_000 + b"\n.",
        b"K\x01r\xff\xff\xff\xff" + b"p" + b"9" * 20 + b"\n.",
        b"h\x07.",
        b"g-1\n.",
        b"a.",
        b"]\x85a.",
        b"}]K\x01s.",
        b"}(K\x01u.",
        b"\x8f(]\x90.",
        b"}\x8a\x09" + b"\1" * 9 + b"K\x01s.",
        b"}K\x01K\x01\x86K\x01s.",
        b"t.",
        b"N N.",
        b"NN.",
        b"(N.",
        b".",
        b"Ix\n.",
        b"Fx\n.",
        b"Sx\n.",
        b"V\\u12\n.",
        b"\x8c\x01\xff.",
        b"\x80\x09N.",
        b"\xff",
    ],
)
def test_damage_is_named_with_its_byte(data: bytes) -> None:
    with pytest.raises(DamagedInput, match=r"x\.pickle, byte \d+"):
        read(data)


@pytest.mark.parametrize(
    "data",
    [b"X\xff\xff\xff\xffab", b"\x8d" + b"\xff" * 8, b"\x96" + b"\xff" * 7 + b"\x7f", b""],
)
def test_lengths_past_the_end_take_no_memory(data: bytes) -> None:
    with pytest.raises(DamagedInput, match="cut off"):
        read(data)


def test_bounds_on_length_and_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_machine, "MAX_CONTAINERS", 100)
    with pytest.raises(LimitExceeded, match="more than 100"):
        read(pickle.dumps([[] for _ in range(101)]))
    monkeypatch.setattr(module, "MAX_BYTES", 10)
    with pytest.raises(LimitExceeded, match="bytes"):
        read(pickle.dumps("x" * 100))


VALUE = {
    "segments": [{"a": n, "b": ["x", "y", None]} for n in range(5)],
    "text": "ä" * 30,
    "set": {1, 2},
    "t": (1, 2, 3, 4),
    "f": 0.5,
    "big": 2**70,
}


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_cut_at_every_byte(protocol: int) -> None:
    """One clear error, or, where asked for, a part of the whole."""
    value = {key: item for key, item in VALUE.items() if protocol > 3 or key != "set"}
    data = pickle.dumps(value, protocol)
    assert unpickle(data, where="x", keep_partial=True).cut_at is None
    for size in range(len(data)):
        with pytest.raises(DamagedInput):
            unpickle(data[:size], where="x")
        try:
            part = unpickle(data[:size], where="x", keep_partial=True)
        except DamagedInput:
            continue
        assert part.cut_at == size
        if isinstance(part.value, dict):
            assert all(key in value for key in part.value if isinstance(key, str)) or protocol == 0


def test_a_cut_keeps_what_was_put_together() -> None:
    data = pickle.dumps({"rows": [{"n": n} for n in range(3000)], "last": 1}, 4)
    part = unpickle(data[: len(data) // 2], where="x", keep_partial=True).value
    assert 1000 < len(part["rows"]) < 2000
    assert part["rows"][:1000] == [{"n": n} for n in range(1000)]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_end_in_a_value_or_an_error_of_ours(data: bytes, keep: bool) -> None:
    with contextlib.suppress(TokenpathError):
        unpickle(data, where="x", keep_partial=keep)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([o.code.encode("latin-1") for o in pickletools.opcodes]), max_size=40),
    st.binary(min_size=1, max_size=4),
)
def test_any_run_of_opcodes(codes: list[bytes], filler: bytes) -> None:
    with contextlib.suppress(TokenpathError):
        read(b"".join(code + filler[: n % 5] for n, code in enumerate(codes)) + b".")


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=3))
def test_damage_anywhere(at: int, wound: bytes) -> None:
    data = bytearray(pickle.dumps(VALUE, 4))
    data[at % len(data) : at % len(data) + len(wound)] = wound
    with contextlib.suppress(TokenpathError):
        read(bytes(data))


def test_bytes_after_the_end_are_not_part_of_it() -> None:
    data = pickle.dumps([1])
    assert unpickle(data + b"cos\nsystem\n", where="x").num_bytes == len(data)


def test_no_module_of_the_product_uses_pickle() -> None:
    source = Path(module.__file__).parents[1]
    for path in source.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "import pickle\n" not in text, path
        assert "from pickle" not in text, path
        assert "import pickletools" not in text, path
