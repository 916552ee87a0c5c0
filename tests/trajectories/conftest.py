"""Runs to tell of: a real one with a bit of everything, done once, and made-up ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

import pytest
from tests.playedmodel import PlayedModel, calls, says

from atoll import Sandbox, Snapshots
from atoll.agent import Agent, journal
from atoll.agent.forgetting import forget
from atoll.agent.records import recorded
from atoll.engine import launch

SCRIPT = os.path.join(os.path.dirname(sys.executable), "atoll")

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SHOW = f"""
class Dot:
    def _repr_png_(self):
        return __import__('base64').b64decode('{PNG}')
Dot()
"""
ASKS = """
one = llm_query('what is one')
two = rlm_query('help with two', [1, 2])
print(one, two)
"""
SCRIPTED = {
    "rules": [
        {"when": {"has_tools": False}, "replies": [says("one \x1b[31mred", usage=(7, 3))]},
        {
            "when": {"first": "help with two"},
            "replies": [
                calls(("run_code", {"code": "sum(context)"}), usage=(20, 5)),
                says("It is 3.", usage=(30, 6)),
            ],
        },
        {
            "when": {"first": "everything"},
            "replies": [
                calls(("run_code", {"code": ASKS}), text="I look.", reasoning="hm", usage=(100, 10, 40)),
                calls(
                    ("run_code", {"code": SHOW}),
                    ("read_file", {"path": "none.txt"}),
                    ("fly", {"to": "the moon"}),
                    ("run_command", '{"command": '),
                    usage=(200, 20),
                ),
                says("```repl\nprint('in a block')\n```", usage=None),
                says("wrong", usage=(300, 30)),
                says("The answer is 42.", usage=(400, 40)),
            ],
        },
    ]
}


def judge(answer):
    return "42" in answer or "it lacks 42"


class Made(NamedTuple):
    """A state directory with one run in it."""

    home: str
    id: str
    fork: str

    @property
    def tree(self):
        return recorded(journal.shared(), self.id)


@pytest.fixture(scope="session")
def made():
    """A run that asks, calls, fails, shows a picture and is checked; and a second line of it."""
    home = tempfile.mkdtemp(prefix="at-", dir="/tmp")
    before, os.environ["ATOLL_HOME"] = os.environ["ATOLL_HOME"], home
    try:
        with PlayedModel(SCRIPTED) as server:
            agent = Agent("played", base_url=server.url, api_key="sk-secret", sandbox={"driver": "jail"})
            result = agent.run("everything\nat once", validate=judge)
            assert result.state == "completed", result
            agent = Agent("played", base_url=server.url, api_key="sk-secret", validate=judge)
            fork = agent.fork(result.trajectory_id, at=1)
            assert fork.state == "completed", fork
        yield Made(home, result.trajectory_id, fork.trajectory_id)
        for run in journal.shared().runs():
            forget(journal.shared(), run.id)
        assert Snapshots().list() == []
        assert [info.id for info in Sandbox.list() if info.status != "gone"] == []
    finally:
        launch.shut_down(home)
        os.environ["ATOLL_HOME"] = before
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def at_home(made, monkeypatch):
    monkeypatch.setenv("ATOLL_HOME", made.home)
    return made


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A journal with nothing in it."""
    home = tempfile.mkdtemp(prefix="at-", dir="/tmp")
    monkeypatch.setenv("ATOLL_HOME", home)
    yield journal.shared()
    launch.shut_down(home)
    shutil.rmtree(home, ignore_errors=True)


def logs(*words, env=None):
    """`atoll logs`, as it is used."""
    done = subprocess.run(
        [SCRIPT, "logs", *words], capture_output=True, timeout=120, check=False, env={**os.environ, **(env or {})}
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode(), done.stderr.decode()
