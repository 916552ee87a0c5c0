"""The page of calls has every signature and every field as they are."""

from __future__ import annotations

import ast
import inspect
import pathlib
import re

import pytest

import atoll

PAGE = (pathlib.Path(__file__).parent.parent / "docs" / "reference" / "calls.md").read_text()
OWNERS = {"sb": atoll.Sandbox, "Sandbox": atoll.Sandbox}
CALLS = re.findall(r"^\| `([^`]+\))` \|", PAGE, re.MULTILINE)
VALUES = re.findall(r"^\| `([A-Z]\w+)` \| (.*) \|$", PAGE, re.MULTILINE)


def target(text):
    """What `Codebases().list` and the like name."""
    owner, dot, name = text.rpartition(".")
    if not dot:
        return getattr(atoll, name)
    return getattr(OWNERS.get(owner) or getattr(atoll, owner.removesuffix("()")), name)


def split(call):
    """The name of a call, and its parameters without types, as they are written."""
    name, parameters = re.fullmatch(r"(.+?[\w])\(([^()]*(?:\(\)[^()]*)*)\)", call).groups()
    return name, parameters


def parameters_of(function):
    found = inspect.signature(function).parameters.values()
    kept = [each.replace(annotation=inspect.Parameter.empty) for each in found if each.name != "self"]
    return str(inspect.Signature(kept))[1:-1]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_written_as_it_is(call):
    name, parameters = split(call)
    ast.parse(f"def call({parameters}): ...")
    assert parameters == parameters_of(target(name))


def test_the_page_names_every_call():
    named = {target(split(call)[0]) for call in CALLS}
    for owner in (atoll.Snapshots, atoll.Codebases):
        assert {getattr(owner, name) for name in vars(owner) if not name.startswith("_")} <= named


@pytest.mark.parametrize(("value", "fields"), VALUES)
def test_a_value_has_the_fields_that_the_page_names(value, fields):
    assert tuple(re.findall(r"`(\w+)`", fields)) == getattr(atoll, value)._fields
