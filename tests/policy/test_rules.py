"""Which rules are taken, and the sentence that the others get; the levels of a whole tree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from tests.policy.generated import paths, rules

from atoll.errors import InvalidInput
from atoll.policy.rules import Matcher, check_rules
from atoll.types import PathRule


def test_rules_come_as_rules_mappings_or_pairs():
    rule = PathRule("a/**", "read")
    given_rules = [rule, {"pattern": "a/**", "level": "read"}, ("a/**", "read"), ["a/**", "read"]]
    assert check_rules(given_rules) == check_rules(iter(given_rules)) == (rule,) * 4
    assert check_rules([{"pattern": "b", "level": "none", "kind": "file", "priority": 3}]) == (
        PathRule("b", "none", "file", 3),
    )
    assert check_rules(()) == ()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (PathRule("", "read"), "A pattern is empty; write '**'"),
        (("a", "admin"), "has the level 'admin'; give 'none', 'view', 'read' or 'write'"),
        (("a", None), "has the level None"),
        (("a", ["read"]), "has the level ['read']"),
        (PathRule("a", "read", "regex"), "has the kind 'regex'; give 'glob'"),
        (PathRule("a", "read", []), "has the kind []"),
        ((1, "read"), "The pattern 1 is an int; patterns are text"),
        ((b"a", "read"), "is a bytes"),
        (("a/../b", "read"), "climbs with '..'"),
        (("..", "read"), "climbs with '..'"),
        (PathRule("a/../b", "read", "file"), "climbs with '..'"),
        (("a\0", "read"), "NUL byte"),
        (("\ud800", "read"), "half a surrogate pair"),
        (("é" * 2049, "read"), "has 4098 bytes; at most 4096"),
        (PathRule("a", "read", "glob", 1.5), "has the priority 1.5; give a whole number"),
        (PathRule("a", "read", "glob", True), "has the priority True"),
        (PathRule("a", "read", "glob", "1"), "has the priority '1'"),
        (PathRule("a", "read", "glob", 10**10), "has the priority 10000000000"),
        (PathRule("a/", "read", "file"), "ends in a slash; use kind 'directory'"),
        ({"pattern": "a"}, "has no level"),
        ({"level": "read"}, "has no pattern"),
        ({"pattern": "a", "level": "read", "mode": 1}, "A rule has no 'mode'; the names are pattern, level"),
        ({"pattern": "a", "level": "read", 1: 1}, "A rule has no 1"),
        ({"pattern": "a", "permission": "read"}, "A rule has no 'permission'; did you mean 'level'?"),
        ({"path": "a", "level": "read"}, "A rule has no 'path'; did you mean 'pattern'?"),
        ("a", "The rule 'a' is no rule"),
        (("a",), "is no rule"),
        (("a", "read", "glob"), "is no rule"),
        (None, "is no rule"),
        (("!a", "read"), "begins with '!'"),
        (("*.{key,pem}", "none"), "alternatives in braces; write a rule for each"),
        (("a\\b", "read"), "has a backslash before 'b'"),
        (("a\\", "read"), "has a backslash before '/'"),
        (("a\\/b", "read"), "has a backslash before '/'"),
        (("a[b", "read"), "has a '[' that no ']' closes"),
        (("a[b/c]", "read"), "has a '[' that no ']' closes"),
        (("[]", "read"), "has a '[' that no ']' closes"),
        (("[\\", "read"), "has a backslash"),
        (("[z-a]", "read"), "has a range from 'z' to 'a'"),
        (("[[:digit:]]", "read"), "write a range such as [0-9]"),
    ],
)
def test_a_wrong_rule_gets_a_sentence(wrong, words):
    with pytest.raises(InvalidInput) as caught:
        check_rules([("ok", "read"), wrong])
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("wrong", [None, "a", b"a", {"pattern": "a", "level": "read"}, 1, PathRule("a", "read")])
def test_what_is_no_list_of_rules_is_refused(wrong):
    with pytest.raises(InvalidInput, match="give a list such as"):
        check_rules(wrong)


def test_the_number_of_rules_and_their_size_are_bounded():
    assert len(check_rules([("a", "read")] * 10_000)) == 10_000
    with pytest.raises(InvalidInput, match="too many rules"):
        check_rules([("a", "read")] * 10_001)
    with pytest.raises(InvalidInput, match="too many rules"):
        check_rules([("a" * 4000, "read")] * 300)
    with pytest.raises(InvalidInput, match="too many rules"):
        check_rules(("a", "read") for _ in iter(int, 1))


@given(st.text(max_size=8), st.sampled_from(["glob", "directory", "file"]))
def test_any_text_is_a_pattern_or_refused(pattern, kind):
    try:
        matcher = Matcher([PathRule(pattern, "read", kind)])
    except InvalidInput:
        return
    assert matcher.level("a/b") in ("none", "read")


def test_a_directory_on_the_way_to_something_visible_is_shown():
    matcher = Matcher([PathRule("a/b/c", "read", "file"), ("x", "write")])
    entries = [("a", True), ("a/b", True), ("a/b/c", False), ("a/d", True), ("a/d/e", False), ("x", True)]
    assert matcher.plan_levels(entries) == {
        "": "view", "a": "view", "a/b": "view", "a/b/c": "read", "a/d": "none", "a/d/e": "none", "x": "write",
    }  # fmt: skip
    assert matcher.plan_levels([("a/b/c", False)]) == {"": "view", "a": "view", "a/b": "view", "a/b/c": "read"}
    assert matcher.plan_levels([]) == {}


@settings(deadline=None)
@given(st.lists(rules, max_size=4), st.lists(paths, max_size=8))
def test_in_a_plan_every_level_is_that_of_the_path_and_nothing_visible_is_out_of_reach(given_rules, files):
    matcher = Matcher(given_rules)
    plan = matcher.plan_levels((path, False) for path in files)
    assert plan.keys() >= set(files)
    for path, level in plan.items():
        above = {"/".join(path.split("/")[:count]) for count in range(path.count("/") + 1)} if path else set()
        if level != "none":
            assert all(plan[directory] != "none" for directory in above)
        has_visible_below = any(
            other != "none" and deeper != path and (not path or deeper.startswith(f"{path}/"))
            for deeper, other in plan.items()
        )
        expected = matcher.level(path)
        assert level == ("view" if expected == "none" and has_visible_below else expected)
