"""`atoll mcp-install`: what is there stays, what cannot be kept is not touched."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import threading

import pytest
from hypothesis import given, strategies as st
from tests.thorough import examples

from atoll.cli import mcp_install
from atoll.errors import InvalidInput
from atoll.mcp import clients, configfile

PLACES = {
    ("claude-code", "user"): (".claude.json", "mcpServers"),
    ("claude-code", "project"): ("project/.mcp.json", "mcpServers"),
    ("claude-desktop", "user"): (".config/Claude/claude_desktop_config.json", "mcpServers"),
    ("cursor", "user"): (".cursor/mcp.json", "mcpServers"),
    ("cursor", "project"): ("project/.cursor/mcp.json", "mcpServers"),
    ("vscode", "user"): (".config/Code/User/mcp.json", "servers"),
    ("vscode", "project"): ("project/.vscode/mcp.json", "servers"),
}


@pytest.fixture
def home(tmp_path):
    (tmp_path / "project").mkdir()
    return tmp_path


def install(home, client, *options, code=0):
    environment = {name: value for name, value in os.environ.items() if name != "XDG_CONFIG_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "atoll", "mcp-install", "--client", client, *options],
        cwd=home / "project", env={**environment, "HOME": str(home)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize(("client", "scope"), PLACES)
def test_each_client_finds_a_command_that_works(home, client, scope):
    file, member = PLACES[client, scope]
    install(home, client, "--scope", scope, "--", "--memory", "1G")
    server = json.loads((home / file).read_text())[member]["atoll"]
    assert server["args"][-2:] == ["--memory", "1G"]
    assert server.get("type", "stdio") == "stdio"
    started = subprocess.run(
        [server["command"], *server["args"]], input=b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(started.stdout) == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_what_else_is_there_stays_and_is_backed_up(home):
    file = home / ".claude.json"
    other = '{"command": "x", "env": {"KEY": "s"}}'
    before = f'{{\n    "theme": "dark",\n    "mcpServers": {{"other": {other}}},\n    "ü": [1.5]\n}}\n'
    file.write_text(before)
    file.chmod(0o600)
    said = install(home, "claude-code", "--name", "mine")
    after = json.loads(file.read_text())
    assert after.pop("mcpServers").pop("mine")["command"]
    assert (after["theme"], after["ü"]) == ("dark", [1.5])
    assert json.loads(file.read_text())["mcpServers"]["other"] == {"command": "x", "env": {"KEY": "s"}}
    assert list(json.loads(file.read_text())) == ["theme", "mcpServers", "ü"]
    assert '\n    "theme"' in file.read_text()
    backup = home / ".claude.json.atoll-backup"
    assert str(backup) in said
    assert backup.read_text() == before
    assert {stat.S_IMODE(each.stat().st_mode) for each in (file, backup)} == {0o600}
    install(home, "claude-code", "--name", "second")
    assert (home / ".claude.json.atoll-backup-2").exists()
    assert backup.read_text() == before
    assert sorted(os.listdir(home)) == [
        ".claude.json", ".claude.json.atoll-backup", ".claude.json.atoll-backup-2", "project",
    ]  # fmt: skip


def test_doing_it_again_changes_nothing(home):
    install(home, "cursor")
    before = (home / ".cursor/mcp.json").stat()
    assert "has it already" in install(home, "cursor")
    assert (home / ".cursor/mcp.json").stat().st_mtime_ns == before.st_mtime_ns
    assert os.listdir(home / ".cursor") == ["mcp.json"]


def test_a_dry_run_shows_the_difference_and_changes_nothing(home):
    file = home / ".cursor" / "mcp.json"
    shown = install(home, "cursor", "--dry-run")
    assert '+    "atoll": {' in shown
    assert not file.parent.exists()
    file.parent.mkdir()
    file.write_text('{"mcpServers": {}}')
    assert '-{"mcpServers": {}}' in install(home, "cursor", "--dry-run")
    assert file.read_text() == '{"mcpServers": {}}'


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"servers": {}, // mine\n}', "comments"),
        ('{"servers": {},}', "trailing commas"),
        ("/* mine */ {}", "comments"),
        ('{"servers": ', "no JSON"),
        ("[]", "no object"),
        ('"x"', "no object"),
        ('{"servers": []}', "'servers' is no object"),
        ('{"servers": null}', "'servers' is no object"),
        ('{"a": 1, "a": 2}', "twice"),
        ("[" * 100000, "nested too deeply"),
        ("\ufeff{}", "no JSON"),
        ('{"a": NaN}', "no JSON"),
        ('{"a": [-Infinity]}', "no JSON"),
    ],
)
def test_what_cannot_be_kept_is_not_touched(home, content, why):
    file = home / "project" / ".vscode" / "mcp.json"
    file.parent.mkdir()
    file.write_text(content)
    said = install(home, "vscode", "--scope", "project", code=125)
    assert why in said
    assert '"atoll": {"type": "stdio"' in said, "what to paste"
    assert file.read_text() == content
    assert os.listdir(file.parent) == ["mcp.json"]


def test_a_symbolic_link_stays_one(home):
    target = home / "dotfiles.json"
    target.write_text("{}")
    link = home / ".claude.json"
    link.symlink_to(target)
    install(home, "claude-code")
    assert link.is_symlink()
    assert "atoll" in json.loads(target.read_text())["mcpServers"]
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").symlink_to(home / "nowhere.json")
    install(home, "cursor")
    assert "atoll" in json.loads((home / "nowhere.json").read_text())["mcpServers"]


def test_wrong_words_get_a_sentence(home):
    assert "give one of claude-code" in install(home, "emacs", code=125)
    assert "no configuration for a project" in install(home, "claude-desktop", "--scope", "project", code=125)
    assert "--name" in install(home, "cursor", "--name", "a b", code=125)
    assert "--token" in install(home, "cursor", "--", "--token=secret-secret-secret", code=125)
    os.mkfifo(home / ".claude.json")
    assert "is no file" in install(home, "claude-code", code=125)
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_bytes(b"\xff")
    assert "UTF-8" in install(home, "cursor", code=125)


def test_a_file_that_changes_meanwhile_is_left_alone(tmp_path):
    file = tmp_path / "c.json"
    file.write_text("{}")
    found = configfile.read(str(file))
    file.write_text('{"theirs": 1}')
    with pytest.raises(InvalidInput, match="somebody else"):
        configfile.replace(found, "{}")
    assert file.read_text() == '{"theirs": 1}'
    assert os.listdir(tmp_path) == ["c.json"]
    configfile.replace(configfile.read(str(file)), '{"ours": 1}')
    assert file.read_text() == '{"ours": 1}'


def test_somebody_who_writes_meanwhile_loses_nothing(tmp_path):
    file = tmp_path / "c.json"
    file.write_text("0")
    seen = []

    def change(text):
        seen.append(text)
        if len(seen) < 4:
            file.write_text(str(len(seen)))  # a client that knows of no lock
        return text + " and ours"

    assert configfile.update(str(file), change) == (True, f"{file}.atoll-backup")
    assert seen == ["0", "1", "2", "3"]
    assert file.read_text() == "3 and ours"
    assert sorted(os.listdir(tmp_path)) == ["c.json", "c.json.atoll-backup"]
    assert (tmp_path / "c.json.atoll-backup").read_text() == "3"
    count = iter(range(1000))
    with pytest.raises(InvalidInput, match="all the time"):
        configfile.update(str(file), lambda text: file.write_text(f"theirs {next(count)}") and text + "ours")
    assert sorted(os.listdir(tmp_path)) == ["c.json", "c.json.atoll-backup"]


def test_several_at_once_are_all_there(tmp_path):
    file = tmp_path / "c.json"
    file.write_text("[]")

    def add(number):
        configfile.update(str(file), lambda text: json.dumps([*json.loads(text), number]))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(json.loads(file.read_text())) == list(range(12))


@pytest.mark.parametrize(
    "number",
    ["1e400", "-1e400", "0.12345678901234567890123", "1E5", "1.0", "1.10", "-0", "-0.0", "5", "9" * 5000, "1e-400",
     "123456789012345678901234567890"],
)  # fmt: skip
def test_numbers_stay_as_they_are_written(number):
    place = clients.Place("/f", "mcpServers")
    after = clients.merged(f'{{"n": {number}, "l": [{number}]}}', place, "atoll", clients.entry(place, ["a"]))
    assert f'"n": {number},' in after
    assert re.search(rf'"l": \[\s*{re.escape(number)}\s*\]', after)
    assert "number" not in after


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@examples(2000, 200)
@given(st.dictionaries(st.text(max_size=8) | st.just("mcpServers"), JSON, max_size=5), st.integers(0, 4))
def test_nothing_but_the_entry_is_different(content, indent):
    place = clients.Place("/f", "mcpServers")
    text = json.dumps(content, indent=indent or None)
    server = clients.entry(place, ["atoll", "mcp-serve"])
    if not isinstance(content.get("mcpServers", {}), dict):
        with pytest.raises(InvalidInput):
            clients.merged(text, place, "atoll", server)
        return
    after = json.loads(clients.merged(text, place, "atoll", server))
    assert after["mcpServers"].pop("atoll") == server
    before = dict(content)
    others = dict(before.pop("mcpServers", {}))
    others.pop("atoll", None)
    assert after.pop("mcpServers") == others
    assert after == before


def test_a_project_with_an_atoll_of_its_own_does_not_run(home, monkeypatch):
    """Clients start the server in the directory that somebody opens, and where no `atoll` lies beside Python."""
    bare = home / "bare/python"
    bare.parent.mkdir()
    bare.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(bare))
    command = mcp_install._command([])
    for name in ("atoll", "json", "runpy"):
        (home / f"project/{name}.py").write_text(f"open({str(home / 'ran')!r}, 'a').write({name!r})\n")
    places = os.pathsep.join(path for path in sys.path if path)

    def start(words):
        (home / "ran").unlink(missing_ok=True)
        subprocess.run(
            words, cwd=home / "project", input=b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n', capture_output=True,
            env={**os.environ, "PYTHONPATH": places}, timeout=60, check=False,
        )  # fmt: skip
        return (home / "ran").exists()

    assert command[0] == str(bare)
    assert not start(command)
    assert start([word for word in command if word != "-P"])
