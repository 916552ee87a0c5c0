"""Languages by file: each cell is a whole program."""

import os
import shutil

import pytest
from tests.guest.rawclient import Guest
from tests.guest.support import failure

from atoll.guest.toolchains import FILE, LANGUAGES

PROGRAMS = {
    "go": """package main
import ("fmt"; "os")
func main() { fmt.Println("out"); fmt.Fprintln(os.Stderr, "err"); os.Exit(7) }""",
    "rust": """fn main() { println!("out"); eprintln!("err"); std::process::exit(7) }""",
    "java": """public class Any {
    public static void main(String[] a) { System.out.println("out"); System.err.println("err"); System.exit(7); }
}""",
    "r": """cat("out\\n"); cat("err\\n", file = stderr()); quit(status = 7)""",
}
BROKEN = {
    "go": "package main\nfunc main() { x }",
    "rust": 'fn main() { let x: i32 = "text"; }',
    "java": 'class Any { int x = "text"; public static void main(String[] a) {} }',
    "r": "cat(",
}
FILES = [language for language in LANGUAGES if language.kind == FILE]


@pytest.fixture
def client(tmp_path):
    """One that also finds a Rust of rustup's, which lies in somebody's home."""
    home = os.path.expanduser("~")
    env = {"PATH": os.environ["PATH"], "RUSTUP_HOME": f"{home}/.rustup", "CARGO_HOME": f"{home}/.cargo"}
    env["TMPDIR"] = str(tmp_path / "tmp")
    (tmp_path / "tmp").mkdir()
    guest = Guest(tmp_path, env=env)
    yield guest.connect()
    guest.close()


@pytest.mark.parametrize("language", FILES, ids=lambda language: language.name)
def test_each_language_runs_or_says_how_to_get_it(client, tmp_path, language):
    ended = client.do("code", code=PROGRAMS[language.name], language=language.name)
    if not all(map(shutil.which, language.tools)):
        assert ended.error["code"] == "unsupported"
        assert language.get in ended.error["message"]
        return
    assert (ended.stdout, ended.stderr) == (b"out\n", b"err\n")
    assert ended.ok["exit_code"] == 7
    assert failure(ended) == {"name": "ExitCode", "value": "exit code 7", "traceback": "err\n"}
    ended = client.do("code", code=BROKEN[language.name], language=language.name)
    assert ended.ok["exit_code"] == 1
    assert failure(ended)["name"] == ("ExitCode" if language.compile is None else "CompileError")
    assert failure(ended)["traceback"] in ended.stderr.decode()
    assert os.listdir(tmp_path / "tmp") == [], "nothing is left of a cell"


@pytest.fixture
def stand_in(tmp_path):
    """A guest whose `java` is a shell: what holds for the way programs are run needs no compiler."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "java").write_text('#!/bin/sh\nexec /bin/sh "$@"\n')
    (tools / "java").chmod(0o755)
    (tmp_path / "tmp").mkdir()
    guest = Guest(tmp_path, env={"PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(tmp_path / "tmp"), "A": "1"})
    client = guest.connect()

    def run(code, **arguments):
        return client.do("code", code=code, language="java", **arguments)

    run.client = client
    run.guest = guest
    yield run
    guest.close()


def test_a_program_runs_in_the_workspace_with_its_environment_and_no_input(stand_in):
    ended = stand_in("basename $PWD; echo $A $B; cat; ls /proc/self/fd", env={"B": "2"})
    assert ended.stdout.split() == [b"workspace", b"1", b"2", b"0", b"1", b"2", b"3"]
    os.mkdir(os.path.join(stand_in.guest.workspace, "sub"))
    assert stand_in("basename $PWD", cwd="sub").stdout == b"sub\n"


def test_nothing_lasts_but_files(stand_in):
    assert stand_in("x=1; echo $x > file").ok["exit_code"] == 0
    assert stand_in("echo ${x-none}; cat file").stdout == b"none\n1\n"
    assert stand_in("exit 3").ok["state_lost"] is False


def test_a_timeout_kills_the_program_with_what_it_started(stand_in, tmp_path):
    ended = stand_in("trap '' INT; echo up; sleep 60 & sleep 60", timeout=0.5)
    assert (ended.ok["timed_out"], ended.stdout) == (True, b"up\n")
    rows = stand_in.client.do("processes").ok["processes"]
    assert [row["command"] for row in rows if "sleep" in row["command"]] == []
    assert os.listdir(tmp_path / "tmp") == []
    assert stand_in("echo next").stdout == b"next\n"


# Not one long `sleep`: Debian's shell forgets a signal that comes while it starts a program, and then waits for that
# program's end.
WAITS = "echo up; while :; do sleep 0.1; done"


def test_interrupt_and_cancel(stand_in):
    client = stand_in.client
    channel = client.open("code", code=WAITS, language="java")
    client.receive()
    assert client.do("interrupt", context="main").ok == {"interrupted": True}
    assert client.finish(channel).ok["exit_code"] == 130
    channel = client.open("code", code=WAITS, language="java")
    client.receive()
    client.cancel(channel)
    client.finish(channel)
    assert client.do("interrupt", context="main").ok == {"interrupted": False}


def test_much_output_comes_whole(stand_in):
    assert len(stand_in("head -c 10000000 /dev/zero").stdout) == 10_000_000


def test_a_disk_that_takes_no_program_is_told(stand_in, tmp_path):
    (tmp_path / "tmp").rmdir()
    error = failure(stand_in("echo"))
    assert error["name"] == "FileError"
    assert "No such file or directory" in error["value"]
    (tmp_path / "tmp").mkdir()
    assert stand_in("echo back").stdout == b"back\n"
    assert failure(stand_in("\ud800"))["name"] == "InvalidInput"


def test_one_more_language_is_one_entry():
    names = [name for language in LANGUAGES for name in language.names]
    suffixes = [suffix for language in LANGUAGES for suffix in language.suffixes]
    assert len(set(names)) == len(names)
    assert len(set(suffixes)) == len(suffixes)
    assert all(name == name.lower() for name in names)
    assert all(language.get and language.needs and language.ready and language.program for language in LANGUAGES)
