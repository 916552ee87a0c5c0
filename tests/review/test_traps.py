"""What git and other tools would run on the host by themselves is never brought over."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.review import apply
from atoll.review.traps import springs, starts


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".git/hooks/pre-commit",
        ".git/hooks",
        "sub/.git/config",
        ".GIT/config",
        ".g\u200dit/config",
        "GIT~1/config",
        ".git/rebase-merge/git-rebase-todo",
        ".git/sequencer/todo",
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


@pytest.mark.parametrize(
    "path",
    [
        "atoll.toml",
        "deep/down/atoll.toml",
        "ATOLL.toml",
        ".mcp.json",
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".claude/hooks/pre.sh",
        ".Claude/settings.json",
        "packages/web/.cursor/mcp.json",
        ".vscode/mcp.json",
        ".vscode/tasks.json",
        ".vscode/settings.json",
        ".vscode/launch.json",
        ".vscode",
        "all.code-workspace",
        ".devcontainer/devcontainer.json",
        ".devcontainer.json",
        ".idea/workspace.xml",
        ".husky/pre-commit",
        ".envrc",
        "sub/.envrc",
        "mise.toml",
        ".dir-locals.el",
        ".hg/hgrc",
        ".sl/config",
        ".jj/repo/config.toml",
        ".helix/languages.toml",
        ".kilocode/mcp.json",
        ".qwen/settings.json",
        ".crush.json",
        ".rvmrc",
        ".vim/init.vim",
        "all.sublime-project",
        "_darcs/prefs/prefs",
        ".v\u017fcode/tasks.json",
        ".v\u200cscode/tasks.json",
        ".\uff36scode/tasks.json",
        ".v\ufe0fscode/tasks.json",
        ".vscode /tasks.json",
        ".vscode./tasks.json",
        "sitecustomize.py",
        "src/usercustomize/__init__.py",
        ".venv/lib/python3.11/site-packages/x.pth",
        ".venv/pyvenv.cfg",
    ],
)
def test_what_a_tool_starts_by_itself_is_known(path):
    assert starts(path, directory=False)


@pytest.mark.parametrize(
    "path",
    [
        "atoll.toml.md",
        "claude/settings.json",
        "mcp.json",
        "vscode",
        "tasks.json",
        "Makefile",
        ".env",
        ".zshrc",
        "model.pth",
    ],
)
def test_what_waits_for_somebody_to_run_it_may_pass(path):
    assert not starts(path, directory=False)


def test_a_directory_that_is_still_empty_starts_nothing():
    assert not starts(".vscode", directory=True)
    assert starts(".vscode/inner", directory=True)


def test_an_apply_leaves_them_out_and_says_why(overlay):
    overlay.in_source(".vscode/settings.json", "{}\n")
    overlay.in_source(".mcp.json", "{}\n")
    overlay.start()
    hostile = (".vscode/settings.json", ".mcp.json", "sub/atoll.toml", ".claude/settings.json", ".git/hooks/pre-commit")
    for path in (*hostile, "app.py"):
        overlay.in_merged(path, "changed\n")
    overlay.shell("ln -s sub .cursor")
    done, source = apply(overlay.stage, new_hidden=True), Path(overlay.source)
    assert set(done.rejected) == {*hostile, ".cursor", ".git/hooks"}
    assert all("would run commands from it" in reason for reason in done.rejected.values())
    assert "app.py" in done.applied
    assert (source / ".mcp.json").read_text() == "{}\n"
    assert not (source / ".claude/settings.json").exists()
    overlay.shell("rm .mcp.json")
    assert apply(overlay.stage).applied == (".mcp.json",), "what is gone starts nothing"


def test_a_hidden_name_that_the_source_does_not_have_needs_a_word_of_its_own(overlay):
    """Whatever the next assistant calls its directory."""
    overlay.in_source(".github/workflows/one.yml", "1\n")
    overlay.in_source(".lintrc", "1\n")
    overlay.start()
    ordinary = (".gitignore", "pkg/.gitkeep", ".github/workflows/two.yml", ".lintrc", "app.py")
    new = (".nextassistant/mcp.json", ".nextrc", "pkg/.deep/settings", ".gitignore.d/x")
    for path in (*ordinary, *new):
        overlay.in_merged(path, "changed\n")
    overlay.shell("ln -s app.py .alias")
    source = Path(overlay.source)
    done = apply(overlay.stage)
    assert {*ordinary} <= set(done.applied)
    assert {*new, ".nextassistant", "pkg/.deep", ".gitignore.d", ".alias"} == set(done.rejected)
    assert all("new_hidden" in reason for reason in done.rejected.values())
    assert "no .nextassistant yet" in done.rejected[".nextassistant/mcp.json"]
    assert not any((source / path).exists() for path in new)
    done = apply(overlay.stage, new_hidden=True)
    assert {*new} <= set(done.applied)
    assert not done.rejected
    overlay.in_merged(".nextrc", "again\n")
    assert apply(overlay.stage).applied == (".nextrc",), "the source has it now"


def test_the_state_directory_is_changed_by_nobody_even_where_a_source_holds_it(overlay):
    overlay.in_source("state/trusted.json", "{}\n")
    overlay.start()
    overlay.in_merged("state/trusted.json", "mine\n")
    overlay.in_merged("statement", "1\n")
    stage = overlay.stage._replace(state=f"{overlay.source}/state/reviews")
    done = apply(stage)
    assert done.applied == ("statement",)
    assert "state directory" in done.rejected["state/trusted.json"]
    assert "state/trusted.json" in apply(overlay.stage).applied, "elsewhere it is a file as others are"


def test_a_directory_that_nobody_asked_for_makes_no_repository(overlay):
    """It is made because of a file in it, and was the last part of one."""
    overlay.start()
    for name in ("HEAD", "config", "refs/k"):
        overlay.in_merged(f"x/{name}", "")
    assert "x/HEAD" in apply(overlay.stage).applied
    for name in ("objects/k", "plain/k"):
        overlay.in_merged(f"x/{name}", "")
    done = apply(overlay.stage, ["x/objects/k", "x/plain/k"])
    assert list(done.rejected) == ["x/objects/k"]
    assert done.applied == ("x/plain", "x/plain/k")
    assert not (Path(overlay.source) / "x/objects").exists()
