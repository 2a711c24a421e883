"""The JSON stream: the same as a decoder of the whole text, at any cut, with damage counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpath.ingest import json_stream
from tokenpath.ingest.json_stream import JsonStream, Path, Take
from tokenpath.ingest.losses import Losses


class Everything:
    """Enters the outermost value, takes each element of lists in it."""

    def __init__(self) -> None:
        self.taken: list[tuple[Path, object, int]] = []
        self.left: list[Path] = []
        self.num_damaged = 0

    def choose(self, path: Path, opens: str) -> Take:
        if path and path[-1] == "skipped":
            return Take.SKIP
        if not path:
            return Take.ENTER
        return Take.EACH if opens == "[" else Take.WHOLE

    def take(self, path: Path, value: object, stream: JsonStream) -> None:
        self.taken.append((path, value, stream.offset))

    def leave(self, path: Path) -> None:
        self.left.append(path)

    def damaged(self, _path: Path) -> None:
        self.num_damaged += 1


def walk(data: bytes, size: int = 7) -> tuple[Everything, Losses]:
    def chunks() -> Iterator[Any]:
        for at in range(0, len(data), size):
            yield np.frombuffer(data[at : at + size], np.uint8)

    visitor, losses = Everything(), Losses()
    JsonStream(chunks(), losses).walk(visitor)
    return visitor, losses


def reasons(losses: Losses) -> dict[str, int]:
    return {loss.reason: loss.num_events for loss in losses.rows()}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=5), _JSON, max_size=5), st.integers(1, 40), st.booleans())
def test_the_same_as_the_whole_at_any_cut(value: dict[str, Any], size: int, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=1)
    visitor, losses = walk(text.encode("utf-8", "surrogatepass"), size)
    expected: list[tuple[Path, object]] = []
    for key, member in value.items():
        if key == "skipped":
            continue
        if isinstance(member, list):
            expected += [((key,), element) for element in member]
        else:
            expected.append(((key,), member))
    assert [(path, taken) for path, taken, _ in visitor.taken] == expected
    assert reasons(losses) == {}
    assert visitor.left == [()]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.dictionaries(st.text("aé", min_size=1), _JSON, min_size=1), max_size=5), st.data()
)
def test_offsets_are_bytes_of_the_file(values: list[Any], data: st.DataObject) -> None:
    text = json.dumps({"a": values}, ensure_ascii=False)
    raw = text.encode("utf-8", "surrogatepass")
    visitor, _ = walk(raw, data.draw(st.integers(1, 30)))
    for _, value, offset in visitor.taken:
        decoder = json.JSONDecoder()
        rest = raw[offset:].decode("utf-8", "surrogatepass")
        assert decoder.raw_decode(rest)[0] == value


@pytest.mark.parametrize("cut", range(60))
def test_cut_anywhere_gives_what_is_there(cut: int) -> None:
    whole = b'{"a": [{"x": 1}, {"x": 2}, {"x": "\\"]}"}], "skipped": [{"y": "]"}], "b": 3}'
    visitor, losses = walk(whole[:cut])
    every = [value for _, value, _ in walk(whole)[0].taken]
    assert [value for _, value, _ in visitor.taken] == every[: len(visitor.taken)]
    assert reasons(losses)


def test_a_damaged_element_costs_itself_alone() -> None:
    visitor, losses = walk(b'{"a": [{"x": 1}, {"x": oops}, {"x": 3}], "b": 4}')
    assert [value for _, value, _ in visitor.taken] == [{"x": 1}, {"x": 3}, 4]
    assert (reasons(losses), visitor.num_damaged) == ({"malformed record": 1}, 1)


def test_a_missing_quote_costs_what_it_swallows() -> None:
    visitor, losses = walk(b'{"a": [{"x": "1}, {"x": 2}, {"x": 3}]}')
    assert {"x": 3} in [value for _, value, _ in visitor.taken]
    assert sum(reasons(losses).values()) >= 1


@pytest.mark.parametrize(
    "data", [b"", b" ", b"\xef\xbb\xbf", b"nonsense", b"\xff\xfe", b"]", b'{"a"', b"{1:2}"]
)
def test_what_is_no_document_is_counted(data: bytes) -> None:
    visitor, losses = walk(data)
    assert visitor.taken == []
    assert reasons(losses)


def test_nesting_and_size_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_VALUE_CHARS", 1000)
    deep = b"[" * 100_000
    _, losses = walk(b'{"a": ' + deep, 4096)
    assert reasons(losses)
    visitor, losses = walk(b'{"a": [' + deep + b"]}", 4096)
    assert sum(reasons(losses).values()) >= 1
    visitor, losses = walk(b'{"a": [1, "' + b"x" * 100_000 + b'", 2]}', 4096)
    assert [value for _, value, _ in visitor.taken][:1] == [1]
    assert reasons(losses)


def test_floats_stay_text_and_data_behind_the_end_is_counted() -> None:
    visitor, losses = walk(b'{"a": 0.1000000000000000055511151231257827} {"b": 1}')
    assert visitor.taken[0][1] == "0.1000000000000000055511151231257827"
    assert reasons(losses) == {"data after the end": 1}
