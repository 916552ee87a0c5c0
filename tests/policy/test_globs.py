"""What a pattern matches, by examples; and that it takes no time to find out."""

from __future__ import annotations

import time

import pytest

from atoll.policy.rules import Matcher
from atoll.types import PathRule

MATCHES = [
    # pattern, what it matches, what it does not
    ("**", ["", "a", "a/b/c", ".x"], []),
    ("*", ["", "a", "a/b/c", ".x"], []),
    ("/", ["", "a", "a/b/c"], []),
    (".", ["", "a", "a/b/c"], []),
    ("/*", ["a", ".x"], ["", "a/b"]),
    ("src", ["src", "src/a", "x/src", "x/src/a/b"], ["", "srcx", "xsrc", "x/srcx/a"]),
    ("/src", ["src", "src/a"], ["x/src", "srcx"]),
    ("./src", ["src", "src/a"], ["x/src"]),
    ("src/", ["src", "src/a", "x/src/a/b"], ["srcx"]),
    ("/src/", ["src", "src/a/b"], ["x/src"]),
    ("src/**", ["src", "src/a", "src/a/b"], ["x/src", "x/src/a", ""]),
    ("src/*", ["src/a"], ["src", "src/a/b", "x/src/a"]),
    ("src/*/", ["src/a", "src/a/b"], ["src"]),
    ("src/*/**", ["src/a", "src/a/b"], ["src"]),
    ("src//a/./b", ["src/a/b"], ["src/a"]),
    ("a/b", ["a/b", "a/b/c"], ["x/a/b", "a"]),
    ("**/a/b", ["a/b", "x/a/b", "x/y/a/b/c"], ["a", "xa/b"]),
    ("a/**/b", ["a/b", "a/x/b", "a/x/y/b", "a/x/b/c"], ["a", "ab", "x/a/b"]),
    ("**/secrets/**", ["secrets", "secrets/api.txt", "x/secrets/y/z"], ["secret", "xsecrets/a"]),
    ("**/a/**/b/**/c", ["a/b/c", "x/a/x/b/x/c/x", "a/a/b/b/c"], ["b/a/c", "a/b"]),
    ("**/**/a/**/**", ["a", "x/a", "x/y/a/z"], ["b"]),
    ("a***b", ["ab", "a/b", "x/axx/y/xb"], ["a", "b"]),
    ("src/**.key", ["src/.key", "src/x.key", "src/a/b/x.key"], ["x.key", "src", "src/xkey"]),
    ("*.key", ["a.key", "x/y.key", ".key", "a.key/b"], ["key", "a.keys"]),
    (".env*", [".env", ".env.local", "x/.env.d/y"], ["env", "x.env"]),
    ("?", ["a", "x/b", "a/long"], ["long"]),
    ("[ab]?", ["ax", "b1"], ["a", "cx"]),
    ("[!a]", ["b", "x/b"], ["a", ""]),
    ("[^a]", ["b"], ["a"]),
    ("a[+-0]b", ["a+b", "a.b"], ["a/b"]),
    ("a[!x]b", ["ayb"], ["a/b", "axb"]),
    ("[]a]", ["]", "a"], ["b"]),
    ("[a-]", ["a", "-"], ["b"]),
    ("[\\]a]", ["]", "a"], ["\\"]),
    ("\\*", ["*"], ["a"]),
    ("\\[id\\]", ["[id]"], ["i"]),
    ("\\!x", ["!x"], ["x"]),
    ("{{name}}", ["{{name}}"], ["name"]),
    ("a+(b)|c$^", ["a+(b)|c$^"], ["aab", "c"]),
    ("a b", ["a b"], ["ab"]),
    ("*b", ["a\nb", "\n/b", "b\n/b"], ["b\n"]),
    ("caf\udce9*", ["caf\udce9", "caf\udce9\n"], ["café"]),
]


@pytest.mark.parametrize(("pattern", "matched", "others"), MATCHES, ids=[ascii(row[0]) for row in MATCHES])
def test_a_glob_matches_these_and_not_those(pattern, matched, others):
    matcher = Matcher([(pattern, "read")])
    assert [path for path in matched if matcher.level(path) != "read"] == []
    assert [path for path in others if matcher.level(path) != "none"] == []


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_wildcards_mean_nothing_in_the_path_of_a_file_or_a_directory(kind):
    for pattern in ("*", "a/[id]/?", "{a,b}", "!x", "\\", "**/a"):
        matcher = Matcher([PathRule(pattern, "read", kind)])
        assert matcher.level(pattern) == "read"
        assert matcher.level("a/i/b") == matcher.level("a") == "none"


def test_a_file_is_one_path_and_a_directory_all_below():
    file, directory = Matcher([PathRule("/a/b", "read", "file")]), Matcher([PathRule("a/b", "read", "directory")])
    for path, of_file, of_directory in [
        ("a/b", "read", "read"), ("a/b/c", "none", "read"), ("a", "none", "none"), ("x/a/b", "none", "none"),
    ]:  # fmt: skip
        assert (file.level(path), directory.level(path)) == (of_file, of_directory), path


@pytest.mark.parametrize("kind", ["file", "directory", "glob"])
@pytest.mark.parametrize("pattern", ["/a/b", "a/b"])
def test_what_a_rule_hides_it_hides_with_all_below_whatever_its_kind(kind, pattern):
    matcher = Matcher([("**", "write"), PathRule(pattern, "none", kind)])
    assert [matcher.level(path) for path in ("a", "a/b", "a/b/c", "a/b/c/d", "a/bc")] == [
        "write", "none", "none", "none", "write",
    ]  # fmt: skip


def test_a_star_for_the_entries_of_a_directory_hides_what_is_below_them_but_opens_only_them():
    assert Matcher([("a/*", "write")]).level("a/b/c") == "none"
    assert Matcher([("**", "read"), ("a/*", "none")]).level("a/b/c") == "none"
    assert Matcher([("**", "read"), ("a/*", "none")]).level("a") == "read"


HOSTILE = [
    ("**/a**/a**/a**/x", "a"),
    ("**a**a**a**a**a**x", "a"),
    ("*a*a*a*a*a*a*a*a*x", "a"),
    ("**/" * 20 + "a/" * 3 + "x", "a/"),
    ("a/**/" * 12 + "x", "a/"),
    ("**/*a*a*a*/**/*a*a*a*/x", "aaa/"),
    ("?" * 30 + "*" + "?*" * 30 + "x", "a"),
    ("[ab]*" * 20 + "x", "ab"),
    ("**[ab]*" * 12 + "x/y", "ab"),
    ("**/*", "a/"),
]


def seconds(matcher, path):
    best = 9.0
    for _ in range(3):
        begin = time.thread_time()
        matcher.level(path)
        best = min(best, time.thread_time() - begin)
    return best


@pytest.mark.parametrize(("pattern", "unit"), HOSTILE)
@pytest.mark.parametrize("level", ["read", "none"])
def test_a_hostile_pattern_on_a_name_eight_times_longer_takes_no_more_than_its_square(pattern, unit, level):
    # Exponential time would never end here; a power of three would be a factor of 512.
    matcher = Matcher([(pattern, level), (pattern, "view")])
    short = (unit * 500)[:500].strip("/") + "b"
    long = (unit * 4000)[:4000].strip("/") + "b"
    assert seconds(matcher, long) < 200 * max(seconds(matcher, short), 1e-5)


def test_ten_thousand_paths_by_fifty_rules_cost_little_more_than_looking_at_each_path():
    paths = [f"src{n % 7}/package{n % 31}/module{n % 113}/file{n}.py" for n in range(10_000)]
    rules = [("**", "read"), ("/output/**", "write"), (".git", "none"), ("secrets/", "none"), ("credentials*", "none")]
    rules += [(f"*.x{n}", "none") for n in range(20)] + [(f"src{n}/**/b*.py", "write") for n in range(15)]
    rules += [(f"**/w{n}/**/z*", "view") for n in range(10)]
    level = Matcher(rules).level

    def judging():
        begin = time.thread_time()
        found = {level(path) for path in paths}
        return time.thread_time() - begin, found

    def looking():
        begin = time.thread_time()
        for path in paths:
            sorted(path)
        return time.thread_time() - begin

    taken, found = min(judging() for _ in range(3))
    assert found == {"read"}
    # Sorting the letters of a path takes about as long as judging it, 2 µs; both scale with the machine.
    assert taken < 8 * min(looking() for _ in range(3))
