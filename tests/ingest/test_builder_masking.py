"""What the builder masks: every text but numbers and ids, which no rule can match."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.compare import rows
from ingest.planted import SECRETS
from tokenpath.core.redact import RULES, Redactor
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.formats import readers
from tokenpath.ingest.plain_texts import NOTHING_TO_MASK, mark_others
from tokenpath.ingest.reader import Options


def masked(folder: Path, texts: list[str], *, host: str | None = None) -> list[str]:
    path = folder / "a.json"
    path.write_bytes(b"{}")
    redactor = Redactor()
    if host is not None:
        redactor.host(host)
    builder = CaptureBuilder(readers()[0], path, Options(redactor=redactor))
    builder.add_rows("setting", [{"name": "x", "value": text} for text in texts])
    return rows(builder.finish(), "setting", "value")


@given(st.from_regex(NOTHING_TO_MASK, fullmatch=True))
def test_no_rule_matches_what_is_not_looked_at(text: str) -> None:
    assert not any(rule.pattern.search(text) for rule in RULES)


ALMOST_PLAIN = st.from_regex(NOTHING_TO_MASK, fullmatch=True) | st.text(
    st.sampled_from("chatmpl-0a9f.+e-ég"), max_size=14
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ALMOST_PLAIN, max_size=20))
def test_the_compiled_loop_knows_the_same_texts(texts: list[str]) -> None:
    data = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, data)]).astype(np.int32)
    found = np.zeros(len(texts), np.uint8)
    loop = mark_others(0)
    num_found = loop(np.frombuffer(b"".join(data) or b"\0", np.uint8), ends, found)
    wanted = [re.fullmatch(NOTHING_TO_MASK[1:-1], text) is None for text in texts]
    assert found.astype(bool).tolist() == wanted
    assert num_found == sum(wanted)


def test_many_texts_are_masked_as_few_are(tmp_path: Path) -> None:
    texts = ["0.25", "deadbeef", "10.214.33.7:29500", "cmpl-ab-0", "hf_" + "aB3" * 12, ""]
    few = masked(tmp_path, texts)
    assert masked(tmp_path, texts * 4000) == few * 4000


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_every_secret_is_looked_at(secret: str) -> None:
    assert re.match(NOTHING_TO_MASK, secret) is None


def test_numbers_and_ids_stay_beside_secrets(tmp_path: Path) -> None:
    texts = ["0.25", "deadbeef", "10.214.33.7:29500", "-3", "1e9", "hf_" + "aB3" * 12]
    found = masked(tmp_path, texts)
    assert [found[at] for at in (0, 1, 3, 4)] == [texts[at] for at in (0, 1, 3, 4)]
    assert found[2] == "address-0:29500"
    assert found[5] == "[masked]"


def test_a_host_that_looks_like_an_id_is_masked(tmp_path: Path) -> None:
    assert masked(tmp_path, ["cafe1234", "beef"], host="cafe1234") == ["host-0", "beef"]


def test_a_lone_surrogate_becomes_the_replacement_character(tmp_path: Path) -> None:
    """JSON may hold half of a pair; Arrow refuses it."""
    path = tmp_path / "x"
    path.write_text("x")
    builder = CaptureBuilder(readers()[0], path, Options(keep_hosts=True))
    builder.origin.host = "h\ud800"
    builder.setting("name", "a\udc98b")
    builder.add("thread", {"pid": ["1\ud800", "2"], "tid": ["1", "2"], "name": ["\udfff", None]})
    capture = builder.finish()
    assert not re.search("[\ud800-\udfff]", str(capture["thread"].to_pylist()))
    assert "\ufffd" in capture["setting"]["value"].to_pylist()[0]
    assert "\ufffd" in capture["source"]["host"].to_pylist()[0]
