"""The import contracts speak of packages that exist, and no package escapes them."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tokenpath"
LAYERS = [
    "cli",
    "api",
    "serve",
    "problems",
    "lab|plan",
    "ingest|explain|simulate|verify|record|store|kernels|export",
    "stitch|replay|engine",
    "capture",
    "core",
]


def contracts() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter", encoding="utf-8")
    return parser


def existing_packages() -> set[str]:
    return {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def test_the_layers_are_those_of_the_design() -> None:
    lines = contracts()["importlinter:contract:layers"]["layers"].strip().splitlines()
    assert [re.sub(r"[() ]", "", line) for line in lines] == LAYERS


def test_every_package_is_in_a_layer() -> None:
    assert existing_packages() <= set(re.split(r"\W", "|".join(LAYERS)))
    loose = {path.name for path in PACKAGE.glob("*.py")}
    assert loose == {"__init__.py", "__main__.py"}, "a module outside the layers"


def test_a_forbidden_contract_names_its_package_once_it_exists() -> None:
    """`x.**` covers what is in x, not x/__init__.py: name x itself as soon as there is one."""
    parser = contracts()
    for section in parser.sections():
        sources = parser[section].get("source_modules", "").split()
        for source in (s for s in sources if s.endswith(".**")):
            package = source.removeprefix("tokenpath.").removesuffix(".**")
            assert package not in existing_packages(), f"{section}: write tokenpath.{package}"
