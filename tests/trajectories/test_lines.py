"""Runs as lines of JSON and as a tree for people."""

from __future__ import annotations

import json

from hypothesis import given
from tests.thorough import examples
from tests.trajectories.making import runs

from atoll.agent.jsonl import jsonl
from atoll.agent.records import everyone, spent_by
from atoll.agent.tree import brief, money, seconds, tree_lines
from atoll.cli.output import visible


def test_each_thing_that_happened_is_a_line(at_home):
    lines = [json.loads(line) for line in jsonl(at_home.tree)]
    assert [line["type"] for line in lines] == [
        "run", "model", "tool", "query", "part", "run", "model", "tool", "model", "end", "model", "tool", "tool",
        "tool", "tool", "model", "tool", "model", "check", "model", "check", "end",
    ]  # fmt: skip
    first, asked, tool, query, part, child, *_, end = lines
    assert (first["run"], first["prompt"], first["model"]) == (at_home.id, "everything\nat once", "played")
    assert [message["role"] for message in asked["prompts"]] == ["system", "user"]
    assert asked["response"] == "I look."
    assert asked["usage"] == {"prompt_tokens": 100, "completion_tokens": 10, "cached_tokens": 40}
    assert asked["cost"] is None
    assert tool["name"] == "run_code"
    assert "It is 3." in tool["result"]
    assert query["parent"] == part["parent"] == tool["key"]
    assert part["child"] == child["run"]
    assert (child["parent"], child["parent_step"]) == (at_home.id, part["key"])
    assert (end["state"], end["response"]) == ("completed", "The answer is 42.")
    assert all(line["seconds"] >= 0 for line in lines if "seconds" in line)


@examples(1000, 100)
@given(tree=runs())
def test_any_run_is_lines_of_json(tree):
    lines = [json.loads(line) for line in jsonl(tree)]
    assert all("\n" not in line for line in jsonl(tree))
    steps = sum(len(each.steps) for each in everyone(tree))
    ends = len(list(everyone(tree)))
    assert len(lines) == steps + 2 * ends
    "".join(jsonl(tree)).encode()


@examples(1000, 100)
@given(tree=runs())
def test_any_run_is_a_tree_that_cannot_steer_a_terminal(tree):
    for full in (False, True):
        text = [visible(line.text) for line in tree_lines(tree, full=full)]
        assert all(line.isprintable() for line in text)
        shown = " ".join(text)
        for step in tree.steps:
            assert f"{step.number}  " in shown
    assert len(tree_lines(tree)) <= sum(len(each.steps) + 4 for each in everyone(tree)) * 3


def test_the_tree_of_a_run(at_home):
    lines = [line.text for line in tree_lines(at_home.tree)]
    assert lines[0].startswith(f"{at_home.id}  completed  played  ")
    assert lines[1] == "everything …"
    assert lines[2].startswith("├─ 1  played  ")
    assert lines[3].startswith("├─ 2  run_code  ")
    assert lines[4].startswith("│  ├─ 3  llm_query  ")
    assert "what is one  → one \x1b[31mred" in lines[4], "the one who prints makes it visible"
    assert lines[5].startswith("│  └─ 4  rlm_query  ")
    assert lines[6].startswith("│     tr-")
    assert lines[-1] == "└─ answer: The answer is 42."
    bad = [line.text for line in tree_lines(at_home.tree) if line.tone == "bad"]
    assert any("There is no tool 'fly'" in line for line in bad)
    assert any("it lacks 42" in line for line in bad)
    assert "run_code  " not in "".join(bad)


def test_the_whole_of_it(at_home):
    text = "\n".join(line.text for line in tree_lines(at_home.tree, full=True))
    assert "two = rlm_query('help with two', [1, 2])" in text
    assert f"snapshot: {at_home.id}.m0.t0." in text


def test_tokens_of_a_run_that_is_not_at_its_end_are_those_of_its_steps(at_home):
    tree = at_home.tree
    under_way = tree._replace(state="running")
    assert spent_by(under_way)[:3] == spent_by(tree)[:3]


def test_numbers_for_people():
    from atoll.agent.limits import Spent

    assert [seconds(0.0123), seconds(1.26), seconds(61)] == ["12ms", "1.3s", "1m01s"]
    assert money(Spent(10, 2, 0, 0.5)) == "10+2 tokens  $0.5000"
    assert money(Spent(10, 2, 0, None)) == "10+2 tokens  $?"
    assert [brief("\n\n  a  \nb"), brief("a"), brief(""), len(brief("x" * 500))] == ["a …", "a", "", 72]
