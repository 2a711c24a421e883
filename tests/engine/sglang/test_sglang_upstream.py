"""SGLang's own scheduler, recorded on random workloads, decides what ours does; and no longer when a rule is broken."""

from __future__ import annotations

import pytest
import sglang_mutations
from sglang_upstream import FILES, first_difference

from tokenpath.core.errors import InputError
from tokenpath.engine.rules import load_rules

DIFFERENTIAL = [
    rule.id for rule in load_rules() if rule.engine == "sglang" and rule.evidence == "differential"
]


@pytest.mark.parametrize("name", FILES)
def test_every_decision_is_the_same(name: str) -> None:
    assert first_difference(name) is None


@pytest.mark.parametrize("rule", DIFFERENTIAL)
def test_no_longer_when_a_rule_is_broken(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = sglang_mutations.BREAK[rule](monkeypatch) or {}
    soonest = sglang_mutations.SHOWN_BY.get(rule, "")
    files = sorted(FILES, key=lambda name: soonest not in name)
    assert any(_differs(name, changed) for name in files)


def _differs(name: str, changed: dict[str, object]) -> bool:
    try:
        return first_difference(name, **changed) is not None
    except (InputError, AssertionError, IndexError):
        return True  # broken to the point where it cannot go on


def test_rules_that_are_broken_are_those_said_to_be_shown_so() -> None:
    assert set(DIFFERENTIAL) == sglang_mutations.BREAK.keys()
