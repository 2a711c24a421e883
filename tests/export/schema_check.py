"""The part of JSON Schema that `report.schema.json` uses; an unknown keyword is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_KNOWN = {"$schema", "$defs", "$ref", "title", "description", "type", "required", "properties",
          "additionalProperties", "items", "minItems", "maxItems", "enum", "const", "anyOf"}  # fmt: skip
_TYPES: dict[str, Any] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
}


def violations(
    value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "$"
) -> Iterator[str]:
    """Where the value departs from the schema, one sentence each."""
    assert set(schema) <= _KNOWN, f"unknown keyword in {sorted(schema)}"
    if "$ref" in schema:
        yield from violations(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, at)
    if "const" in schema and value != schema["const"]:
        yield f"{at} is {value!r}, not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} is {value!r}, none of {schema['enum']}"
    if "anyOf" in schema and all(list(violations(value, s, root, at)) for s in schema["anyOf"]):
        yield f"{at} fits no alternative"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES[kind](value) for kind in kinds):
        yield f"{at} is {type(value).__name__}, not {' or '.join(kinds)}"
        return
    if isinstance(value, dict):
        yield from _object_violations(value, schema, root, at)
    if isinstance(value, list) and "items" in schema:
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{at} has {len(value)} items"
        for index, item in enumerate(value):
            yield from violations(item, schema["items"], root, f"{at}[{index}]")


def _object_violations(
    value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], at: str
) -> Iterator[str]:
    properties = schema.get("properties", {})
    missing = [key for key in schema.get("required", ()) if key not in value]
    if missing:
        yield f"{at} lacks {missing}"
    other = schema.get("additionalProperties", True)
    for key, item in value.items():
        if key in properties:
            yield from violations(item, properties[key], root, f"{at}.{key}")
        elif other is False:
            yield f"{at}.{key} is not declared"
        elif isinstance(other, dict):
            yield from violations(item, other, root, f"{at}.{key}")
