"""The page on capture quality names every note with the severities that the code gives it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import tokenpath.explain.quality as quality
from docs.pages import quoted_constants, read, rows
from tokenpath.core.report import Severity, Trust
from tokenpath.explain import window
from tokenpath.explain.pages import codes

PAGE = read("docs/quality.md")


def notes_of_the_page() -> dict[str, set[str]]:
    """Code to the severities whose column is not empty."""
    head = next(row for row in rows(PAGE) if row[:2] == ["check", "note"])
    found: dict[str, set[str]] = {}
    for row in rows(PAGE):
        if len(row) == len(head) and row[1].startswith("`"):
            for code in re.findall(r"`([a-z-]+)`", row[1]):
                found[code] = {name for name, cell in zip(head[2:], row[2:], strict=True) if cell}
    return found


def notes_of_the_code() -> dict[str, set[str]]:
    """Code to the severities named in the call that makes the note, or in its function when computed."""
    tree = ast.parse(Path(quality.__file__).read_text(encoding="utf-8"))
    found: dict[str, set[str]] = {}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for call in ast.walk(function):
            if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "Note"):
                continue
            code, severity = ast.unparse(call.args[0]).strip("'"), ast.unparse(call.args[1])
            if "Severity." not in severity:
                severity = " ".join(
                    ast.unparse(node.value)
                    for node in ast.walk(function)
                    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == severity
                )
            named = {str(Severity[name]) for name in re.findall(r"Severity\.([A-Z]+)", severity)}
            names = {"dropped-head", "dropped-tail"} if code == "code" else {code}
            for name in names:
                found[name] = found.get(name, set()) | named
    return found


def test_every_note_is_in_the_table_with_its_severities() -> None:
    assert notes_of_the_page() == notes_of_the_code()


def test_every_note_of_the_table_has_a_page() -> None:
    assert set(notes_of_the_page()) <= set(codes())


def test_the_three_answers_are_those_of_the_code() -> None:
    named = [row[0].strip("`") for row in rows(PAGE) if len(row) == 3 and row[0].startswith("`")]
    assert named == [str(trust) for trust in Trust]


def test_the_constants_of_the_window_are_given() -> None:
    given = {name for module, name, _, _ in quoted_constants(PAGE) if module == "window"}
    tree = ast.parse(Path(window.__file__).read_text(encoding="utf-8"))
    constants = {
        ast.unparse(node.targets[0])
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }
    assert given == constants
