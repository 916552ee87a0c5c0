"""The played model plays what its script says."""

from __future__ import annotations

import json
import subprocess
import sys

import anyio
import pytest
from tests.playedmodel import Apart, PlayedModel, calls, fails, read_log, says

from atoll.errors import InvalidInput, ModelError
from atoll.models import load
from atoll.testing.playedmodel import main
from atoll.testing.playedscript import Chooser, turn_of


def talk(*assistant, user="hi", **more):
    messages = [{"role": "user", "content": user}]
    for text in assistant:
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "and?"}]
    return {"messages": messages, **more}


def test_the_reply_is_that_of_the_turn_however_often_it_is_asked():
    chooser = Chooser([says("one"), says("two")])
    for _ in range(2):
        assert chooser.choose(talk())["text"] == "one"
        assert chooser.choose(talk("one"))["text"] == "two"
    over = chooser.choose(talk("one", "two"))
    assert over["status"] == 400
    assert "has 2 replies" in over["error"]["message"]


def test_a_list_in_the_list_is_gone_through_and_its_last_stays():
    chooser = Chooser([[fails(500), says("then")]])
    assert [chooser.choose(talk()).get("status", 200) for _ in range(3)] == [500, 200, 200]


def test_rules_choose_by_what_is_in_the_request():
    script = {
        "rules": [
            {"when": {"first": "sub-question"}, "replies": ["sub"]},
            {"when": {"model": "small", "has_tools": True}, "replies": ["small"]},
            {"when": {"last": "and?", "contains": "magic"}, "replies": ["x", "magic word"]},
            {"replies": ["else"]},
        ]
    }
    chooser = Chooser(json.loads(json.dumps(script)))
    assert chooser.choose(talk(user="a sub-question"))["text"] == "sub"
    assert chooser.choose(talk(model="small", tools=[{}]))["text"] == "small"
    assert chooser.choose(talk("magic"))["text"] == "magic word"
    assert chooser.choose(talk())["text"] == "else"


@pytest.mark.parametrize(
    "script", ["x", 7, [7], [{"txt": "x"}], {"rule": []}, {"rules": [{"when": {"x": 1}, "replies": []}]}]
)
def test_a_script_that_is_none_is_refused(script):
    with pytest.raises(InvalidInput):
        Chooser(script)


def test_a_function_that_fails_is_told_to_whoever_asks():
    def broken(request):
        raise KeyError("oops")

    with PlayedModel(broken) as server, pytest.raises(ModelError, match="The script failed: KeyError: 'oops'"):
        anyio.run(load("m", base_url=server.url).ask, talk()["messages"])


def test_one_apart_outlives_who_asks_it_and_its_log_is_for_everybody(tmp_path):
    code = """
import anyio, sys
from atoll.models import load
anyio.run(load("m", base_url=sys.argv[1]).ask, [{"role": "user", "content": "hi"}])
"""
    with Apart([calls(("f", {}))], tmp_path) as server:
        for count in (1, 2):
            subprocess.run([sys.executable, "-c", code, server.url], check=True)
            assert len(server.requests) == count
    (first, second) = read_log(server.log)
    assert (first.number, second.number, second.turn) == (0, 1, 0)
    assert first.at <= second.at
    with server.log.open("a") as file:
        file.write('{"half')
    assert len(read_log(server.log)) == 2


def test_turns_of_what_is_no_conversation():
    assert [turn_of(value) for value in (None, [], {"messages": 7}, {"messages": [7]})] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("script", "options", "sentence"),
    [
        (None, [], "cannot be read: No such file or directory."),
        ("{nope", [], "is no JSON"),
        ("\udcff", [], "is no JSON"),
        ("[" * 100_000, [], "is no JSON"),
        ('[{"txt": "hi"}]', [], "A played reply has no txt; it has body, calls,"),
        ('"hi"', [], "A played script is a function, a list or a dict, not str."),
        ('[{"calls": [["run_code"]]}]', [], "give name and arguments of each"),
        ('[{"calls": 7}]', [], "A played reply has calls 7"),
        ('{"rules": [{"when": 7, "replies": []}]}', [], "A rule of a played script is"),
        ('{"rules": [{"replies": 7}]}', [], "A rule of a played script is"),
        ('{"rules": [{"when": {"first": 7}, "replies": []}]}', [], "A rule's `when` has 7 for first; give a text."),
        ('{"rules": [{"when": {"has_tools": 7}, "replies": []}]}', [], "give true or false."),
        ("[]", ["--port", "65536"], "--port is 65536"),
        ("[]", ["--latency", "nan"], "--latency is nan"),
        ("[]", ["--log", "/no/such/log"], "The log /no/such/log cannot be opened: No such file or directory."),
    ],
)
def test_what_cannot_be_served_gets_a_sentence(script, options, sentence, tmp_path, capfd):
    path = tmp_path / "replies.json"
    if script is not None:
        path.write_bytes(script.encode("utf-8", "surrogateescape"))
    assert main(["--script", str(path), *options]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("playedmodel: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_port_that_is_taken_gets_a_sentence_and_the_exit_code_2(tmp_path):
    (tmp_path / "replies.json").write_text("[]")
    with PlayedModel([]) as server:
        port = server.url.split(":")[2].split("/")[0]
        command = [sys.executable, "-m", "atoll.testing.playedmodel", "--script", "replies.json", "--port", port]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("playedmodel: The port cannot be had: Address already in use")
