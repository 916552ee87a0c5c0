"""`atoll completion`: what a shell offers after the Tab key."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from atoll import Sandbox, Snapshots
from atoll.cli import COMMANDS

from .test_command_line import loaded_by


@pytest.fixture
def offered(atoll):
    """The words that could stand in place of the last one, without what is said of them."""

    def ask(*words):
        done = atoll("completion", "words", "--", *words)
        assert (done.code, done.err) == (0, "")
        return [line.partition("\t")[0] for line in done.out.decode().splitlines()]

    return ask


def test_commands_are_completed_with_what_they_do(atoll, offered):
    assert offered("") == list(COMMANDS)
    assert atoll("completion", "words", "--", "sna").out.decode() == f"snapshot\t{COMMANDS['snapshot']}\n"
    assert offered("help", "dest") == ["destroy"]
    assert offered("nothing", "") == []


def test_ids_and_names_are_completed(atoll, kept, offered):
    Sandbox.connect(kept).snapshot("ready")
    try:
        for command in ("exec", "shell", "diff", "destroy", "resume"):
            assert offered(command, kept[:5]) == [kept]
        assert offered("stop", "sb-other", kept[:5]) == [kept], "of several"
        assert offered("diff", kept, "sb") == [], "of one"
        assert offered("rollback", kept, "r") == offered("snapshot", "show", "r") == ["ready"]
        assert offered("run", "--snapshot", "r") == ["ready"]
        assert offered("run", "--snapshot=r") == ["--snapshot=ready"]
        assert offered("run", "--snapshot", "=", "r") == ["ready"], "as bash takes it apart"
        assert offered("cp", kept[:5]) == [f"{kept}:", ":files"]
        assert f"{kept}\trunning, jail" in atoll("completion", "words", "--", "exec", "").out.decode()
    finally:
        Snapshots().delete("ready")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_offers_its_options(offered, atoll, name):
    options = offered(name, "--")
    assert "--help" in options
    help = atoll(name, "--help").out.decode()
    assert all(option in help for option in options)


def test_values_are_completed(offered):
    assert offered("run", "--driver", "ja") == offered("run", "-n", "-p", "ja") == ["jail"]
    assert offered("run", "--network", "") == ["none", "all", "host"]
    assert offered("run", "--source", "") == [":directories"]
    assert offered("run", "--memory", "") == []
    assert offered("snapshot", "") == ["create", "list", "show", "delete", "export", "import"]
    assert offered("completion", "z") == ["zsh"]


def test_after_the_first_word_of_a_command_files_are_completed(offered, kept):
    assert offered("run", "-t", "5", "") == [":files"]
    assert offered("run", "ls", "--") == offered("exec", kept, "ls", "--") == offered("run", "--", "--") == [":files"]
    assert offered("exec", "-l", "a=b", "l") == [":files"]
    assert "--timeout" in offered("exec", kept, "--")


def test_an_option_is_completed_without_the_client(atoll):
    modules = loaded_by(atoll, "completion", "words", "--", "run", "--dr")
    assert not modules & {"sqlite3", "socket", "shutil", "atoll.sync", "atoll.store"}
    assert "atoll.cli.run" in modules


_ASK = {
    "bash": 'eval "$(atoll completion bash)"; COMP_WORDS=(atoll exec "$0"); COMP_CWORD=2; _atoll\n'
    'echo "${COMPREPLY[0]}"',
    "zsh": "compdef() { :; }; _describe() { print -- ${${(P)3}[1]%%:*}; }\n"
    'eval "$(atoll completion zsh)"; words=(atoll exec $0); CURRENT=3; _atoll',
    "fish": 'atoll completion fish | source; complete -C "atoll exec $argv[1]" | cut -f 1',
}


@pytest.mark.parametrize("shell", _ASK)
def test_the_script_completes_in_its_shell(atoll, kept, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    path = f"{os.path.dirname(atoll.script)}:{os.environ['PATH']}"
    words = [shell, "-c", _ASK[shell], kept[:5]]
    done = subprocess.run(words, env=atoll.env(PATH=path), capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == kept, done.stderr


def test_another_shell_is_refused(atoll):
    assert "There is no script for 'tcsh'; say one of bash, zsh, fish." in atoll("completion", "tcsh").err
