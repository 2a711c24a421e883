"""Ids of one request from client, API server, spans and engine are the same id."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.core.request_ids import plain_request_id

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("r17", ("r17", None)),
        ("run-7", ("run-7", None)),
        ("cmpl-r17", ("r17", None)),
        ("cmpl-r17-0", ("r17", 0)),
        ("cmpl-r17-3-1a2b3c4d", ("r17", 3)),
        ("chatcmpl-r17", ("r17", None)),
        ("chatcmpl-r17-9f8e7d6c", ("r17", None)),
        ("cmpl-" + "ab" * 16 + "-0", ("ab" * 16, 0)),
        ("cmpl-" + UUID, (UUID, None)),
        ("cmpl-" + UUID + "-0-1a2b3c4d", (UUID, 0)),
        ("cmpl-", ("cmpl-", None)),
        ("cmpl--0", ("-0", None)),
        ("", ("", None)),
    ],
)
def test_known_forms(text: str, expected: tuple[str, int | None]) -> None:
    assert plain_request_id(text) == expected


@given(st.from_regex(r"[A-Za-z0-9_]{1,20}", fullmatch=True), st.integers(0, 99))
def test_all_forms_of_one_id_agree(client: str, choice: int) -> None:
    forms = [
        client,
        f"cmpl-{client}",
        f"cmpl-{client}-{choice}",
        f"cmpl-{client}-{choice}-0123abcd",
    ]
    assert {plain_request_id(form)[0] for form in forms} == {client}
