"""Permissions from every form that a caller may have them in."""

from __future__ import annotations

import json
import tomllib

import pytest
from hypothesis import given, strategies as st
from tests.policy.generated import rules

from atoll.errors import InvalidInput
from atoll.policy.permissions import check_permissions, chosen, from_flags, from_json, from_toml, to_json
from atoll.policy.presets import extend_preset, get_preset
from atoll.policy.rules import Matcher
from atoll.types import PathRule, Permissions


def levels(permissions, *paths):
    matcher = Matcher(permissions.rules)
    return [matcher.level(path) for path in paths]


def test_permissions_are_a_preset_permissions_or_rules():
    assert check_permissions(None) is None
    assert check_permissions("agent-safe") == get_preset("agent-safe")
    assert check_permissions(get_preset("development")) == get_preset("development")
    assert check_permissions(iter([("a", "read")])) == Permissions((PathRule("a", "read"),))


@pytest.mark.parametrize("empty", [(), [], Permissions(()), iter(())])
def test_no_rules_at_all_are_refused_since_they_would_hide_everything(empty):
    with pytest.raises(InvalidInput, match="everything would be hidden"):
        check_permissions(empty)


@pytest.mark.parametrize("wrong", [1, {}, {"a": "read"}, PathRule("a", "read"), b"agent-safe", [("a", "x")], "nothing",
                                   Permissions((("a", "x"),)), Permissions((PathRule("a", "read"),), 7),
                                   Permissions((PathRule("a", "read"),), "\x1b")])  # fmt: skip
def test_what_is_no_permissions_is_refused(wrong):
    with pytest.raises(InvalidInput):
        check_permissions(wrong)


@given(st.lists(rules, min_size=1, max_size=5), st.none() | st.just("agent-safe"))
def test_permissions_survive_json(given_rules, name):
    permissions = Permissions(tuple(given_rules), name)
    assert from_json(json.loads(json.dumps(to_json(permissions)))) == permissions


@pytest.mark.parametrize(
    "wrong",
    [None, "agent-safe", [], {}, {"name": None}, {"name": None, "rules": []}, {"name": 1, "rules": [["a", "read"]]},
     {"name": None, "rules": [["a", "read"]], "default": "write"}, {"name": None, "rules": "a"}],
)  # fmt: skip
def test_stored_permissions_that_this_version_did_not_write_are_refused(wrong):
    with pytest.raises(InvalidInput):
        from_json(wrong)


def test_permissions_from_toml():
    text = """
        [other]
        x = 1
        [permissions]
        preset = "agent-safe"
        [[permissions.rules]]
        pattern = "src/**"
        level = "write"
        [[permissions.rules]]
        pattern = ".env.example"
        level = "read"
        kind = "file"
        priority = 200
    """
    permissions = from_toml(tomllib.loads(text))
    assert levels(permissions, "src/a", ".env", ".env.example", "b") == ["write", "none", "read", "read"]
    assert from_toml(tomllib.loads('[permissions]\npreset = "view-only"')) == get_preset("view-only")
    only_rules = tomllib.loads('[[permissions.rules]]\npattern = "a"\nlevel = "read"')
    assert from_toml(only_rules) == Permissions((PathRule("a", "read"),))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "There is no table [permissions]"),
        ("permissions = 1", "There is no table [permissions]"),
        ("[permissions]", "everything would be hidden"),
        ("[permissions]\nprest = 'agent-safe'", "[permissions] has no 'prest'; the names are preset, rules"),
        ("[permissions]\npreset = 'agent'", "There is no preset 'agent'"),
        ("[permissions]\npreset = 1", "There is no preset 1"),
        ("[permissions]\nrules = 'a'", "give a list"),
        ("[permissions.rules]\npattern = 'a'\nlevel = 'read'", "give a list"),
        ("[[permissions.rules]]\npattern = 'a'", "has no level"),
    ],
)
def test_a_wrong_table_gets_a_sentence(text, words):
    with pytest.raises(InvalidInput) as caught:
        from_toml(tomllib.loads(text))
    assert words in str(caught.value)


def test_flags_that_say_nothing_are_no_permissions():
    assert from_flags() is None
    assert from_flags([], [], None) is None
    assert from_flags(preset="read-only") == get_preset("read-only")


def test_what_is_not_allowed_is_hidden():
    permissions = from_flags(["read:src/**", "write:out/"], [])
    assert levels(permissions, "src/a", "out/b/c", "deep/out/b", "c", "") == ["read", "write", "write", "none", "none"]


def test_hiding_more_shows_no_more_than_the_preset_that_holds_without():
    permissions = from_flags(hide=["docs"])
    assert levels(permissions, "docs/a", ".env", "a", "output/a") == ["none", "none", "read", "write"]


def test_a_preset_and_rules_are_the_preset_plus_the_rules():
    both = chosen("development", [("src/**", "read"), PathRule(".env.example", "write", priority=101)])
    assert levels(both, "src/a", ".env", ".env.example", "a") == ["read", "none", "write", "write"]
    assert chosen(get_preset("development"), [("src/**", "read")]) == extend_preset("development", [("src/**", "read")])
    assert chosen(None, [("src/**", "read")]) == Permissions((PathRule("src/**", "read"),))
    with pytest.raises(InvalidInput, match="both name a preset"):
        chosen("development", "agent-safe")


def test_without_a_choice_it_is_the_safe_preset_and_full_access_is_no_rules():
    assert chosen(None, None) == get_preset("agent-safe")
    assert chosen("full-access", None) is chosen(None, "full-access") is None
    assert chosen(None, None, default=False) is None
    assert chosen("full-access", None, default=False) == get_preset("full-access")


@pytest.mark.parametrize("hidden", ["*.key", "src/**/*.key", "**/*.key", "**.key"])
@pytest.mark.parametrize("allowed", ["read:src", "read:src/**", "write:src/lib/", "view:**", "read:src/lib/a.key"])
def test_what_is_hidden_stays_hidden_whatever_is_allowed(allowed, hidden):
    assert levels(from_flags([allowed], []), "src/lib/a.key") != ["none"]
    assert levels(from_flags([allowed], [hidden]), "src/lib/a.key") == ["none"]


def test_flags_add_to_a_preset_or_to_a_file():
    for more in ({"preset": "agent-safe"}, {"base": get_preset("agent-safe")}):
        permissions = from_flags(["write:src/**"], ["docs"], **more)
        assert levels(permissions, "src/a", "docs/a", ".env", "b") == ["write", "none", "none", "read"]


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"allow": ["src/**"]}, "'src/**' does not begin with a level; write it as read:src/**"),
        ({"allow": ["execute:a"]}, "'execute:a' does not begin with a level"),
        ({"allow": ["read:"]}, "has no pattern behind the colon"),
        ({"allow": ["read:../x"]}, "climbs with '..'"),
        ({"hide": [""]}, "A pattern is empty"),
        ({"hide": ["!a"]}, "begins with '!'"),
        ({"preset": "x"}, "There is no preset 'x'"),
        ({"preset": "read-only", "base": get_preset("read-only")}, "not both"),
    ],
)
def test_wrong_flags_get_a_sentence(keywords, words):
    with pytest.raises(InvalidInput) as caught:
        from_flags(**keywords)
    assert words in str(caught.value)


def test_a_colon_may_be_in_the_pattern():
    assert from_flags(["read:a:b"]).rules == (PathRule("a:b", "read"),)
