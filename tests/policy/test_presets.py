"""The presets, and what can be made of them."""

from __future__ import annotations

import pytest

import atoll
from atoll.errors import InvalidInput
from atoll.policy.presets import extend_preset, get_preset, list_presets, register_preset
from atoll.policy.rules import Matcher
from atoll.types import PathRule, Permissions

SECRETS = [
    ".env", ".env.local", "app/.env.d/production", "secrets", "secrets/api.txt", "app/deep/secrets/x/y.txt",
    "server.key", "tls/private/server.key", "cert.pem", "a/b/c/d.pem", "credentials", "credentials.json",
    "home/.aws/credentials", "credentials.d/README.md", "output/.env", "output/secrets/x", "tmp/a.key", "output/a.pem",
]  # fmt: skip
GIT = [".git", ".git/config", ".git/hooks/pre-commit", "vendor/lib/.git/HEAD", "output/.git/config", ".git/README.md"]
OPEN = [
    "",
    "README.md",
    "src/app.py",
    "environment.yml",
    "src/secret.py",
    "keys/a.txt",
    "git/x",
    "x.keys",
]


def levels(preset, paths):
    matcher = Matcher(get_preset(preset).rules)
    return {path: matcher.level(path) for path in paths}


def test_the_presets_are_these_and_public():
    assert list_presets()[:5] == ("agent-safe", "development", "read-only", "full-access", "view-only")
    assert atoll.list_presets is list_presets
    assert (atoll.get_preset, atoll.extend_preset, atoll.register_preset) == (
        get_preset, extend_preset, register_preset,
    )  # fmt: skip
    for name in list_presets():
        assert get_preset(name).name == name


@pytest.mark.parametrize("path", SECRETS + GIT)
def test_agent_safe_hides_secrets_and_the_repository_at_any_depth(path):
    assert levels("agent-safe", [path]) == {path: "none"}


def test_agent_safe_hides_what_the_product_that_invented_it_showed():
    assert levels("agent-safe", ["secrets/api.txt", ".git/config"]) == {
        "secrets/api.txt": "none",
        ".git/config": "none",
    }
    matcher = Matcher([("**", "read"), ("**/secrets/**", "none"), ("**/.git/**", "none")])
    for path in ("secrets/api.txt", "a/secrets/b", "a/b/secrets/c/d", ".git/config", "a/.git/b/c"):
        assert matcher.level(path) == "none", "a pattern with two `**` matches at every depth"


def test_a_directory_needs_no_rule_of_its_own_for_what_is_below_it():
    matcher = Matcher([("/src/**/*.py", "read")])
    plan = matcher.plan_levels([("src", True), ("src/a", True), ("src/a/b.py", False), ("src/a/c.txt", False)])
    assert plan == {"": "view", "src": "view", "src/a": "view", "src/a/b.py": "read", "src/a/c.txt": "none"}


def test_agent_safe_shows_the_rest_and_writes_in_two_places():
    assert set(levels("agent-safe", OPEN).values()) == {"read"}
    places = ["output", "output/a", "output/a/b.txt", "tmp", "tmp/x/y"]
    assert set(levels("agent-safe", places).values()) == {"write"}
    assert set(levels("agent-safe", ["src/output", "src/tmp/x", "outputs", "tmpx"]).values()) == {"read"}


def test_development_writes_everything_but_the_secrets():
    assert set(levels("development", SECRETS).values()) == {"none"}
    assert set(levels("development", ["", "src/a.py", ".git/config", "new/dir"]).values()) == {"write"}


@pytest.mark.parametrize(("preset", "level"), [("read-only", "read"), ("full-access", "write"), ("view-only", "view")])
def test_three_presets_have_one_level_for_everything(preset, level):
    assert set(levels(preset, ["", "a", "a/b", ".env", ".git/config"]).values()) == {level}


@pytest.mark.parametrize("name", ["agent", "", None, 1, [], "Agent-safe"])
def test_an_unknown_preset_gets_a_sentence_with_the_known_ones(name):
    with pytest.raises(InvalidInput, match=r"There is no preset .*; the presets are agent-safe, development"):
        get_preset(name)


def test_additions_say_more_but_do_not_show_what_the_preset_hides():
    rules = extend_preset("agent-safe", [("src/**", "write"), PathRule("src/.env", "read", "file"), ("docs", "view")])
    assert rules.name is None
    matcher = Matcher(rules.rules)
    assert [matcher.level(path) for path in ("src/a.py", "src/.env", "docs/a", "b")] == [
        "write",
        "none",
        "view",
        "read",
    ]


def test_overrides_win_over_everything_and_keep_their_order():
    overrides = [
        ("src/**", "write"),
        PathRule("src/.env*", "view", priority=-7),
        PathRule("src/.env", "read", "file", 5),
    ]
    rules = extend_preset("agent-safe", [PathRule("**", "none", priority=1000)], overrides, name="mine")
    assert rules.name == "mine"
    matcher = Matcher(rules.rules)
    assert [matcher.level(path) for path in ("src/a", "src/.env", "src/.env.x", "b")] == [
        "write",
        "read",
        "write",
        "none",
    ]
    assert min(rule.priority for rule in rules.rules[-3:]) == 1001


def test_a_preset_can_be_extended_again_and_again():
    rules = Permissions(get_preset("read-only").rules)
    for turn in range(5):
        rules = extend_preset(rules, overrides=[("a", "write" if turn % 2 else "view")])
    assert Matcher(rules.rules).level("a") == "view"
    assert extend_preset("read-only").rules == get_preset("read-only").rules


def test_priorities_beyond_the_highest_are_refused():
    base = Permissions((PathRule("a", "read", priority=10**9),))
    with pytest.raises(InvalidInput, match="priority"):
        extend_preset(base, overrides=[("a", "write")])


def test_a_preset_of_ones_own():
    made = register_preset("test-of-presets", [("docs/**", "read")])
    assert made == Permissions((PathRule("docs/**", "read"),), "test-of-presets")
    assert get_preset("test-of-presets") == made
    assert "test-of-presets" in list_presets()
    assert register_preset("test-of-presets", made) == made, "once more with the same rules is fine"
    with pytest.raises(InvalidInput, match="already, with other rules"):
        register_preset("test-of-presets", [("docs/**", "write")])
    with pytest.raises(InvalidInput, match="already, with other rules"):
        register_preset("agent-safe", [("**", "write")])
    assert get_preset("agent-safe") != Permissions((PathRule("**", "write"),), "agent-safe")


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a\n", None, 1, "a" * 64])
def test_a_name_that_nobody_can_type_is_refused(name):
    with pytest.raises(InvalidInput, match="A preset cannot be called"):
        register_preset(name, [("a", "read")])


def test_a_preset_without_rules_is_refused():
    with pytest.raises(InvalidInput, match="has no rules"):
        register_preset("test-of-nothing", [])
    assert "test-of-nothing" not in list_presets()
