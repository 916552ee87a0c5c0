"""Ignores against git itself, which is asked about every path of a repository that was made for it."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from atoll.errors import InvalidInput
from atoll.policy.ignores import Ignores, check_ignore

NAMES = ["a", "b", "ab", "b ", "#a", "!a", "[", "a]", "a\\", ".a", "a\nb", "é", "\udcff", "*"]
PIECES = [
    "a", "b", "c", ".", "*", "*", "**", "***", "?", "/", "/", "/**/", "**/", "\\", "\\*", " ", "\\ ", "!", "#", "-",
    "é", "[ab]", "[!a]", "[^b]", "[]a]", "[a-c]", "[b-a]", "[", "]", "[a-", "[[:alpha:]]", "[[:x:]]", "[[:a]", "[é]",
    "\\/",
]  # fmt: skip
patterns = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)


class Repository:
    def __init__(self, top):
        self.top = top
        self.env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        subprocess.run(["git", "init", "-q", top], check=True, env=self.env)
        self.entries = []
        self._fill("", 0)
        os.symlink("a", f"{top}/link")
        self.entries.append(("link", False))

    def _fill(self, above, depth):
        for number, name in enumerate(NAMES[depth * 2 :]):
            path = above + name
            if depth < 3 and number % 3 == 0:
                os.mkdir(f"{self.top}/{path}")
                self.entries.append((path, True))
                self._fill(f"{path}/", depth + 1)
            else:
                with open(f"{self.top}/{path}", "w"):
                    self.entries.append((path, False))

    def ignored_by_git(self, lines):
        with open(f"{self.top}/.gitignore", "wb") as file:
            file.write(b"".join(os.fsencode(line) + b"\n" for line in lines))
        paths = b"".join(os.fsencode(path) + b"\0" for path, _ in self.entries)
        words = ["git", "-C", self.top, "check-ignore", "-z", "-v", "-n", "--stdin", "--no-index"]
        done = subprocess.run(words, input=paths, capture_output=True, check=False, env=self.env)
        fields = done.stdout.split(b"\0")[:-1]
        # By fours: the file, the line, the pattern that decides, if there is one, and the path.
        return {
            os.fsdecode(fields[at + 3]) for at in range(0, len(fields), 4)
            if fields[at] and not fields[at + 2].startswith(b"!")
        }  # fmt: skip


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return Repository(str(tmp_path_factory.mktemp("repository")))


def ignored(repository, lines):
    ignores = Ignores(lines)
    return {path for path, directory in repository.entries if ignores.ignored(path, directory)}


def test_the_repository_has_paths_of_every_sort(repository):
    assert len(repository.entries) > 100
    assert repository.ignored_by_git(["*"]) == {path for path, _ in repository.entries}
    assert repository.ignored_by_git([]) == set()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(patterns, min_size=1, max_size=4))
@example(lines=["a", "!a/b"])
@example(lines=["/*", "!/a"])
@example(lines=["a/**", "!a/ab/"])
@example(lines=["a**/b"])
@example(lines=["link/"])
@example(lines=["//"])
@example(lines=["b\\ ", "b "])
@example(lines=["\\#a", "\\!a", "#b"])
@example(lines=["[b-a]", "[[:]"])
@example(lines=["a\r", "\r"])
@example(lines=["!", "/", " ", "", "\\"])
def test_git_ignores_the_same(repository, lines):
    assert ignored(repository, lines) == repository.ignored_by_git(lines)


def test_what_is_below_an_ignored_directory_cannot_be_had_back():
    ignores = Ignores(["build/", "!build/keep.txt", "logs/*", "!logs/keep.txt"])
    assert ignores.ignored("build", directory=True)
    assert ignores.ignored("build/keep.txt", directory=False)
    assert ignores.ignored("logs/a.txt", directory=False)
    assert not ignores.ignored("logs/keep.txt", directory=False)
    assert not ignores.ignored("build", directory=False), "a file of that name is no directory"
    assert not ignores.ignored("", directory=True)


def test_what_was_once_found_is_found_again_beyond_what_is_remembered(monkeypatch):
    monkeypatch.setattr("atoll.policy.ignores.MOST_REMEMBERED", 5)
    ignores = Ignores(["x", "!a/b/x"])
    for _ in range(2):
        for number in range(20):
            assert ignores.ignored(f"d{number}/e/x/y", directory=False)
            assert not ignores.ignored(f"d{number}/e/y", directory=False)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("*.pyc", "give a list of patterns"),
        (None, "ignore is None"),
        (1, "ignore is 1"),
        ([1], "ignore has 1, an int"),
        (["a\nb"], "a pattern is one line"),
        (["a\0b"], "a pattern is one line"),
        (["\ud800"], "half a surrogate pair"),
        (["a" * 5000], "at most 4096"),
        (["a"] * 10_001, "at most 10000"),
    ],
)
def test_what_cannot_be_in_a_gitignore_is_refused(wrong, words):
    with pytest.raises(InvalidInput) as caught:
        check_ignore(wrong)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "pattern", ["**/a**/a**/a**/x", "*a*a*a*a*a*a*a*x", "a/**/" * 12 + "x", "a**/a**/a**/a**/a**/x"]
)
def test_a_hostile_pattern_on_a_name_eight_times_longer_takes_no_more_than_its_square(pattern):
    ignores = Ignores([pattern])

    def seconds(length):
        best = 9.0
        for _ in range(3):
            begin = time.thread_time()
            ignores._of_files.ignores(("a/" if "/**/" in pattern else "a") * length + "b")
            best = min(best, time.thread_time() - begin)
        return best

    assert seconds(4000) < 200 * max(seconds(500), 1e-5)
