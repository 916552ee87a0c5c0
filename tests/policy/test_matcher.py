"""The compiled matcher against the slow one, and what follows from the prose."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings, strategies as st
from tests import thorough
from tests.policy import reference
from tests.policy.generated import names, paths, rules

from atoll.policy.rules import LEVELS, Matcher
from atoll.types import PathRule


@thorough.examples(1500, 300)
@given(st.lists(rules, max_size=6), st.lists(paths, min_size=1, max_size=6))
@example([PathRule("**a*b", "read")], ["ab", "a/b", "x/a/b"])
@example([PathRule("/*", "read")], ["", "a", "a/b"])
def test_the_compiled_matcher_and_the_slow_one_agree(given_rules, given_paths):
    matcher = Matcher(given_rules)
    for path in given_paths:
        assert matcher.winner(path) == reference.winner(given_rules, path), path
        assert matcher.level(path) == reference.level(given_rules, path), path


@settings(deadline=None)
@given(st.lists(rules, max_size=6), paths)
def test_an_explanation_says_what_the_matcher_does(given_rules, path):
    matcher = Matcher(given_rules)
    explanation = matcher.explain(path)
    assert explanation[:3] == (path, matcher.level(path), matcher.winner(path))
    matching = matcher.matching(path)
    assert matching[:1] == ([] if explanation.rule is None else [explanation.rule])
    assert sorted(matching) == sorted(rule for rule in given_rules if reference.matches(rule, path))
    assert explanation.why.endswith(".")


@given(st.lists(rules, max_size=6), st.text(max_size=12), st.booleans())
def test_any_text_has_exactly_one_level_directory_or_not(given_rules, path, directory):
    assert Matcher(given_rules).level(path, directory) in LEVELS


@settings(deadline=None)
@given(st.lists(rules, max_size=6), st.lists(names, min_size=1, max_size=4))
def test_a_path_in_other_words_is_hidden_rather_than_judged_by_them(given_rules, parts):
    matcher = Matcher([*given_rules, PathRule("**", "write", priority=9)])
    path = "/".join(parts)
    assert matcher.level(path) == "write"
    for other in (
        f"/{path}",
        f"{path}/",
        f"./{path}",
        f"{path}/.",
        f"../{path}",
        f"{path}/..",
        f"{path}//x",
        f"a/../{path}",
    ):
        assert matcher.level(other) == "none", other
        assert matcher.winner(other) is None
        assert matcher.explain(other).rule is None


@given(st.lists(rules, min_size=1, max_size=6), paths, st.sampled_from(LEVELS))
def test_a_rule_of_higher_priority_for_everything_wins_everywhere(given_rules, path, level):
    everything = PathRule("**", level, priority=2)
    assert Matcher([everything, *given_rules]).winner(path) == everything


@given(rules, paths, st.sampled_from(LEVELS))
def test_of_two_equal_rules_the_later_wins(rule, path, level):
    # With level none a pattern reaches further, so the twins are compared where both match.
    twin = rule._replace(level=level)
    matcher = Matcher([rule, twin])
    if len(matcher.matching(path)) == 2:
        assert matcher.winner(path) == twin
        assert Matcher([twin, rule]).winner(path) == rule


@settings(deadline=None)
@given(st.lists(rules, max_size=6), st.lists(rules, max_size=3), paths)
def test_rules_that_do_not_match_change_nothing(given_rules, more, path):
    others = [rule for rule in more if not reference.matches(rule, path)]
    assert Matcher([*others, *given_rules, *others]).winner(path) == Matcher(given_rules).winner(path)


@settings(deadline=None)
@given(rules.filter(lambda rule: rule.level == "none"), paths, names)
def test_what_is_below_a_hidden_path_is_hidden_by_the_same_rule(rule, path, name):
    below = f"{path}/{name}" if path else name
    matcher = Matcher([PathRule("**", "write"), rule._replace(priority=5)])
    if matcher.level(path) == "none":
        assert matcher.level(below) == "none"


WINS = [
    # (winner, loser, path): what decides, in the order of the prose
    (PathRule("**", "read", priority=1), PathRule("a/b", "write", "file"), "a/b", "has a lower priority"),
    (PathRule("a/b", "read", "file"), PathRule("a/b", "write", "directory"), "a/b", "file rules come before directory"),
    (PathRule("a", "read", "directory"), PathRule("a/b", "write"), "a/b", "directory rules come before glob"),
    (PathRule("a/b", "read"), PathRule("a/*", "write"), "a/b", "has more wildcards"),
    (PathRule("*.key", "none"), PathRule("?.k?y", "write"), "a.key", "has more wildcards"),
    (PathRule("a/b*", "read"), PathRule("a/*", "write"), "a/bc", "has fewer literal characters"),
    (PathRule("src/lib", "read", "directory"), PathRule("src", "write", "directory"), "src/lib/x", "fewer literal"),
    (PathRule("**/.env*", "none"), PathRule("**", "read"), "x/.env", "has no literal character"),
    (PathRule("src/**/*.key", "none"), PathRule("**", "read"), "src/x.key", "has no literal character"),
    (PathRule("a", "read"), PathRule("/a", "write"), "a", "was given earlier"),
    (PathRule("**/a", "read"), PathRule("a", "write"), "a", "was given earlier"),
]


@pytest.mark.parametrize(("winner", "loser", "path", "why"), WINS)
def test_the_winner_is_found_in_the_order_of_the_prose(winner, loser, path, why):
    explanation = Matcher([loser, winner]).explain(path)
    assert explanation.rule == winner
    assert why in explanation.why
    assert repr(winner.pattern) in explanation.why
    if "earlier" not in why:
        assert Matcher([winner, loser]).winner(path) == winner, "the order does not matter"


def test_what_no_rule_matches_is_hidden():
    assert Matcher([]).level("") == "none"
    assert Matcher([("a", "read")]).level("b") == "none"
    assert "No rule matches" in Matcher([]).explain("b").why


def test_an_explanation_names_a_few_losers_and_counts_the_rest():
    why = Matcher([(pattern, "read") for pattern in ("a", "a*", "*a", "?", "**", "/")]).explain("a").why
    assert why.startswith("The glob rule 'a' gives it 'read'; it beats the glob rule '*a'")
    assert why.endswith("; and 2 more that match.")
    assert Matcher([("a", "read")]).explain("a").why.endswith("no other rule matches.")
