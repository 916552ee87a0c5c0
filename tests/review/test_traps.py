"""What git would run on the host is never brought over."""

from __future__ import annotations

import pytest

from atoll.review.traps import springs


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".git/hooks/pre-commit",
        ".git/hooks",
        "sub/.git/config",
        ".GIT/config",
        ".git/modules/lib/config",
        ".git/modules/lib/hooks/post-checkout",
        ".git/worktrees/w/config.worktree",
    ],
)
def test_commands_of_git_are_told_from_its_data(path):
    assert springs(path, directory=False)


@pytest.mark.parametrize(
    "path", [".git/objects/ab/cd", ".git/index", ".git/HEAD", "config", "hooks/x", ".github/config"]
)
def test_its_data_may_pass(path):
    assert not springs(path, directory=False)


def test_a_pointer_to_another_repository_is_one_and_a_directory_is_not():
    assert springs("lib/.git", directory=False)
    assert not springs("lib/.git", directory=True)
