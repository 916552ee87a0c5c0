"""Shells as contexts: what lasts from cell to cell, exit codes, and the ends of cells and shells."""

import os
import pathlib
import shutil
import time

import pytest
from tests import thorough
from tests.guest.rawclient import eventually
from tests.guest.support import alive, failure, put


@pytest.fixture(params=["bash", *thorough.turns(["sh", "zsh"])])
def shell(request, client):
    if shutil.which(request.param) is None:
        pytest.skip(f"there is no {request.param} here")

    def run(code, **arguments):
        ended = client.do("code", code=code, language=request.param, context="shell", **arguments)
        assert ended.error is None, ended.error
        return ended

    run.name = request.param
    run.client = client
    return run


def said(ended):
    assert ended.ok["exit_code"] == 0, (ended.ok, ended.stderr)
    return ended.stdout.decode()


def test_directory_variables_functions_and_aliases_last(shell):
    said(shell("mkdir -p sub; cd sub; x=1; export y=2; f() { echo $x $y; }; alias hello='echo hi'"))
    assert said(shell("f")) == "1 2\n"
    assert said(shell("hello")) == "hi\n"
    assert said(shell("basename \"$PWD\"; sh -c 'echo $x $y'")) == "sub\n2\n"


def test_options_and_traps_last(shell):
    said(shell("set -o noglob; trap 'echo bye' EXIT"))
    assert said(shell("echo *")) == "*\n"
    ended = shell("exit 0")
    assert (ended.ok["exit_code"], ended.stdout) == (0, b"bye\n")


def test_a_sourced_file_changes_the_shell(guest, shell):
    put(guest, "activate", b"PS1='(env) '; VIRTUAL=yes; export VIRTUAL; deactivate() { unset VIRTUAL; }\n")
    assert said(shell(". ./activate")) == ""
    assert said(shell("sh -c 'echo $VIRTUAL'")) == "yes\n"
    ended = shell("deactivate; echo ${VIRTUAL-gone}")
    assert (ended.stdout, ended.stderr) == (b"gone\n", b""), "the prompt is nobody's output"


def test_stdout_and_stderr_are_apart(shell):
    ended = shell("echo out; echo err >&2; printf 'no newline'")
    assert (ended.stdout, ended.stderr) == (b"out\nno newline", b"err\n")


def test_the_exit_code_of_each_cell_is_told_and_is_the_next_ones(shell):
    ended = shell("echo trouble >&2; (exit 7)")
    assert ended.ok["exit_code"] == 7
    assert failure(ended) == {"name": "ExitCode", "value": "exit code 7", "traceback": "trouble\n"}
    assert said(shell("echo $?")) == "7\n"
    assert said(shell("echo $?")) == "0\n"
    assert failure(shell("true")) is None


@pytest.mark.parametrize("code", ['echo "unbalanced', "echo 'unbalanced", "if then )", "for", "echo $(", "}"])
def test_a_syntax_error_is_told_and_the_shell_goes_on(shell, code):
    shell("x=kept")
    ended = shell(code)
    assert ended.ok["exit_code"] not in (0, None)
    assert ended.stderr != b""
    assert said(shell("echo $x")) == "kept\n"


def test_many_lines_and_here_documents(shell):
    code = "for i in 1 2; do\n  echo $i\ndone\n"
    code += "cat <<'END'\nit's \"$here\" \\\\\nEND\ncat <<END\n$((1 + 1))\nEND\n# the end"
    assert said(shell(code)) == '1\n2\nit\'s "$here" \\\\\n2\n'


def test_text_passes_unchanged(shell):
    text = 'it\'s "quoted", `ticked`, $HOME, !history, \\ slashed, ünïcödé'
    assert said(shell(f"cat <<'END'\n{text}\nEND")) == text + "\n"
    assert said(shell("")) == ""
    assert said(shell("# nothing")) == ""


def test_bytes_that_are_no_text_pass(shell):
    assert shell("printf 'a\\000b\\377'").stdout == b"a\0b\xff"
    assert shell("printf '\udcff' | od -An -tx1").stdout.split() == [b"ff"]


@pytest.mark.parametrize("size", [200_000, 10_000_000])
def test_much_output_comes_whole(shell, size):
    assert len(shell(f"head -c {size} /dev/zero").stdout) == size


def test_a_long_command_comes_whole(shell):
    assert said(shell("x='%s'; echo ${#x}" % ("y" * 300_000))) == "300000\n"


def test_a_command_has_no_input_and_none_of_our_descriptors(shell):
    assert said(shell("cat; read line || echo none")) == "none\n"
    fds = shell("ls /proc/self/fd").stdout.split()
    assert fds == [b"0", b"1", b"2", b"3"], "the fourth is that of the listing"
    assert said(shell("readlink /proc/self/fd/0")) == "/dev/null\n"


def test_descriptors_that_the_user_opens_last(shell):
    said(shell("exec 3>note; echo first >&3"))
    said(shell("echo second >&3; exec 3>&-"))
    assert said(shell("cat note")) == "first\nsecond\n"


def test_a_command_in_the_background_holds_nothing_up_and_goes_on(shell):
    ended = shell("sleep 60 & echo $!")
    assert ended.stderr == b""
    pid = int(said(ended))
    # An interactive shell ignores SIGTERM, and so does what it has forked and is not the program yet.
    eventually(lambda: pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
    assert said(shell("kill $!; wait $! 2>/dev/null; echo $?")) == "143\n"


def test_what_the_background_says_later_comes_with_the_next_cell(guest, shell):
    said(shell("(while [ ! -e go ]; do sleep 0.01; done; echo late; : > told) &"))
    put(guest, "go")
    eventually(lambda: os.path.exists(os.path.join(guest.workspace, "told")))
    assert said(shell("echo now")) == "late\nnow\n"


@pytest.mark.parametrize(
    "code", ["sleep 60; echo after", "while :; do :; done; echo after", "sleep 60 | cat; echo after"]
)
def test_a_timeout_stops_the_whole_list_and_keeps_the_state(shell, code):
    shell("x=kept; cd /usr")
    ended = shell("echo before; " + code, timeout=0.3)
    assert (ended.ok["timed_out"], ended.ok["state_lost"]) == (True, False)
    assert ended.stdout == b"before\n"
    assert said(shell("echo $x $PWD")) == "kept /usr\n"


def test_a_timeout_kills_what_ignores_it_and_keeps_the_state(shell):
    shell("x=kept")
    stubborn = "trap '' INT; while :; do sleep 0.05; done"
    ended = shell(f'sh -c "echo \\$\\$; {stubborn}"', timeout=0.3)
    assert (ended.ok["timed_out"], ended.ok["state_lost"]) == (True, False)
    assert not alive(int(ended.stdout))
    assert said(shell("echo $x")) == "kept\n"


def test_a_timeout_kills_what_the_cell_has_started_and_nothing_earlier(shell):
    earlier = int(said(shell("sleep 60 & echo $!")))
    # The kernel tells when a process began in hundredths of a second; in doubt it is the later cell's.
    time.sleep(0.05)
    ended = shell("setsid sleep 60 & echo $!; sleep 60", timeout=0.5)
    assert ended.ok["timed_out"] is True
    assert not alive(int(ended.stdout))
    assert alive(earlier)


def test_a_shell_that_ignores_everything_is_killed_and_the_loss_is_told(shell):
    shell("x=kept")
    ended = shell("trap '' INT; while :; do :; done", timeout=0.2)
    assert (ended.ok["timed_out"], ended.ok["state_lost"]) == (True, True)
    fresh = shell("echo ${x-lost}")
    assert (fresh.stdout, fresh.ok["state_lost"]) == (b"lost\n", False)


def test_interrupt_and_cancel(shell):
    shell("x=kept")
    client = shell.client
    channel = client.open("code", code="echo up; sleep 60; echo after", context="shell")
    client.receive()
    assert client.do("interrupt", context="shell").ok == {"interrupted": True}
    ended = client.finish(channel)
    assert (ended.ok["exit_code"], ended.ok["timed_out"], ended.stdout) == (130, False, b"")
    channel = client.open("code", code="echo up; sleep 60", context="shell")
    client.receive()
    client.cancel(channel)
    client.finish(channel)
    assert said(shell("echo $x")) == "kept\n"
    assert client.do("interrupt", context="shell").ok == {"interrupted": False}


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("exit 3", 3), ("exit", 0), ("exec sh -c 'exit 4'", 4), ("kill -9 $$", 137), ("set -e; false; echo no", 1)],
)
def test_a_shell_that_ends_is_told_with_its_code_and_the_next_cell_has_a_fresh_one(shell, code, exit_code):
    shell("x=kept")
    ended = shell("echo last; " + code)
    assert (ended.ok["exit_code"], ended.ok["state_lost"]) == (exit_code, True)
    assert (ended.stdout, ended.stderr) == (b"last\n", b"")
    assert said(shell("echo ${x-lost}")) == "lost\n"


def test_a_shell_that_dies_between_cells_is_told_with_the_next(shell):
    said(shell("(while [ ! -e go ]; do sleep 0.01; done; kill -9 $$) & echo $$ > pid"))
    pid = int(said(shell("cat pid")))
    said(shell(": > go"))
    eventually(lambda: not alive(pid))
    fresh = shell("echo fresh")
    assert (fresh.stdout, fresh.ok["state_lost"]) == (b"fresh\n", True)


def test_env_and_cwd_are_the_contexts(guest, client):
    os.mkdir(os.path.join(guest.workspace, "sub"))
    made = client.do("create_context", context="c", language="bash", cwd="sub", env={"FOO": "a b"})
    assert made.ok["context"]["language"] == "bash"
    assert client.do("code", context="c", code="basename $PWD; echo $FOO").stdout == b"sub\na b\n"
    refused = client.do("code", context="c", code="1", cwd=".")
    assert refused.error["code"] == "unsupported"
    assert "use `cd`" in refused.error["message"]


@pytest.mark.parametrize("language", ["bash", "sh", "zsh"])
def test_env_is_that_of_one_cell(client, language):
    if shutil.which(language) is None:
        pytest.skip(f"there is no {language} here")

    def run(code, **given):
        return client.do("code", context=language, language=language, code=code, **given)

    run("A=old; false")
    env = {"A": 'it\'s "1" $HOME\n`2`', "NEW": "ü"}
    ended = run('echo "$?|$A|$NEW"; env | grep ^NEW; KEPT=1; A=changed', env=env)
    assert ended.stdout.decode() == f"1|{env['A']}|ü\nNEW=ü\n"
    assert run('echo "$A ${NEW-none} $KEPT"; env | grep -c ^NEW').stdout == b"old none 1\n0\n"
    assert run("echo $NEW; cd /; exit_in() { return 3; }; exit_in", env={"NEW": "2"}).ok["exit_code"] == 3
    assert run("pwd; echo ${NEW-none}").stdout == b"/\nnone\n"
    assert run("1", env={"A-B": "1"}).error["code"] == "unsupported"


def test_restart_makes_a_fresh_shell_and_delete_ends_all(client):
    pid = int(client.do("code", language="bash", context="c", code="x=1; sleep 60 & echo $!").stdout)
    assert client.do("restart_context", context="c").error is None
    assert not alive(pid)
    ended = client.do("code", context="c", code="echo ${x-lost}; sleep 60 & echo $!")
    lost, pid = ended.stdout.split()
    assert (lost, ended.ok["state_lost"]) == (b"lost", False)
    assert client.do("delete_context", context="c").error is None
    assert not alive(int(pid))


def test_shells_share_nothing_and_run_at_once(client):
    slow = client.open("code", code="sleep 60", language="bash", context="a")
    assert client.do("code", code="x=1; echo ok", language="bash", context="b").stdout == b"ok\n"
    client.cancel(slow)
    client.finish(slow)
    assert client.do("code", code="echo ${x-none}", context="a").stdout == b"none\n"


def test_variables_of_a_shell_are_refused(client):
    client.do("code", code="x=1", language="bash", context="c")
    refused = client.do("ask", context="c", request={"do": "variables"})
    assert refused.error["code"] == "unsupported"


def test_an_unknown_language_is_refused_with_those_there_are(client):
    refused = client.do("code", code="1", language="klingon")
    assert refused.error["code"] == "invalid_input"
    assert "bash" in refused.error["message"]
    assert "jupyter:KERNEL" in refused.error["message"]


def test_a_missing_shell_is_refused_with_the_way_to_get_it(client):
    refused = client.do("create_context", context="c", language="bash", env={"PATH": "/nowhere"})
    assert refused.error["code"] == "unsupported"
    assert "apt-get install bash" in refused.error["message"]
