"""What sessions may not get at, by whatever detour: the configuration of agents, and what other servers gave."""

from __future__ import annotations

import threading

import pytest
from tests.mcp.lineclient import LineClient

from atoll import InvalidInput
from atoll.agent import journal
from atoll.mcp import begun, pinned, trust
from atoll.mcp.settings import MAX_AGENTS, Settings
from atoll.types import Spec

STARTS = '[atoll]\nmodel = "other"\n[atoll.mcp_servers.x]\ncommand = "sh"\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("ATOLL_MODEL", "openai/nobody")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nobody")
    return project


@pytest.fixture
def applying(project, monkeypatch):
    """A function that starts a server which may apply, with the configuration at a path."""
    clients = []

    def start(config):
        monkeypatch.setenv("ATOLL_CONFIG", str(config))
        clients.append(LineClient("--allow-source", str(project), "--allow-apply", "--preset", "development"))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


@pytest.mark.parametrize("name", ["atoll.toml", "conf/own.toml"])
def test_no_session_changes_the_configuration_of_agents(applying, project, name):
    config = project / name
    config.parent.mkdir(exist_ok=True)
    config.write_text('[atoll]\nmodel = "openai/owner"\n')
    client = applying(config)
    code = f"open({name!r}, 'w').write({STARTS!r})\nopen('app.py', 'w').write('1')"
    client.tool("execute_python", code=code, source=str(project))
    done = client.data("apply")
    assert done["applied"] == ["app.py"]
    assert "configuration of agents" in done["rejected"][name]
    assert "owner" in config.read_text()
    client.tool("run_command", command="rm -rf conf atoll.toml; mkdir other; ln -s other conf")
    done = client.data("apply")
    assert not {name, name.partition("/")[0]} & set(done["applied"])
    assert "other" in done["applied"]
    assert "owner" in config.read_text()


def test_links_on_the_way_to_the_configuration_are_guarded_too(project, tmp_path, monkeypatch):
    (project / "real").mkdir()
    (project / "real" / "a.toml").write_text("[atoll]\n")
    (project / "first").symlink_to("second")
    (project / "second").symlink_to("real")
    (tmp_path / "short").symlink_to(project)
    monkeypatch.setenv("ATOLL_CONFIG", str(tmp_path / "short" / "first" / "a.toml"))
    places = {"first", "second", "real/a.toml"}
    assert {str(project / place) for place in places} <= pinned.pin().places()
    assert str(project / "real") not in pinned.pin().places()


def test_a_configuration_that_has_changed_starts_nothing_until_the_server_is_started_again(project):
    config = project / "atoll.toml"
    config.write_text("[atoll]\nmax_iterations = 3\n")
    with LineClient() as client:
        config.write_text("[atoll]\nmax_iterations = 4\n")
        assert "restart the server" in client.refusal("agent_run", task="x")
        config.unlink()
        assert "restart the server" in client.refusal("agent_run", task="x")
        config.write_text("[atoll]\nmax_iterations = 3\n")
        client.tool("agent_cancel", id=client.data("agent_run", task="x")["id"])


def test_a_source_below_an_allowed_one_does_not_hide_what_names_mean(project, tmp_path):
    allowed = (str(project),)
    assert trust.is_allowed(str(project), allowed)
    assert trust.is_allowed(str(project / "src" / "x"), allowed)
    for name in (".git/hooks", ".git", ".vscode", ".claude/hooks", "sub/.Git/hooks"):
        assert not trust.is_allowed(str(project / name), allowed)
    assert not trust.is_allowed(str(tmp_path), allowed)
    assert trust.is_allowed(str(project / ".vscode"), (*allowed, str(project / ".vscode")))
    (project / ".git" / "hooks").mkdir(parents=True)
    with LineClient("--allow-source", str(project), "--preset", "development") as client:
        refusal = client.refusal("run_command", command="ls", source=str(project / ".git" / "hooks"))
        assert "this server allows" in refusal


def test_a_session_over_what_is_not_allowed_any_more_is_not_taken_over(project, tmp_path):
    (project / "data").write_text("old")
    other = tmp_path / "other"
    other.mkdir()
    with LineClient("--allow-source", str(project), "--preset", "development") as first:
        first.tool("run_command", command="cat data", source=str(project))
        for options in (["--allow-apply"], ["--allow-source", str(other), "--allow-apply"]):
            with_less = LineClient(*options, space=first.space)
            try:
                for tool, more in {"run_command": {"command": "ls"}, "apply": {}, "fork": {}, "diff": {}}.items():
                    assert "does not allow" in with_less.refusal(tool, **more)
            finally:
                with_less.close(destroy=False)
        same = LineClient("--allow-source", str(project), "--preset", "development", space=first.space)
        try:
            assert same.data("run_command", command="cat data")["stdout"] == "old"
        finally:
            same.close(destroy=False)
    assert (project / "data").read_text() == "old"


def test_what_an_earlier_server_gave_is_held_against_what_this_one_gives(project):
    settings = Settings(sources=(str(project),), preset="agent-safe", wishes={"image": "/images/a"})
    like = trust.chosen("agent-safe", None)
    right = Spec(source=str(project), permissions=like, image="/images/a")
    assert trust.objection("jail", right, settings) is None
    assert trust.objection("bwrap", Spec(), settings) is None, "a call may choose it"
    assert "driver 'inprocess'" in (trust.objection("inprocess", right, settings) or "")
    assert trust.objection("inprocess", right, settings._replace(driver="inprocess")) is None
    for change, why in {
        "network": ("all", "network"),
        "image": ("/images/b", "image"),
        "codebase": ("c", "codebase"),
        "permissions": (trust.chosen("development", None), "rules"),
        "source": ("/", "does not allow"),
    }.items():
        assert why[1] in (trust.objection("jail", right._replace(**{change: why[0]}), settings) or "")


def test_many_sessions_at_once_are_not_more_than_there_may_be():
    with LineClient("--max-sessions", "2") as client:
        ids = [client.begin_tool("execute_python", code="1", session_id=f"s{number}") for number in range(6)]
        with LineClient("--max-sessions", "2", space=client.space) as other:
            ids_there = [other.begin_tool("execute_python", code="1", session_id=f"t{number}") for number in range(3)]
            answers = [client.answer(id) for id in ids] + [other.answer(id) for id in ids_there]
        made = [answer for answer in answers if not answer["result"].get("isError")]
        assert len(made) == 2
        assert all("2 sessions already" in str(answer) for answer in answers if answer not in made)


@pytest.fixture
def own_journal(tmp_path, monkeypatch):
    monkeypatch.setenv("ATOLL_HOME", str(tmp_path / "home"))
    kept = journal.shared()
    yield kept
    kept.close()
    journal._shared.pop(str(tmp_path / "home" / "agent.db"))


def test_many_runs_at_once_are_not_more_than_there_may_be(own_journal):
    begun_ids, refusals = [], []

    def attempt():
        try:
            begun_ids.append(begun.begin("here", lambda: own_journal.create("agent", {})))
        except InvalidInput as error:
            refusals.append(str(error))

    threads = [threading.Thread(target=attempt) for _ in range(MAX_AGENTS * 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(begun_ids), len(refusals)) == (MAX_AGENTS, MAX_AGENTS * 2)
    assert begun_ids[0] in refusals[0]
    with pytest.raises(InvalidInput) as refused:
        begun.begin("elsewhere", lambda: own_journal.create("agent", {}))
    assert begun_ids[0] not in str(refused.value), "with an id a run can be ended"
    own_journal.create("agent", {})  # of somebody at a terminal, which does not count
    own_journal.request_cancel(begun_ids[0])
    attempt()
    assert len(begun_ids) == MAX_AGENTS + 1


def test_a_run_that_nobody_takes_up_does_not_count_for_ever(own_journal, monkeypatch):
    for _ in range(MAX_AGENTS):
        begun.begin("here", lambda: own_journal.create("agent", {}))
    monkeypatch.setattr(begun, "_STARTING", 0.0)
    assert begun.begin("here", lambda: own_journal.create("agent", {}))
