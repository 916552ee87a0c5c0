"""Rules and paths for property tests, from so few characters that they often collide."""

from __future__ import annotations

from hypothesis import strategies as st

from atoll.errors import InvalidInput
from atoll.policy.rules import check_rules
from atoll.types import PathRule

LETTERS = "ab.\n\udcff"
names = st.text(st.sampled_from(LETTERS), min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
paths = st.lists(names, max_size=4).map("/".join)

pieces = st.sampled_from([*LETTERS, "a", "b", "*", "**", "?", "[ab]", "[!a]", "[a-b.]", "\\*", "/", "/", "/**/", "**/"])
globs = st.lists(pieces, min_size=1, max_size=6).map("".join)
levels = st.sampled_from(["none", "view", "read", "write"])
priorities = st.sampled_from([0, 0, 0, 1, -1])
literal_patterns = st.one_of(paths, paths.map("/{}".format), paths.map("{}/".format), st.just("*"), st.just("a/**"))


def is_right(rule):
    try:
        check_rules([rule])
    except InvalidInput:
        return False
    return True


rules = st.one_of(
    st.builds(PathRule, globs, levels, st.just("glob"), priorities),
    st.builds(PathRule, literal_patterns, levels, st.sampled_from(["glob", "directory", "file"]), priorities),
).filter(is_right)
