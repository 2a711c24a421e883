"""The table of rules says what the tests show."""

from __future__ import annotations

from collections import Counter

from engine.vllm import test_rules
from engine.vllm.mutations import ON_RECORDED_RUNS, ON_UPSTREAM_RUNS
from tokenpath.engine.rules import EVIDENCE, load_rules

RULES = [rule for rule in load_rules() if rule.engine == "vllm"]


def ids(evidence: str) -> set[str]:
    return {rule.id for rule in RULES if rule.evidence == evidence}


def test_each_rule_is_named_once_and_shown_in_a_known_way():
    assert [key for key, count in Counter(rule.id for rule in RULES).items() if count > 1] == []
    assert {rule.evidence for rule in load_rules()} <= set(EVIDENCE)


def test_each_rule_proved_on_a_recorded_run_is_broken_there():
    assert ids("proved on a recorded run") == set(ON_RECORDED_RUNS)


def test_each_differential_rule_is_broken_against_upstream():
    assert ids("differential") == set(ON_UPSTREAM_RUNS)


def test_each_rule_that_was_only_read_has_a_test():
    assert [
        rule.id
        for rule in RULES
        if rule.evidence == "read from source" and not hasattr(test_rules, rule.test or "")
    ] == []
