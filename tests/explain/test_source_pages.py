"""A page for every note that a reader attaches to a source: short, and of one form."""

from __future__ import annotations

import re

import pytest

from explain.source_codes import SOURCE_CODES
from tokenpath.explain import pages


@pytest.mark.parametrize("code", SOURCE_CODES)
def test_a_page_says_what_it_is_and_what_to_do(code: str) -> None:
    text = pages.about(code)
    lines = text.splitlines()
    assert re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)+", code)
    assert lines[0] == f"# {code}"
    claim = text.split("\n\n")[1]
    assert claim.endswith(".")
    assert len(re.findall(r"^## .+$", text, flags=re.MULTILINE)) >= 2
    assert len(lines) <= 60
    assert max(len(line) for line in lines) <= 120
