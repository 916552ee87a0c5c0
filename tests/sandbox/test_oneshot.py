from __future__ import annotations

import pytest

from atoll import AtollError, CommandFailed, InvalidInput, Sandbox, Unsupported, run, run_code, run_many
from atoll.errors import ManyFailed


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert Sandbox.list() == []


def test_run_is_one_command_in_a_sandbox_of_its_own():
    heard = []
    done = run(
        "cat; echo $WORD; basename $PWD",
        "fake",
        stdin="in ",
        env={"WORD": "w"},
        workdir="/here",
        on_stdout=heard.append,
    )
    assert done.stdout == "".join(heard) == "in w\nhere\n"
    assert run("exit 3", "fake").exit_code == 3
    assert run("sleep 1000", "fake", timeout=0.3).timed_out
    with pytest.raises(CommandFailed):
        run("exit 3", "fake", check=True)


def test_run_code_is_one_cell_in_a_sandbox_of_its_own():
    assert run_code("x = 1\nx + 1", "fake").text == "2"
    assert run_code("x", "fake").error.name == "NameError"


def test_run_many_gives_results_in_order_and_a_failing_command_is_data():
    commands = ["sleep 0.2; echo first", ["echo", "second"], "exit 7", "echo last"]
    done = run_many(commands, "fake", max_workers=4)
    assert [(each.stdout, each.exit_code) for each in done] == [
        ("first\n", 0),
        ("second\n", 0),
        ("", 7),
        ("last\n", 0),
    ]
    assert run_many([], "fake") == []


def test_together_each_command_finds_what_those_before_it_have_left():
    done = run_many(["echo first > f", "exit 7", "cat f"], "fake", together=True)
    assert [(each.stdout, each.exit_code) for each in done] == [("", 0), ("", 7), ("first\n", 0)]
    assert [each.exit_code for each in run_many(["echo first > f", "cat f"], "fake")] == [0, 1]
    assert run_many([], "fake", together=True) == []


@pytest.mark.parametrize("commands", ["ls", b"ls", 7])
def test_one_command_is_not_taken_for_many(commands):
    for together in (False, True):
        with pytest.raises(InvalidInput, match="give a list of commands"):
            run_many(commands, "fake", together=together)


def test_run_many_runs_as_many_at_once_as_asked_and_no_more(tmp_path):
    alone = f"mkdir {tmp_path}/lock || exit 9; sleep 0.05; rmdir {tmp_path}/lock"
    assert [done.exit_code for done in run_many([alone] * 3, "fake", max_workers=1)] == [0, 0, 0]
    together = f"touch {tmp_path}/$$; until [ $(ls {tmp_path} | wc -l) -ge 3 ]; do sleep 0.01; done"
    assert [done.exit_code for done in run_many([together] * 3, "fake", max_workers=3)] == [0, 0, 0]
    with pytest.raises(InvalidInput):
        run_many(["true"], "fake", max_workers=0)


def test_one_that_breaks_does_not_lose_the_others():
    with pytest.raises(ManyFailed, match="1 of 3 commands could not be run") as caught:
        run_many(["echo a", [], "echo c"], "fake")
    results = caught.value.results
    assert [getattr(each, "stdout", None) for each in results] == ["a\n", None, "c\n"]
    assert isinstance(results[1], AtollError)


def test_wishes_that_cannot_be_are_refused():
    with pytest.raises(InvalidInput):
        run("true", "fake", timeout=-1)
    with pytest.raises(
        TypeError, match=r"no keyword 'colour'; the keywords are shell, stdin, check, .*, driver, image, "
    ):
        run("true", "fake", colour="red")
    with pytest.raises(TypeError) as caught:
        run("true", "fake", memory="1G")
    assert str(caught.value) == "There is no keyword 'memory'; give resources={\"memory\": '1G'}."


def test_what_is_planned_is_not_offered_and_still_refused():
    with pytest.raises(TypeError) as caught:
        run("true", "fake", colour="red")
    assert "gpu" not in str(caught.value)
    with pytest.raises(Unsupported, match="gpu= is not there yet"):
        run("true", "fake", gpu=1)
