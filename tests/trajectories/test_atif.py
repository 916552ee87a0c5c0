"""Trajectories in ATIF are what Harbor's own validator takes, and have all in them that happened."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from tests.thorough import examples
from tests.trajectories.conftest import logs
from tests.trajectories.harbor import validator
from tests.trajectories.making import runs

from atoll.agent import journal
from atoll.agent.atif import atif
from atoll.agent.records import recorded


@pytest.fixture(scope="session")
def harbor(tmp_path_factory):
    return validator(tmp_path_factory.mktemp("harbor"))


def accepted(harbor, document):
    return harbor.validate(json.loads(json.dumps(document))) or harbor.errors


def test_harbor_takes_a_real_run(harbor, at_home):
    assert accepted(harbor, atif(at_home.tree)) is True


def test_the_validator_can_refuse(harbor, at_home):
    document = atif(at_home.tree)
    for spoil in (
        lambda it: it.update(unknown=1),
        lambda it: it["steps"][0].update(step_id=7),
        lambda it: it["steps"].clear(),
        lambda it: it["steps"][1].update(model_name="x"),
        lambda it: it["subagent_trajectories"][0].pop("trajectory_id"),
    ):
        spoilt = copy.deepcopy(document)
        spoil(spoilt)
        assert accepted(harbor, spoilt) is not True


@examples(1000, 100)
@given(tree=runs())
def test_harbor_takes_whatever_a_journal_may_hold(harbor, tree):
    assert accepted(harbor, atif(tree)) is True


def test_everything_is_in_it(at_home):
    document = atif(at_home.tree)
    assert document["schema_version"] == "ATIF-v1.8"
    assert document["trajectory_id"] == document["session_id"] == at_home.id
    assert document["agent"]["model_name"] == "played"
    assert "run_code" in [tool["function"]["name"] for tool in document["agent"]["tool_definitions"]]
    assert [step["source"] for step in document["steps"]] == [
        "system", "user", "agent", "agent", "agent", "agent", "system", "user", "agent", "system",
    ]  # fmt: skip
    assert document["steps"][1]["message"] == "everything\nat once"
    assert document["extra"]["state"] == "completed"
    assert document["extra"]["response"] == "The answer is 42."
    assert document["extra"]["validated"] is True


def test_calls_and_what_came_of_them(at_home):
    first, second, third, *_ = (step for step in atif(at_home.tree)["steps"] if step["source"] == "agent")
    assert (first["message"], first["reasoning_content"], first["llm_call_count"]) == ("I look.", "hm", 1)
    assert {name: first["metrics"][name] for name in ("prompt_tokens", "completion_tokens", "cached_tokens")} == {
        "prompt_tokens": 100, "completion_tokens": 10, "cached_tokens": 40,
    }  # fmt: skip
    assert "cost_usd" not in first["metrics"], "an unknown price is not zero"
    (result,) = first["observation"]["results"]
    assert result["source_call_id"] == first["tool_calls"][0]["tool_call_id"]
    assert result["extra"]["queries"][0]["prompt"] == "what is one"
    assert "It is 3." in result["content"]
    assert first["tool_calls"][0]["extra"]["snapshot"].startswith(at_home.id)

    names = [call["function_name"] for call in second["tool_calls"]]
    assert names == ["run_code", "read_file", "fly", "run_command"]
    assert second["tool_calls"][3]["arguments"] == {}
    assert second["tool_calls"][3]["extra"]["raw_arguments"] == '{"command": '
    results = {each["source_call_id"]: each for each in second["observation"]["results"]}
    shown, read, flown, _ = (results[call["tool_call_id"]] for call in second["tool_calls"])
    assert shown["extra"]["images"] == ["image/png"]
    assert read["extra"]["failed"] is True
    assert "There is no tool 'fly'" in flown["content"]

    assert third["tool_calls"][0]["function_name"] == "run_code"
    assert third["observation"]["results"][0]["content"] == "in a block"
    assert third["metrics"]["extra"] == {"tokens_are_estimated": True}


def test_a_part_is_a_subagent(at_home):
    document = atif(at_home.tree)
    (part,) = document["subagent_trajectories"]
    (ref,) = document["steps"][2]["observation"]["results"][0]["subagent_trajectory_ref"]
    assert ref == {"trajectory_id": part["trajectory_id"]}
    assert part["session_id"] == at_home.id
    assert part["steps"][1]["message"] == "help with two"
    assert part["final_metrics"]["total_prompt_tokens"] == 50
    total = document["final_metrics"]["total_prompt_tokens"]
    assert total == at_home.tree.result["spent"]["prompt_tokens"] > 100 + 7 + 50 + 200 + 300 + 400
    assert document["final_metrics"]["total_steps"] == len(document["steps"])


def test_a_second_line_says_what_it_has_copied(harbor, at_home):
    document = atif(recorded(journal.shared(), at_home.fork))
    assert document["extra"]["forked_from"] == {"trajectory_id": at_home.id, "step": 1}
    copied = [step.get("is_copied_context", False) for step in document["steps"]]
    assert copied == [True, True, True] + [False] * (len(copied) - 3)
    assert accepted(harbor, document) is True


def test_a_file_has_its_pictures_beside_it(harbor, at_home, tmp_path):
    file = tmp_path / "run.json"
    assert logs("export", at_home.id, "-o", str(file)) == (0, f"{file}\n", "")
    assert harbor.validate(file), harbor.errors
    (picture,) = (tmp_path / "run.json.pictures").iterdir()
    assert picture.read_bytes().startswith(b"\x89PNG")
    second = json.loads(file.read_text())["steps"][3]
    parts = next(each["content"] for each in second["observation"]["results"] if isinstance(each["content"], list))
    assert parts[1] == {
        "type": "image",
        "source": {"media_type": "image/png", "path": f"run.json.pictures/{picture.name}"},
    }
    picture.unlink()
    assert not harbor.validate(file), "the control: a picture that is missing would be noticed"


def test_no_key_is_in_it(at_home):
    for format in ("atif", "jsonl", "otel"):
        code, out, _ = logs("export", at_home.id, "--format", format, "--content")
        assert code == 0
        assert "sk-secret" not in out
        assert "at once" in out
