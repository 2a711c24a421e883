"""The README shows what the tool prints, and its short promises hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tokenpath import api
from tokenpath.export import text

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN_TRACE = "traces/tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"


def shown_report() -> list[str]:
    found = re.search(
        r"^```text\n\$ tokenpath explain [^\n]+\n(.*?)^```", README, re.DOTALL | re.MULTILINE
    )
    assert found is not None
    return found[1].rstrip().splitlines()


def test_the_shown_report_is_what_the_tool_prints(reference_data: Path) -> None:
    report = api.explain([reference_data / SHOWN_TRACE]).report
    printed = text.render(report).splitlines()
    at = 0
    for line in shown_report():
        if line.strip() == "...":
            continue
        assert line in printed[at:], f"no longer printed, or elsewhere: {line!r}"
        at = printed.index(line, at) + 1


def test_the_shown_report_fits_a_terminal() -> None:
    assert len(shown_report()) > 20
    assert max(map(len, shown_report())) <= 80


def test_the_command_stands_within_the_first_lines() -> None:
    head = README.splitlines()[:10]
    assert "pip install tokenpath" in head
    assert "tokenpath explain trace.json.gz" in head


def test_it_is_short_and_names_both_set_up_commands() -> None:
    assert len(README.splitlines()) <= 150
    assert len(README.split("\n\n")[1].split(". ")) == 2
    assert re.search(r"^make demo\b", README, re.MULTILINE)
    assert re.search(r"^make test\b", README, re.MULTILINE)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_every_page_of_docs_is_reached_from_a_page_at_the_top(page: Path) -> None:
    tops = README + (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert f"docs/{page.name}" in tops
