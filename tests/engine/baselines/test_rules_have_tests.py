"""Rules of SGLang, TensorRT-LLM and the baselines that were only read name a test that is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenpath.engine.rules import load_rules

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "baselines"])
def test_each_rule_that_was_only_read_has_a_test(engine: str) -> None:
    # Rules that engines share are tested once for all of them, beside their folders.
    paths = [*(TESTS / engine).glob("test_*.py"), *TESTS.glob("test_*.py")]
    source = "".join(path.read_text() for path in paths)
    rules = [rule for rule in load_rules() if rule.engine == engine]
    assert len({rule.id for rule in rules}) == len(rules) > 0
    read = [rule for rule in rules if rule.evidence == "read from source"]
    assert [rule.id for rule in read if f"def {rule.test}(" not in source] == []
