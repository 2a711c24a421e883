"""Count the patterns of ratchet.toml and fail when one of them grew.

Usage: ``python tools/ratchet.py [--list COUNTER] [--lower] [--root DIR]``.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SCANNED_FOLDERS = ("benchmarks", "examples", "src", "tests", "tools")
LINES_MAX = 400
STRICT_PACKAGES = ("src/tokenpath/core/", "src/tokenpath/capture/")
NETWORK_PACKAGES = ("src/tokenpath/serve/", "src/tokenpath/record/")
NETWORK_MODULES = frozenset(
    {
        "aiohttp",
        "asyncio.streams",
        "ftplib",
        "http.client",
        "http.server",
        "httpx",
        "imaplib",
        "poplib",
        "requests",
        "smtplib",
        "socket",
        "socketserver",
        "ssl",
        "telnetlib",
        "urllib.request",
        "urllib3",
        "websockets",
        "xmlrpc",
    }
)
DANGEROUS_MODULES = frozenset({"pickle", "marshal", "shelve", "dill", "cloudpickle"})


@dataclass(frozen=True)
class Source:
    """A Python file, read and parsed once for all counters."""

    path: str
    """Relative to the root, with forward slashes."""
    text: str
    tree: ast.Module

    @property
    def in_library(self) -> bool:
        """Whether the file ships to users; tests and tools may do what the library may not."""
        return self.path.startswith("src/")


@dataclass(frozen=True)
class Hit:
    """One occurrence of a pattern."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def _comments(source: Source) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _comment_counter(pattern: str) -> Callable[[Source], Iterator[int]]:
    compiled = re.compile(pattern)

    def count(source: Source) -> Iterator[int]:
        return (line for line, text in _comments(source) if compiled.search(text))

    return count


def find_long_file(source: Source) -> Iterator[int]:
    """The first line over the limit."""
    if source.text.count("\n") > LINES_MAX:
        yield LINES_MAX + 1


def find_broad_excepts(source: Source) -> Iterator[int]:
    """``except:``, ``except Exception`` and ``except BaseException``, alone or in a tuple.

    A handler that ends with a bare ``raise`` cleans up and hides nothing, so it does not count.
    """
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        if isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None:
            continue
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if any(k is None or _name(k) in ("Exception", "BaseException") for k in kinds):
            yield node.lineno


def find_any(source: Source) -> Iterator[int]:
    """Uses of ``Any`` in the strictly typed packages (its import does not count)."""
    if source.path.startswith(STRICT_PACKAGES):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Name | ast.Attribute) and _name(node) == "Any":
                yield node.lineno


def find_dangerous_calls(source: Source) -> Iterator[int]:
    """Ways in which data becomes code, in the library."""
    if not source.in_library:
        return
    for node in ast.walk(source.tree):
        if DANGEROUS_MODULES & {name.partition(".")[0] for name in _imported(node)}:
            yield node.lineno
        if isinstance(node, ast.Call):
            bare = isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec")
            system = isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "os.system"
            shell = any(k.arg == "shell" and _is_true(k.value) for k in node.keywords)
            if bare or system or shell:
                yield node.lineno


def find_network_imports(source: Source) -> Iterator[int]:
    """Imports that open connections, in the library."""
    if source.in_library and not source.path.startswith(NETWORK_PACKAGES):
        for node in ast.walk(source.tree):
            if NETWORK_MODULES & set(_imported(node)):
                yield node.lineno


def _name(node: ast.AST | None) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _imported(node: ast.AST) -> Iterator[str]:
    """Each module an import may mean: ``from urllib import request`` is ``urllib.request`` too."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


COUNTERS: dict[str, Callable[[Source], Iterator[int]]] = {
    "files_over_400_lines": find_long_file,
    "type_ignores": _comment_counter(r"#\s*type:\s*ignore"),
    "noqas": _comment_counter(r"(?i)#\s*(ruff:\s*)?noqa"),
    "broad_excepts": find_broad_excepts,
    "any_in_core_and_capture": find_any,
    "todo_comments": _comment_counter(r"\b(TODO|FIXME|XXX|HACK)\b"),
    "dangerous_calls": find_dangerous_calls,
    "network_imports": find_network_imports,
}


def read_sources(root: Path) -> list[Source]:
    """Every Python file of the scanned folders."""
    sources = []
    for folder in SCANNED_FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            relative = path.relative_to(root).as_posix()
            sources.append(Source(relative, text, ast.parse(text, filename=relative)))
    return sources


def count_hits(sources: list[Source]) -> dict[str, list[Hit]]:
    """All hits of every counter, in file order."""
    return {
        name: [Hit(source.path, line) for source in sources for line in find(source)]
        for name, find in COUNTERS.items()
    }


def lower_limits(toml_text: str, counts: dict[str, int]) -> str:
    """The text of ratchet.toml with every limit above its count brought down to it."""

    def lower(match: re.Match[str]) -> str:
        limit = min(int(match["limit"]), counts[match["name"]])
        return f"[{match['name']}]\nlimit = {limit}"

    return re.sub(r"\[(?P<name>\w+)\]\nlimit = (?P<limit>\d+)", lower, toml_text)


def main(arguments: list[str] | None = None) -> int:
    """Print one line per counter; 1 when a counter is above its limit, 0 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", choices=sorted(COUNTERS), help="print where a counter's hits are")
    parser.add_argument("--lower", action="store_true", help="write fallen counts to ratchet.toml")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    options = parser.parse_args(arguments)

    hits = count_hits(read_sources(options.root))
    if options.list:
        print(*hits[options.list], sep="\n")
        return 0
    bars_path = options.root / "tools" / "ratchet.toml"
    text = bars_path.read_text(encoding="utf-8")
    bars = tomllib.loads(text)
    if set(bars) != set(COUNTERS):
        print(f"error: ratchet.toml and ratchet.py differ on {sorted(set(bars) ^ set(COUNTERS))}")
        return 1

    risen = False
    for name, bar in bars.items():
        count, limit = len(hits[name]), bar["limit"]
        print(f"{name:<24} {count:>4} of {limit:>4}")
        if count > limit:
            risen = True
            print(f"  rose above its limit ({bar['why']}):")
            print(*(f"    {hit}" for hit in hits[name]), sep="\n")
        elif count < limit and not options.lower:
            print(f"  fell: keep it there with `python tools/ratchet.py --lower` ({count})")
    if options.lower:
        bars_path.write_text(
            lower_limits(text, {k: len(v) for k, v in hits.items()}), encoding="utf-8"
        )
    return int(risen)


if __name__ == "__main__":
    sys.exit(main())
