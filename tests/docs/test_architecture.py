"""ARCHITECTURE.md: its layers are those that CI checks, its files are there, it fits a screen."""

from __future__ import annotations

import configparser
import re

from docs.pages import ROOT, read, spans

PAGE = read("ARCHITECTURE.md")
PACKAGE = ROOT / "src" / "tokenpath"


def drawn_layers() -> list[set[str]]:
    block = re.search(r"^```\n(cli\n.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert block is not None
    layers = []
    for line in block[1].splitlines():
        left = re.split(r"\s{4,}", line)[0]
        layers.append({name.strip(" []") for name in left.split("|")})
    return layers


def checked_layers() -> list[set[str]]:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    text = parser["importlinter:contract:layers"]["layers"]
    return [{name.strip(" ()") for name in line.split("|")} for line in text.split("\n") if line]


def test_the_drawn_layers_are_the_checked_ones() -> None:
    assert drawn_layers() == checked_layers()


def test_brackets_mark_the_layers_without_a_package() -> None:
    for name in set().union(*drawn_layers()):
        is_there = any((PACKAGE / name).glob("*.py"))
        assert (f"[{name}]" in PAGE) != is_there, name


def test_named_files_exist() -> None:
    for name in spans(PAGE):
        if re.fullmatch(r"[\w./]+/[\w.]+\.(?:py|md)", name) and "CODE" not in name:
            assert (ROOT / name).exists() or (PACKAGE / name).exists(), name


def test_it_has_eight_stops_and_fits_a_screen() -> None:
    assert re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE) == list("12345678")
    assert len(PAGE.splitlines()) <= 70
