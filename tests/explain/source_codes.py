"""Codes of the notes that readers attach to a source, read from the syntax trees of `ingest`.

A reader says `builder.note("code", sentence)`, or keeps its sentences in a module's dictionary `NOTES`.
"""

from __future__ import annotations

import ast
from pathlib import Path

import tokenpath.ingest


def _codes_in(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "note" and node.args:
            if isinstance(node.args[0], ast.Constant):
                found.add(str(node.args[0].value))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if getattr(target, "id", "") == "NOTES":
                found |= {
                    str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)
                }
    return found


SOURCE_CODES: list[str] = sorted(
    set().union(*(_codes_in(path) for path in Path(tokenpath.ingest.__file__).parent.rglob("*.py")))
)
