"""`atoll init` and `atoll config`, as they are used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib

import pytest

import atoll as package
from atoll import config
from atoll.config.table import ENTRIES

SCRIPT = os.path.join(os.path.dirname(sys.executable), "atoll")


def atoll(*words, **environ):
    """(exit code, output, complaints)"""
    done = subprocess.run(
        [SCRIPT, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        env={**os.environ, **environ}, timeout=60,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def test_init_writes_a_file_that_explains_everything_and_sets_nothing(project):
    path = project / "atoll.toml"
    assert atoll("init") == (0, f"{path}\n", "")
    text = path.read_text()
    assert tomllib.loads(text) == {"atoll": {}}
    assert all(entry.description in text for entry in ENTRIES)
    # Each line that is commented out is right when it is not.
    lines = [line.removeprefix("# ") for line in text.splitlines() if " = " in line or line.startswith("# [")]
    (project / "all.toml").write_text("[atoll]\n" + "\n".join(lines))
    settings = config.load(path=str(project / "all.toml"))
    assert {each.name for each in settings if each.source == "default"} == set()
    assert len(list(project.iterdir())) == 2, "nothing else was left"


def test_init_trusts_what_it_wrote_and_an_edit_ends_that(project):
    atoll("init")
    path = project / "atoll.toml"
    path.write_text(path.read_text().replace("# model =", "model ="))
    assert "is not trusted, so its model is not used" in atoll("config", "show")[2]
    assert atoll("config", "trust") == (0, f"{path}\n", "")
    code, out, err = atoll("config", "show")
    assert (code, err) == (0, "")
    assert f"openai/gpt-4o-mini  file {path}" in out


def test_what_holds_is_shown_where_a_setting_leaves_it_open(project):
    lines = atoll("config", "show", ATOLL_DRIVER="")[1].splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines}
    assert (rows["driver"], rows["memory"], rows["max_cost"]) == (
        ["jail", "default"],
        ["512M", "default"],
        ["2.0", "default"],
    )


def test_a_limit_of_cost_that_cannot_be_held_says_so(project):
    code = "import sys; sys.path.insert(0, sys.argv[1]); from atoll.cli import main; main(['config', 'show'])"
    source = os.path.dirname(os.path.dirname(package.__file__))
    plain = [sys.executable, "-I", "-S", "-c", code, source]  # an installation without extras
    done = subprocess.run(plain, capture_output=True, text=True, check=True)
    assert "2.0 (not held: no prices; pip install 'atoll[prices]')  default" in done.stdout


def test_init_overwrites_nothing_unless_forced(project):
    path = project / "atoll.toml"
    path.write_text("[atoll]\nmax_depth = 1\n")
    code, out, err = atoll("init")
    assert (code, out) == (125, "")
    assert "already. Give --force" in err
    assert path.read_text() == "[atoll]\nmax_depth = 1\n"
    assert atoll("init", "--force")[0] == 0
    assert "max_depth = 4" in path.read_text()
    (project / "sub").mkdir()
    assert atoll("init", "sub")[1] == f"{project}/sub/atoll.toml\n"
    assert atoll("init", "missing/atoll.toml")[0] == 125


def test_init_writes_through_no_link(project):
    (project / "precious").write_text("mine")
    (project / "atoll.toml").symlink_to("precious")
    assert atoll("init")[0] == 125
    assert atoll("init", "--force")[0] == 0
    assert (project / "precious").read_text() == "mine"


def test_show_tells_every_value_and_its_source_and_no_key(write):
    path = write(
        'max_depth = 2\nmodel = "a/b"\n[atoll.mcp_servers.docs]\nurl = "https://x.example/mcp"\n'
        'headers = { X-API-Key = "sk-in-the-file" }'
    )
    assert atoll("config", "trust", path)[0] == 0
    keys = {"ATOLL_API_KEY": "sk-one", "OPENAI_API_KEY": "", "SNIPARA_API_KEY": "sk-two"}
    code, out, err = atoll("config", "show", "--json", ATOLL_MAX_COST="1.5", **keys)
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["settings"]["max_cost"] == {"value": 1.5, "source": "environment ATOLL_MAX_COST"}
    assert told["settings"]["max_depth"] == {"value": 2, "source": f"file {path}"}
    assert told["settings"]["max_iterations"] == {"value": 10, "source": "default"}
    assert told["settings"].keys() == {entry.name for entry in ENTRIES}
    assert told["keys"] == {"ATOLL_API_KEY": "set", "OPENAI_API_KEY": "not set", "SNIPARA_API_KEY": "set"}
    as_table = atoll("config", **keys)[1]
    assert "ATOLL_API_KEY         set" in as_table
    assert "sk-" not in out + as_table


def test_show_tells_what_is_not_trusted(write):
    path = write('model = "a/b"')
    code, out, err = atoll("config", "show", "--json")
    assert code == 0
    assert f"atoll config trust {path}" in err
    assert json.loads(out)["warnings"]
    assert json.loads(out)["settings"]["model"]["value"] is None
    named = json.loads(atoll("config", "show", "--json", "--config", path)[1])
    assert named["settings"]["model"]["value"] == "a/b"


def test_untrust(write, project):
    path = write('model = "a/b"')
    atoll("config", "trust", str(project))
    assert atoll("config", "untrust") == (0, f"{path}\n", "")
    assert "was not trusted" in atoll("config", "untrust")[2]
    assert "is not trusted" in atoll("config")[2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["config", "sho"], "There is no action 'sho'"),
        (["config", "show", "atoll.toml"], "atoll config show --config FILE"),
        (["config", "trust", "--json"], "atoll config trust [FILE]"),
        (["config", "trust"], "There is no atoll.toml here or above. `atoll init` writes one."),
        (["config", "show", "--config", "missing"], "cannot be read"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(project, words, told):
    code, out, err = atoll(*words)
    assert (code, out) == (125, "")
    assert told in err
