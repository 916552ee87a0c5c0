from __future__ import annotations

import io
import threading
import time
from pathlib import Path

import pytest

from atoll import CommandFailed, CommandTimedOut, Completed, InvalidInput, InvalidPath, Sandbox
from atoll.errors import command_failed


def test_text_goes_to_a_shell_and_a_list_is_a_program_with_its_arguments(sandbox):
    assert sandbox.run("echo $((1 + 1))").stdout == "2\n"
    assert sandbox.run(["echo", "$((1 + 1))", Path("a b"), b"c"]).stdout == "$((1 + 1)) a b c\n"


def test_a_command_that_fails_is_data(sandbox):
    done = sandbox.run("echo out; echo err >&2; exit 3")
    assert (done.exit_code, done.stdout, done.stderr, done.success) == (3, "out\n", "err\n", False)
    assert sandbox.run("true").success


def test_check_turns_a_failure_into_an_error_that_tells_the_rest(sandbox):
    with pytest.raises(CommandFailed, match="exited with 3: oops") as caught:
        sandbox.run("echo out; echo oops >&2; exit 3", check=True)
    assert caught.value.completed.stdout == "out\n"
    assert sandbox.run("true", check=True).exit_code == 0


def test_a_checked_command_whose_time_is_over_is_an_error_of_its_own(sandbox):
    with pytest.raises(CommandTimedOut, match=r"ran out of time after 0\.3 s: echo out; .*; sleep 60\n") as caught:
        sandbox.run("echo out; echo oops >&2; sleep 60", timeout=0.3, check=True)
    error = caught.value
    assert (error.exit_code, error.stdout, error.stderr) == (124, "out\n", "oops\n")
    assert isinstance(error, CommandFailed | TimeoutError)
    with pytest.raises(CommandTimedOut, match=r"out of time after 0\.2 s: sleep 60\n"), sandbox.session() as session:
        session.run("sleep 60", timeout=0.2, check=True)
    with pytest.raises(CommandFailed) as caught:
        sandbox.run("exit 3", check=True)
    assert not isinstance(caught.value, TimeoutError)


def test_the_error_of_a_command_that_was_killed_for_its_memory_says_so(sandbox):
    error = command_failed(Completed(137, "", "Killed\n", 1.0, out_of_memory=True))
    assert str(error) == "The command was killed for its memory: Killed"
    assert not sandbox.run("kill -9 $$").out_of_memory


@pytest.fixture
def walled():
    with Sandbox.create("jail", resources={"memory": "64M"}) as made:
        yield made


def test_a_failure_has_a_hint_where_more_is_known_than_the_command_said(walled):
    sandbox = walled
    lookup = "echo 'Could not resolve host: x' >&2; exit 6"
    offline = sandbox.run(lookup)
    assert offline.hint.startswith("This sandbox has no network; network='all'")
    with sandbox.stream(lookup) as output:
        assert [chunk.text for chunk in output]
        assert output.result.hint == offline.hint
    assert sandbox.start(lookup).wait().hint == offline.hint
    with sandbox.session() as session:
        assert session.run("(" + lookup + ")").hint == offline.hint
    assert sandbox.run("curl() { return 6; }; curl -s x").hint == offline.hint, "one that says nothing itself"
    assert sandbox.run(f"{lookup}\n".replace("6", "0")).hint is None, "it has not failed"
    assert sandbox.run("echo network; exit 1").hint is None
    with pytest.raises(CommandFailed) as caught:
        sandbox.run(lookup, check=True)
    assert caught.value.hint == offline.hint
    assert str(caught.value).endswith(f": Could not resolve host: x\n{offline.hint}")

    starved = sandbox.run(["python3", "-c", "x = 'a' * 10**9"])
    assert starved.out_of_memory
    assert starved.hint.startswith("This sandbox has 64M of memory; resources=")
    assert sandbox.run("sleep 60", timeout=0.2).hint == "A longer timeout= (-t) gives it more time."
    silent = sandbox.run("npx() { sleep 60; }; npx x", timeout=0.2).hint
    assert silent == f"A longer timeout= (-t) gives it more time. {offline.hint}"


def test_blank_lines_in_a_command_that_fails_take_no_time_to_look_through(sandbox):
    began = time.process_time()
    assert sandbox.run("\n" * 100_000 + "exit 3").exit_code == 3
    assert time.process_time() - began < 10


def test_magics_of_cells_work_behind_a_wall(walled):
    done = walled.run_code("%cd /tmp\n!echo in $PWD; exit 3\n%time _exit_code * 14")
    assert (done.error, done.text) == (None, "42")
    assert done.stdout.splitlines()[:2] == ["/tmp", "in /tmp"]
    refused = walled.run_code("%pip install six")
    assert (refused.error.name, "sb.install" in refused.error.value) == ("RuntimeError", True)
    assert refused.duration < 20


def test_a_wall_that_leaves_the_network_open_has_no_hint_of_one(make):
    assert make().run("echo Could not resolve host; exit 6").hint is None


def test_commands_run_one_after_the_other(sandbox):
    done = sandbox.run_many(["echo $A > many", ["false"], "cat many"], env={"A": "first"})
    assert [(each.exit_code, each.stdout) for each in done] == [(0, ""), (1, ""), (0, "first\n")]
    with pytest.raises(CommandFailed):
        sandbox.run_many(["rm many", "exit 3", "touch many"], check=True)
    assert not sandbox.files.exists("many")
    with pytest.raises(InvalidInput, match="give a list of commands"):
        sandbox.run_many("ls")


def test_the_default_timeout_can_be_changed_for_all_who_use_it(make):
    sandbox = make(timeout=60)
    other = Sandbox.connect(sandbox.id)
    other.set_timeout(0.2)
    assert other.run("sleep 60").timed_out
    assert not sandbox.run("sleep 0.4").timed_out, "one that was found before keeps what it knew"
    assert Sandbox.connect(sandbox.id).info.spec.timeout == 0.2
    other.set_timeout(None)
    assert not other.run("sleep 0.4").timed_out
    with pytest.raises(InvalidInput):
        other.set_timeout(0)


def test_a_signal_shows_in_the_exit_code(sandbox):
    assert sandbox.run("kill -TERM $$").exit_code == 143


@pytest.mark.parametrize(
    "stdin",
    [
        "grüße",
        "grüße".encode(),
        io.BytesIO("grüße".encode()),
        io.StringIO("grüße"),
        ["grü", "ße"],
        iter([b"gr", "üße"]),
    ],
    ids=["text", "bytes", "binary file", "text file", "list", "iterator"],
)
def test_stdin_is_whatever_can_be_read(sandbox, stdin):
    assert sandbox.run("cat", stdin=stdin).stdout == "grüße"


def test_without_stdin_a_command_sees_its_end_at_once(sandbox):
    assert sandbox.run("cat; echo done").stdout == "done\n"


def test_stdin_and_output_far_beyond_the_window_flow_at_the_same_time(sandbox):
    data = b"0123456789abcde\n" * (8 << 16)
    done = sandbox.run("cat; echo end >&2", stdin=data)
    assert len(done.stdout) == len(data) == 8 << 20
    assert done.stdout.encode() == data
    assert done.stderr == "end\n"
    assert not done.truncated


def test_a_command_that_says_nothing_until_it_has_read_everything_gets_everything(sandbox):
    assert sandbox.run("cat > big; wc -c < big; rm big", stdin=b"x" * (5 << 20)).stdout.strip() == str(5 << 20)


def test_a_command_that_does_not_read_its_input_ends_all_the_same(sandbox):
    def endless():
        while True:
            yield b"x" * 65536

    assert sandbox.run("echo ready", stdin=endless()).stdout == "ready\n"


def test_an_error_of_the_input_ends_the_command_and_reaches_the_caller(sandbox, eventually):
    def broken():
        yield b"first"
        raise RuntimeError("the source dried up")

    with pytest.raises(RuntimeError, match="dried up"):
        sandbox.run("cat; sleep 1000.125", stdin=broken())
    eventually(lambda: not any("1000.125" in process.command for process in sandbox.processes()))


def test_env_and_workdir_are_for_one_command(sandbox):
    sandbox.files.mkdir("sub")
    done = sandbox.run('echo "$WORD"; basename "$PWD"', env={"WORD": "a  b\n=ü"}, workdir="sub")
    assert done.stdout == "a  b\n=ü\nsub\n"
    assert sandbox.run('echo "$WORD"').stdout == "\n"


def test_a_workdir_that_is_not_there_is_an_error(sandbox):
    with pytest.raises(FileNotFoundError):
        sandbox.run("true", workdir="missing")


def test_a_program_that_is_not_there_ends_with_127(sandbox):
    assert sandbox.run("no-such-program").exit_code == 127
    done = sandbox.run(["no-such-program"])
    assert done.exit_code == 127
    assert "no-such-program" in done.stderr


def test_a_timeout_kills_the_whole_tree_and_keeps_the_output(sandbox, eventually):
    done = sandbox.run("echo before; (sleep 1000.25 &) ; sleep 1000.25", timeout=0.5)
    assert (done.timed_out, done.exit_code, done.stdout, done.success) == (True, 124, "before\n", False)
    eventually(lambda: not any("1000.25" in process.command for process in sandbox.processes()))


def test_the_default_timeout_is_the_sandboxes_own(make):
    assert make(timeout=0.3).run("sleep 1000").timed_out


def test_output_beyond_the_limit_is_cut_and_said_to_be(sandbox):
    done = sandbox.run("head -c 300000 /dev/zero | tr '\\0' x; echo err >&2", max_output=100_000)
    assert len(done.stdout) + len(done.stderr) == 100_000
    assert done.truncated
    assert done.exit_code == 0
    assert not sandbox.run("echo x", max_output=2).truncated


def test_output_that_is_not_utf8_can_always_be_printed(sandbox):
    done = sandbox.run(r"printf 'a\377b'; printf '\303' >&2")
    assert done.stdout == "a\ufffdb"
    assert done.stderr == "\ufffd"


def test_callbacks_hear_text_as_it_comes_and_never_half_a_character(sandbox):
    heard, complained = [], []

    def hear(text):
        heard.append(text)
        sandbox.files.write("go", "")

    done = sandbox.run(
        r"rm -f go; printf 'gr\303'; until [ -e go ]; do sleep 0.01; done; printf '\274nx\303'; echo oops >&2",
        on_stdout=hear,
        on_stderr=complained.append,
    )
    assert heard[0] == "gr"
    assert "".join(heard) == done.stdout == "grünx\ufffd"
    assert complained == ["oops\n"]


def test_output_is_heard_while_the_command_runs(sandbox):
    heard = []

    def answer(text):
        heard.append(text)
        sandbox.files.write("go", "")

    done = sandbox.run("rm -f go; echo ready; while [ ! -e go ]; do sleep 0.01; done; echo gone", on_stdout=answer)
    assert "".join(heard) == done.stdout == "ready\ngone\n"


def test_an_error_in_a_callback_ends_the_command_and_reaches_the_caller(sandbox, eventually):
    def refuse(text):
        raise TimeoutError(f"mine: {text.strip()}")

    with pytest.raises(TimeoutError, match="mine: ready"):
        sandbox.run("echo ready; sleep 1000.5", on_stdout=refuse)
    eventually(lambda: not any("1000.5" in process.command for process in sandbox.processes()))
    assert sandbox.run("echo alive").stdout == "alive\n"


def test_what_a_command_leaves_in_the_background_does_not_hold_it_up(sandbox):
    done = sandbox.run("sleep 1000.75 & echo $!", timeout=30)
    assert not done.timed_out
    pid = int(done.stdout)
    assert pid in [process.pid for process in sandbox.processes()]
    sandbox.signal(pid, 9)


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ([], "empty"),
        (["", "x"], "empty"),
        ("a\0b", "NUL"),
        (["a", 5], "arguments are text"),
        (7, "give text for a shell"),
        (b"true", "give text for a shell"),
        ("x" * 140_000, "the kernel takes at most"),
        (["echo"] + ["x" * 1000] * 3000, "stdin or as a file"),
        ("\ud800", "surrogate"),
    ],
)  # fmt: skip
def test_a_command_that_cannot_be_is_refused_with_a_sentence(sandbox, command, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        sandbox.run(command)


def test_the_longest_argument_that_the_kernel_takes_is_taken(sandbox):
    assert len(sandbox.run(["echo", "x" * 131_000]).stdout) == 131_001


@pytest.mark.parametrize(
    ("wishes", "complaint"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
        ({"env": {"A=B": "c"}}, "env"),
        ({"env": {"A": 1}}, "env"),
        ({"env": {"A": "x" * 200_000}}, "env"),
        ({"max_output": 0}, "max_output"),
        ({"stdin": 7}, "cannot be read"),
        ({"stdin": [7]}, "must give bytes"),
    ],
)
def test_a_wish_that_cannot_be_is_refused_with_a_sentence(sandbox, wishes, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        sandbox.run("cat", **wishes)


@pytest.mark.parametrize("workdir", ["", "a\0b", "x" * 5000])
def test_a_workdir_that_cannot_be_is_refused(sandbox, workdir):
    with pytest.raises(InvalidPath):
        sandbox.run("true", workdir=workdir)


def test_names_that_are_not_utf8_pass_both_ways(sandbox):
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    sandbox.run(["touch", name])
    assert name in [entry.name for entry in sandbox.files.list()]
    sandbox.run(["rm", b"caf\xe9"])
    assert not sandbox.files.exists(name)


def test_many_threads_share_one_sandbox(sandbox):
    answers = {}

    def work(number):
        for turn in range(10):
            answers[number, turn] = sandbox.run(f"echo {number} {turn}").stdout

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {(number, turn): f"{number} {turn}\n" for number in range(12) for turn in range(10)}


def test_links_are_used_again_and_few_stay_idle(sandbox):
    from atoll.client.links import MAX_IDLE

    for _ in range(5):
        sandbox.run("true")
    links = sandbox._core._links
    before = list(links._idle)
    sandbox.run("true")
    assert links._idle == before
    assert 0 < len(before) <= MAX_IDLE


def test_a_command_takes_the_arguments_that_its_kernel_takes(sandbox):
    whole = ["€" * 30_000] * 20
    done = sandbox.run(["sh", "-c", 'for each in "$@"; do printf %s "$each"; done | wc -c', "sh", *whole])
    assert done.stdout.strip() == str(20 * 90_000)
    too_much = sandbox.run(["true", *["x" * 100_000] * 20, *["x"] * 40_000])
    assert (too_much.exit_code, "too long" in too_much.stderr) == (126, True)
    with pytest.raises(InvalidInput, match="more than 2097152 bytes, which no kernel takes"):
        sandbox.run(["true", *["x" * 100_000] * 21])
