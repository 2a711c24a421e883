"""Errors: four parts, one tree, and what survives a copy to another process."""

from __future__ import annotations

import copy
import inspect

import pytest

from tokenpath.core import errors
from tokenpath.core.errors import (
    CaptureError,
    DamagedInput,
    InputError,
    LimitExceeded,
    TokenpathError,
    UnknownFormat,
    UsageError,
)

TREE = {
    InputError: TokenpathError,
    UnknownFormat: InputError,
    DamagedInput: InputError,
    LimitExceeded: InputError,
    CaptureError: TokenpathError,
    UsageError: TokenpathError,
}


def test_the_tree_is_the_one_drawn_at_the_top_of_the_file():
    found = {
        kind: kind.__base__
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, TokenpathError) and kind is not TokenpathError
    }
    assert found == TREE
    assert TokenpathError.__base__ is Exception
    parents: list[str] = []
    drawn: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        if line.startswith("TokenpathError") or "|- " in line:
            depth = line.count("|")
            name = line.replace("|", "").replace("-", "").split()[0]
            parents[depth:] = [name]
            if depth:
                drawn[name] = parents[depth - 1]
    assert drawn == {kind.__name__: base.__name__ for kind, base in TREE.items()}


@pytest.mark.parametrize("kind", [TokenpathError, *TREE])
def test_the_message_has_the_parts_that_were_given_in_their_order(kind):
    assert str(kind("what")) == "what"
    assert str(kind("what", where="file.json, byte 7")) == "file.json, byte 7: what"
    assert str(kind("what", allowed="a or b")) == "what\n  allowed: a or b"
    assert str(kind("what", next_step="do it")) == "what\n  next: do it"
    whole = kind("what", where="here", allowed="a", next_step="do it")
    assert str(whole) == "here: what\n  allowed: a\n  next: do it"
    assert (whole.what, whole.where, whole.allowed, whole.next_step) == (
        "what",
        "here",
        "a",
        "do it",
    )
    assert kind.exit_code == 2
    assert kind.__doc__


@pytest.mark.parametrize("kind", TREE)
def test_an_error_keeps_its_parts_on_the_way_between_processes(kind):
    # Copying takes the same way as pickling: class, args, attributes.
    before = kind("what", where="here", allowed="a", next_step="do it")
    after = copy.copy(before)
    assert type(after) is kind
    assert (str(after), vars(after), after.args) == (str(before), vars(before), before.args)


def test_the_parts_after_the_first_are_named():
    with pytest.raises(TypeError):
        TokenpathError("what", "here")
