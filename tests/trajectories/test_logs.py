"""`atoll logs`, as it is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests.playedmodel import PlayedModel, calls, says, slow
from tests.trajectories.conftest import SCRIPT, logs

from atoll import Busy, Sandbox, Snapshots
from atoll.agent import Agent
from atoll.agent.forgetting import forget
from atoll.agent.ground import LABEL


def test_the_list_has_the_newest_first(at_home):
    code, out, err = logs()
    assert (code, err) == (0, "")
    head, first, second = out.splitlines()
    assert head.split() == ["ID", "STATE", "AGE", "STEPS", "TOKENS", "COST", "MODEL", "TASK"]
    assert first.split()[:2] == [at_home.fork, "completed"]
    assert second.split()[:2] == [at_home.id, "completed"]
    assert second.split()[3:] == ["15", "2477", "?", "played", "everything", "…"]
    assert len(logs("-n", "1")[1].splitlines()) == 2
    listed = json.loads(logs("list", "--json")[1])
    assert [each["id"] for each in listed] == [each["run"] for each in listed] == [at_home.fork, at_home.id]
    assert listed[0]["forked_from"] == {"run": at_home.id, "step": 1}
    assert listed[1]["usage"]["prompt_tokens"] == 2355


def test_a_run_is_shown_by_the_beginning_of_its_id(at_home):
    code, out, _ = logs(at_home.id[:12])
    assert code == 0
    assert out == logs("show", at_home.id[3:15])[1]
    lines = out.splitlines()
    assert lines[0].startswith(f"{at_home.id}  completed")
    assert "→ one \\x1b[31mred" in lines[4], "shown, and not sent"
    assert "\x1b" not in logs(at_home.id, "--full")[1]
    shown = json.loads(logs(at_home.id, "--json")[1])
    assert [step["step"] for step in shown["steps"]] == list(range(1, 16))
    assert shown["parts"][0]["task"] == "help with two"


def test_colours_are_for_terminals(at_home):
    import pty

    main, side = pty.openpty()
    env = {**os.environ, "TERM": "xterm"}
    env.pop("NO_COLOR", None)
    with subprocess.Popen([SCRIPT, "logs", at_home.id], stdout=side, stderr=side, env=env) as process:
        os.close(side)
        shown = b""
        try:
            while piece := os.read(main, 65536):
                shown += piece
        except OSError:
            pass  # what a terminal says at its end
        assert process.wait(60) == 0
    os.close(main)
    assert b"\x1b[1mtr-" in shown
    assert b"\x1b[31mred" not in shown, "what the model said is not a colour"


def test_pictures(at_home, tmp_path):
    code, out, _ = logs("pictures", at_home.id, str(tmp_path / "p"))
    (path,) = out.split()
    assert (code, os.path.dirname(path)) == (0, str(tmp_path / "p"))
    with open(path, "rb") as file:
        assert file.read().startswith(b"\x89PNG")


def test_exports(at_home, tmp_path):
    assert json.loads(logs("export", at_home.id)[1])["trajectory_id"] == at_home.id
    file = tmp_path / "run.jsonl"
    assert logs("export", at_home.id, "--format", "jsonl", "-o", str(file))[0] == 0
    assert json.loads(file.read_text().splitlines()[-1])["state"] == "completed"
    assert "resourceSpans" in json.loads(logs("export", at_home.id, "--format", "otel")[1])
    assert "at once" not in logs("export", at_home.id, "--format", "otel")[1]
    code, _, err = logs("export", at_home.id, "-o", str(tmp_path / "none" / "x.jsonl"), "--format", "jsonl")
    assert code == 125
    assert "cannot be written" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["tr-none"], "There is no trajectory 'tr-none'"),
        (["tr-"], "Several trajectories begin with"),
        (["show"], "atoll logs ID"),
        (["export"], "atoll logs export ID"),
        (["export", "tr-", "--format", "xml"], "Several"),
        (["pictures", "x"], "atoll logs pictures ID DIR"),
        (["delete"], "--older 30d"),
        (["delete", "--older", "soon"], "--older is 'soon'"),
        (["delete", "tr-none"], "There is no trajectory"),
        (["-n", "many"], "--limit is 'many'"),
    ],
)
def test_what_makes_no_sense_gets_a_sentence(at_home, words, sentence):
    code, out, err = logs(*words)
    assert (code, out) == (125, "")
    assert sentence in err


def test_without_runs_there_is_a_heading(fresh):
    assert logs()[:2] == (0, "ID  STATE  AGE  STEPS  TOKENS  COST  MODEL  TASK\n")
    assert "There are no runs yet" in logs("--follow")[2]


def test_following_a_run_of_another_process(fresh):
    script = [calls(("run_code", {"code": "print('seen')"})), slow(says("done \x1b[31m"), 1.0)]
    with PlayedModel(script) as server:
        agent = Agent("played", base_url=server.url, sandbox={"driver": "jail"})
        id = agent.prepare("slowly")
        code = (
            "from atoll.agent import Agent; import sys; "
            "Agent('played', base_url=sys.argv[1], sandbox={'driver': 'jail'}).resume(sys.argv[2])"
        )
        with (
            subprocess.Popen([SCRIPT, "logs", id, "--follow"], stdout=subprocess.PIPE, text=True) as seen,
            subprocess.Popen([SCRIPT, "logs", "-f", "--json"], stdout=subprocess.PIPE, text=True) as read,
            subprocess.Popen([sys.executable, "-c", code, server.url, id]) as worker,
        ):
            first = seen.stdout.readline()
            assert worker.poll() is None, "it is told while it works"
            assert worker.wait(60) == 0
            rest = seen.stdout.read()
            lines = [json.loads(line) for line in read.stdout]
            assert (seen.wait(60), read.wait(60)) == (0, 0)
    assert first.startswith(("▸ 1  played", "✓ 1  played"))
    assert "✓ 2  run_code" in rest
    assert "seen" in rest
    assert f"{id}  completed" in rest
    assert rest.splitlines()[-1] == "done \\x1b[31m"
    assert [line["type"] for line in lines] == ["model", "tool", "model", "end"]
    forget(fresh, id)


def test_deleting_a_run_takes_its_snapshots_and_leaves_those_of_others(fresh):
    with PlayedModel([calls(("run_code", {"code": "x = 1"})), says("done")]) as server:
        agent = Agent("played", base_url=server.url, sandbox={"driver": "jail"}, keep=True)
        first = agent.run("one").trajectory_id
        second = agent.fork(first, at=2).trajectory_id
    (kept,) = {step.snapshot for step in fresh.steps(second)} - {None}
    assert kept.startswith(f"{first}.")
    assert len(Sandbox.list({LABEL: first})) == 1, "the control: there is a sandbox to be destroyed"
    assert logs("delete", first)[:2] == (0, f"{first}\n")
    assert [each.name for each in Snapshots().list()] == [kept], "the second line still needs it"
    assert Sandbox.list({LABEL: first}) == []
    assert [run.id for run in fresh.runs()] == [second]
    assert logs("delete", "--older", "1d")[:2] == (0, "")
    assert logs("delete", "--older", "0.000001")[:2] == (0, f"{second}\n")
    assert Snapshots().list() == []
    assert [info for info in Sandbox.list() if info.status != "gone"] == []


def test_a_run_that_a_process_works_on_is_not_deleted(fresh):
    id = fresh.create("agent", {"prompt": "p", "model": "m", "sandbox": {}})
    hold = fresh.claim(id)
    with pytest.raises(Busy):
        forget(fresh, id)
    assert logs("delete", id)[0] == 125
    assert logs("delete", "--older", "0.000001")[:2] == (0, "")
    fresh.finish(hold, "failed", {"response": "", "error": "x"})
    assert logs("delete", id)[0] == 0
