"""Random trees under random rules: a view shows what the rules say, no more and no less, and the source stays."""

import os
import shutil
import stat
import tempfile

import pytest
from hypothesis import example, given, strategies as st
from tests import thorough
from tests.views import trees
from tests.views.worlds import OLD, RECIPES, World

from atoll.policy.rules import Matcher

NAMES = st.sampled_from(["a", "b", "c.txt", "d.key", "e e", "\udcff", ".f", "a.txt"])
LEVELS = st.sampled_from(["none", "view", "read", "write"])
# None of these names a place that is not there: what is made of those is tested elsewhere.
PATTERNS = st.sampled_from(
    ["**", "*.txt", "*.key", "a", "b", ".f", "**/a/*", "**/b/**", "a/*", "*/a", "*/*/*", "[ab]", "?", "**/e e", "a*"]
)
CONTENTS = st.one_of(st.binary(max_size=20), st.just(b"x" * 5000))
RULES = st.lists(st.builds(dict, pattern=PATTERNS, level=LEVELS, priority=st.integers(0, 2)), max_size=6)


@st.composite
def forests(draw):
    """Paths with contents, None for a directory, a tuple for a link."""
    found = {}
    directories = [""]
    for _ in range(draw(st.integers(0, 14))):
        path = draw(st.sampled_from(directories)) + draw(NAMES)
        if path in found:
            continue
        kind = draw(st.sampled_from(["directory", "directory", "file", "file", "file", "link"]))
        if kind == "directory":
            directories.append(f"{path}/")
            found[path] = None
        else:
            found[path] = draw(CONTENTS) if kind == "file" else (draw(st.sampled_from(["a", "../b", "/etc", "x"])),)
    return found


def expected(forest, rules):
    """Slow and obvious: what is to be seen, by path."""
    matcher = Matcher(rules)
    levels = {path: matcher.level(path, content is None) for path, content in forest.items()}
    shown = {}
    for path, content in forest.items():
        below = [levels[other] for other in forest if other.startswith(f"{path}/")]
        if levels[path] != "none" or any(level != "none" for level in below):
            shown[path] = (levels[path], content)
    return matcher.level("", True), shown


def look():
    """What the sandbox finds, by trying."""
    found = {}
    for directory, names, others in os.walk("."):
        for name in [*names, *others]:
            path = os.path.relpath(f"{directory}/{name}", ".")
            status = os.lstat(path)
            kind = stat.S_IFMT(status.st_mode)
            if kind == stat.S_IFLNK:
                found[path] = ("link", os.readlink(path), None, None)
            elif kind == stat.S_IFDIR:
                found[path] = ("directory", None, None, None)
            else:
                found[path] = ("file", attempt_read(path), status.st_size, status.st_mtime_ns)
    for path, (kind, *rest) in found.items():
        found[path] = (kind, *rest, attempt_write(path, kind))
    return attempt_write(".", "directory"), found


def attempt_read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def attempt_write(path, kind):
    try:
        if kind == "directory":
            os.close(os.open(f"{path}/made", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            os.unlink(f"{path}/made")
        elif kind == "file":
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("recipe", [*RECIPES, *OLD])
@thorough.examples(40, 10)
@given(forest=forests(), rules=RULES)
@example(forest={"a": None, "a/c.txt": b"x"}, rules=[{"pattern": "*.txt", "level": "write"}])
@example(forest={"a": None, "a/a": None, "a/a/d.key": b"k"}, rules=[{"pattern": "**", "level": "write"},
                                                                   {"pattern": "*.key", "level": "view"}])  # fmt: skip
def test_a_view_shows_what_the_rules_say(recipe, forest, rules):
    place = tempfile.mkdtemp(prefix="at-view-", dir="/var/tmp")
    os.chmod(place, 0o755)
    try:
        source = trees.grow(f"{place}/source", {f"{path}/" if content is None else path: content or b""
                                                for path, content in forest.items()})  # fmt: skip
        before = trees.told(source)
        with World(recipe, source, rules, place) as world:
            root, found = world.run(look)
        assert trees.told(source) == before
        compare(source, forest, rules, root, found)
    finally:
        shutil.rmtree(place)


def compare(source, forest, rules, root, found):
    level, wanted = expected(forest, rules)
    assert found.keys() == wanted.keys()
    assert root == (level == "write")
    for path, (level, content) in wanted.items():
        if content is None:
            assert found[path] == ("directory", None, None, None, level == "write")
        elif isinstance(content, tuple):
            target = content[0] if level != "view" else "?" * len(content[0])
            assert found[path][:2] == ("link", target)
        else:
            modified = os.lstat(f"{source}/{path}").st_mtime_ns
            readable = content if level in ("read", "write") else None
            assert found[path] == ("file", readable, len(content), modified, level == "write")


PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@thorough.examples(400, 200)
@given(rules=RULES, path=PATHS, below=PATHS)
@example(rules=[{"pattern": "a", "level": "none"}], path="a", below="b")
def test_nothing_is_visible_below_what_hides_all(rules, path, below):
    matcher = Matcher(rules)
    if matcher.hides_all_below(path):
        assert matcher.level(path) == "none"
        assert matcher.level(f"{path}/{below}") == "none"


def test_what_hides_all_is_known():
    hiding = {"pattern": ".git", "level": "none", "priority": 1}
    assert Matcher([("**", "read"), hiding]).hides_all_below("x/.git")
    assert not Matcher([("**", "read"), hiding]).hides_all_below("x")
    shown = {"pattern": "config", "level": "read", "priority": 2}
    assert not Matcher([("**", "read"), hiding, shown]).hides_all_below(".git")
    assert not Matcher([("a", "read")]).hides_all_below("b"), "no rule matches it, but one may below"
