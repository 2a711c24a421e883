"""What the tests of the documentation share: constants that pages quote, code spans, table rows."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

QUOTED = re.compile(r"`(\w+)\.([A-Z][A-Z_]+)`\s+=\s+([\d,.]+)(?:\s*(%|ns\b|us\b|ms\b|s\b))?")
SCALE = {"": 1, "%": 0.01, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def quoted_constants(text: str) -> list[tuple[str, str, float, float]]:
    """(module of explain, name, value on the page, value in the code) of every constant on a page."""
    found = []
    for module, name, number, unit in QUOTED.findall(text):
        source = importlib.import_module(f"tokenpath.explain.{module}")
        value = float(number.replace(",", "")) * SCALE[unit]
        found.append((module, name, value, float(getattr(source, name))))
    return found


def named_constants(text: str) -> list[str]:
    """Constants of `explain` named on a page, with or without their value."""
    return re.findall(r"`\w+\.[A-Z][A-Z_]+`", text)


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows, `\\|` being no border."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def spans(text: str) -> set[str]:
    """The code spans of a page."""
    return set(re.findall(r"`([^`\n]+)`", text))
