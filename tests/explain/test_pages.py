"""A page for every code that `explain` can emit, true to the code that emits it.

The codes are collected from the syntax tree of the package, not from a list: every call that makes a
Finding, a Note or an IdleCode must let the code be seen.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from explain.source_codes import SOURCE_CODES
from tokenpath.cli.main import main
from tokenpath.core.errors import UsageError
from tokenpath.explain import pages
from tokenpath.explain.findings import IDLE_CODES, IdleCode

PACKAGE = Path(pages.__file__).parents[1]
SECTIONS = (
    "What it measures",
    "Why it matters",
    "How it is found",
    "What would falsify it",
    "What to do",
    "Example",
    "Known problems",
)
MAKERS = {"Finding": 0, "Note": 0, "IdleCode": 0, "_Claim": 0}
"""What makes a finding or note, and the position of its code."""
LINES = range(25, 56)
THRESHOLD = re.compile(r"`(\w+)\.([A-Z][A-Z_]+)`\s+=\s+([\d,.]+)(?:\s*(%|ns|us|ms|s)\b|\s*(%))?")
SCALE = {"": 1, "%": 0.01, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
MEASURED_BY = (
    *("artefacts", "exposure_findings", "findings", "gaps", "overlaps", "quality", "waits"),
    "serving_findings",
)
"""Modules whose constants decide what is claimed."""
NO_THRESHOLD = {"findings.MAX_EVIDENCE_ROWS"}
"""Constants of those modules that bound what is printed, not what is claimed."""


@dataclass(frozen=True)
class Emitted:
    """A code, and the sentences of the functions that emit it."""

    code: str
    templates: tuple[str, ...]
    """Regular expressions of its string literals."""


def functions(tree: ast.Module) -> list[ast.FunctionDef | ast.Module]:
    return [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]


def own_nodes(scope: ast.FunctionDef | ast.Module) -> list[ast.AST]:
    """Nodes of a scope without those of functions inside it."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef):
            continue
        found.append(node)
        waiting += ast.iter_child_nodes(node)
    return found


@cache
def trees() -> list[ast.Module]:
    paths = sorted(
        [*PACKAGE.glob("*.py"), *PACKAGE.glob("analyses/*.py"), *PACKAGE.glob("compare/*.py")]
    )
    return [ast.parse(path.read_text(encoding="utf-8")) for path in paths]


def makers(tree: ast.Module) -> dict[str, int]:
    """MAKERS and every function of the module, or public one of another, with a parameter `code`."""
    found = dict(MAKERS)
    for other in trees():
        is_own = other is tree
        for scope in functions(other):
            if isinstance(scope, ast.FunctionDef) and (is_own or scope.name[0] != "_"):
                names = [argument.arg for argument in scope.args.args]
                annotations = {
                    a.arg: ast.unparse(a.annotation) for a in scope.args.args if a.annotation
                }
                if "code" in names and annotations["code"] == "str":
                    found[scope.name] = names.index("code")
    return found


def argument(call: ast.Call, position: int) -> ast.expr:
    for keyword in call.keywords:
        if keyword.arg == "code":
            return keyword.value
    return call.args[position]


def codes_of(value: ast.expr, scope: ast.FunctionDef | ast.Module) -> list[str]:
    """The codes that an argument can be; fails when that cannot be seen."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return [value.value]
    if isinstance(value, ast.IfExp):
        return codes_of(value.body, scope) + codes_of(value.orelse, scope)
    if isinstance(value, ast.Attribute) and value.attr == "code":
        return [code.code for code in IDLE_CODES]
    if isinstance(value, ast.Subscript) and ast.unparse(value.slice) == "'code'":
        return []  # of a source's note: SOURCE_CODES
    if isinstance(value, ast.Name):
        if isinstance(scope, ast.FunctionDef) and value.id in [a.arg for a in scope.args.args]:
            return []  # the callers are looked at
        found = []
        for node in own_nodes(scope):
            if isinstance(node, ast.For) and isinstance(node.target, ast.Tuple):
                names = [ast.unparse(name) for name in node.target.elts]
                if value.id in names and isinstance(node.iter, ast.Tuple):
                    at = names.index(value.id)
                    for row in node.iter.elts:
                        assert isinstance(row, ast.Tuple)
                        found += codes_of(row.elts[at], scope)
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == value.id:
                found += codes_of(node.value, scope)
        if found:
            return found
    raise AssertionError(f"cannot see which code `{ast.unparse(value)}` is: write it as a literal")


def template(node: ast.AST) -> str | None:
    """A text as a regular expression: what is filled in matches anything."""
    if isinstance(node, ast.JoinedStr):
        parts = [
            re.escape(part.value) if isinstance(part, ast.Constant) else ".*?"
            for part in node.values
        ]
        return "".join(parts)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    return None


def templates(scope: ast.FunctionDef | ast.Module) -> tuple[str, ...]:
    """The sentences among the texts of a scope."""
    return tuple(t for node in own_nodes(scope) if (t := template(node)) and t.count(r"\ ") >= 2)


def emitted() -> list[Emitted]:
    found = []
    for tree in trees():
        known = makers(tree)
        scopes = functions(tree)
        helpers = {s.name: templates(s) for s in scopes if isinstance(s, ast.FunctionDef)}
        for scope in scopes:
            for node in own_nodes(scope):
                if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in known:
                    texts = templates(scope) + helpers.get(name, ())
                    codes = codes_of(argument(node, known[name]), scope)
                    found += [Emitted(code, texts) for code in codes]
    return found


EMITTED = emitted()
CODES = sorted({item.code for item in EMITTED})


def section(code: str, title: str) -> str:
    parts = re.split(r"^## (.+)$", pages.about(code), flags=re.MULTILINE)
    return parts[parts.index(title) + 1]


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_codes_are_found() -> None:
    assert {"launch-bound", "exposed-copy", "dropped-tail", "coarse-clock"} <= set(CODES)
    assert len({code.code for code in IDLE_CODES}) >= 12


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert set(pages.codes()) == set(CODES) | set(SOURCE_CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_page_has_all_sections(code: str) -> None:
    text = pages.about(code)
    lines = text.splitlines()
    assert lines[0] == f"# {code}"
    assert tuple(re.findall(r"^## (.+)$", text, flags=re.MULTILINE)) == SECTIONS
    assert all(len(section(code, title).strip()) > 20 for title in SECTIONS)
    claim = text.split("\n\n")[1]
    assert claim.endswith(".")
    assert len(re.findall(r"[.!?](?:\s|$)", claim)) == 1, "one sentence"
    assert len(lines) in LINES
    assert max(len(line) for line in lines) <= 110
    assert max(len(line) for line in section(code, "Example").splitlines()) <= 80


@pytest.mark.parametrize("code", CODES)
def test_the_example_says_what_the_code_says(code: str) -> None:
    example = one_line(section(code, "Example"))
    idle = {item.code: item for item in IDLE_CODES}
    if code in idle:
        assert one_line(idle[code].claim) in example
        return
    templates = [t for item in EMITTED if item.code == code for t in item.templates]
    assert any(re.search(t, example) for t in templates), "no text of the code matches the example"


@pytest.mark.parametrize(
    "code", [item for item in IDLE_CODES if item.falsifier], ids=lambda c: c.code
)
def test_the_page_gives_the_falsifier_of_the_finding(code: IdleCode) -> None:
    page = one_line(section(code.code, "What would falsify it")).replace("`", "")
    assert code.falsifier.lower() in page.lower()


@pytest.mark.parametrize("code", IDLE_CODES, ids=lambda c: c.code)
def test_the_page_names_the_causes_of_the_finding(code: IdleCode) -> None:
    measured = section(code.code, "What it measures")
    assert {cause for cause in code.causes if f"`{cause}`" in measured} == set(code.causes)


def thresholds(text: str) -> list[tuple[str, str, float]]:
    return [
        (module, name, float(number.replace(",", "")) * SCALE[unit or percent or ""])
        for module, name, number, unit, percent in THRESHOLD.findall(text)
    ]


@pytest.mark.parametrize("code", CODES)
def test_thresholds_are_those_of_the_code(code: str) -> None:
    text = pages.about(code)
    named = re.findall(r"`\w+\.[A-Z][A-Z_]+`", text)
    found = thresholds(text)
    assert len(found) == len(named), "each constant is given with its value"
    for module, name, value in found:
        source = importlib.import_module(f"tokenpath.explain.{module}")
        assert value == pytest.approx(getattr(source, name)), name


def test_every_threshold_stands_on_a_page() -> None:
    documented = {f"{m}.{n}" for code in CODES for m, n, _ in thresholds(pages.about(code))}
    for module in MEASURED_BY:
        source = importlib.import_module(f"tokenpath.explain.{module}")
        tree = ast.parse(Path(source.__file__ or "").read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                name = ast.unparse(node.targets[0])
                if isinstance(node.value.value, int | float) and not name.startswith("_"):
                    constant = f"{module}.{name}"
                    assert constant in documented | NO_THRESHOLD, f"{constant} is on no page"


@pytest.mark.parametrize("code", CODES)
def test_pages_name_each_other_only_where_they_exist(code: str) -> None:
    for name in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", pages.about(code)):
        assert name in pages.codes(), name


def test_the_command_prints_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    for code in CODES:
        assert main(["explain", "--about", code]) == 0
        assert capsys.readouterr().out == (PACKAGE / "pages" / f"{code}.md").read_text(
            encoding="utf-8"
        )


def test_the_command_of_the_shell_prints_a_page() -> None:
    command = [sys.executable, "-m", "tokenpath", "explain", "--about", "launch-bound"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == pages.about("launch-bound")


def test_an_unknown_code_names_its_neighbours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--about", "launch-bond"]) == 2
    assert "launch-bound" in capsys.readouterr().err
    with pytest.raises(UsageError):
        pages.about("../findings")


def test_a_code_that_cannot_be_seen_is_refused() -> None:
    tree = ast.parse("def f(x):\n    name = x.lower()\n    return Note(name, 1, '')\n")
    scope = functions(tree)[1]
    call = next(node for node in own_nodes(scope) if isinstance(node, ast.Call) and node.args[1:])
    with pytest.raises(AssertionError, match="cannot see"):
        codes_of(call.args[0], scope)
