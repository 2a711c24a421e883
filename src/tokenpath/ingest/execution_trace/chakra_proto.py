"""Chakra's protobuf form: GlobalMetadata, then nodes, each message after its length."""

from __future__ import annotations

import json
from typing import Any

from tokenpath.ingest.execution_trace.chakra import add_node, nanoseconds
from tokenpath.ingest.execution_trace.nodes import MAX_NAME, MAX_SHAPES, Node, Nodes
from tokenpath.ingest.growing import NULL, whole
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.wire import (
    BYTES,
    VARINT,
    WireError,
    fields,
    packed_varints,
    read_varint,
    signed,
    text,
    unzigzag,
)

_INTEGERS = (7, 9, 11, 13)
"""int32, int64, uint32 and uint64 in AttributeProto."""
_SIGNED_INTEGERS = (15, 17)
_FIXED = (19, 21, 23, 25)
_BOOL, _STRING = 27, 29
_MAX_ATTRIBUTES = 200
_MAX_SETTING = 1000


def read_messages(data: bytes, nodes: Nodes) -> dict[str, Any]:
    """Add the nodes of a file; the settings in its metadata.

    A damaged message is counted and stepped over; what is cut off is counted.
    """
    settings: dict[str, Any] = {}
    at, is_first, shapes = 0, True, _Shapes(nodes.losses)
    while at < len(data):
        begin = at
        try:
            length, at = read_varint(data, at, len(data))
        except WireError:
            nodes.losses.add("truncated", offset=begin, dropped=False)
            break
        end = at + length
        if end > len(data):
            nodes.losses.add("truncated", offset=begin, dropped=False)
            break
        try:
            if is_first:
                settings = _metadata(data, slice(at, end))
            else:
                nodes.num_seen += 1
                _add(nodes, data, slice(at, end), shapes)
        except WireError as error:
            nodes.losses.add("malformed message", offset=error.offset, dropped=not is_first)
        at, is_first = end, False
    return settings


def _metadata(data: bytes, within: slice) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for number, wire_type, value in fields(data, within):
        if wire_type != BYTES or not isinstance(value, slice):
            continue
        if number == 1:
            settings["version"] = text(data, value)[:_MAX_SETTING]
        elif number == 2 and len(settings) < _MAX_ATTRIBUTES:
            name, known = _attribute(data, value)
            if name.isidentifier() and len(name) <= 80 and known is not None:
                settings[name] = str(known)[:_MAX_SETTING]
    return settings


def _add(nodes: Nodes, data: bytes, within: slice, shapes: _Shapes) -> None:
    node = Node(0, "", "other")
    number = 0
    attributes: dict[str, Any] = {}
    control: list[int] = []
    data_ids: list[int] = []
    for field, wire_type, value in fields(data, within):
        if isinstance(value, slice):
            if field == 2:
                node.name = text(data, value)[:MAX_NAME]
            elif field in (4, 5) and wire_type == BYTES:
                (control if field == 4 else data_ids).extend(packed_varints(data, value))
            elif field == 8:
                node.shapes, node.dtypes = shapes.of(data, value)
            elif field == 10 and len(attributes) < _MAX_ATTRIBUTES:
                name, known = _attribute(data, value)
                attributes[name] = known
        elif wire_type == VARINT:
            if field == 1:
                node.node = value
            elif field == 3:
                number = value
            elif field in (4, 5):
                (control if field == 4 else data_ids).append(value)
            elif field == 6:
                node.at_ns = nanoseconds(value)
            elif field == 7:
                node.duration_ns = nanoseconds(value)
    if whole(node.node) == NULL:
        nodes.losses.add("malformed node", offset=within.start)
        return
    node.control, node.data = _ids(control, nodes.losses), _ids(data_ids, nodes.losses)
    add_node(nodes, node, number, attributes)


def _ids(values: list[int], losses: Losses) -> list[int]:
    known = [value for value in values if whole(value) != NULL]
    losses.add("dependency on no node", len(values) - len(known), dropped=False)
    return known


def _attribute(data: bytes, within: slice) -> tuple[str, Any]:
    """Name and value; None for lists, floats and bytes, which no column takes."""
    name = ""
    known: Any = None
    for number, wire_type, value in fields(data, within):
        if isinstance(value, slice):
            if number == 1:
                name = text(data, value)[:100]
            elif number == _STRING:
                known = text(data, value)[:_MAX_SETTING]
        elif number in _INTEGERS and wire_type == VARINT:
            known = signed(value) if number in (7, 9) else value
        elif number in _SIGNED_INTEGERS and wire_type == VARINT:
            known = unzigzag(value)
        elif number in _FIXED:
            known = value
        elif number == _BOOL:
            known = bool(value)
    return name, known


class _Shapes:
    """Shapes and types, which the converter writes as texts of Python lists."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._known: dict[bytes, str | None] = {}

    def of(self, data: bytes, within: slice) -> tuple[str | None, str | None]:
        """The JSON texts of an IOInfo."""
        found: dict[int, str | None] = {}
        for number, wire_type, value in fields(data, within):
            if number in (2, 3) and wire_type == BYTES and isinstance(value, slice):
                found[number] = self._json(data[value])
        return found.get(2), found.get(3)

    def _json(self, raw: bytes) -> str | None:
        if raw not in self._known:
            self._known[raw] = self._convert(raw)
        return self._known[raw]

    def _convert(self, raw: bytes) -> str | None:
        if len(raw) > MAX_SHAPES:
            self._losses.add("shapes too long", dropped=False)
            return None
        # Python's quotes; a type's name has none within.
        try:
            value = json.loads(raw.decode("utf-8", "replace").replace("'", '"'))
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False) if value else None
        except (ValueError, RecursionError):
            self._losses.add("shapes that are no list", dropped=False)
            return None
