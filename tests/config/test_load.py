"""Where settings come from, which wins, and what is refused."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st
from tests.thorough import examples

from atoll import config
from atoll.config import files
from atoll.config.table import ENTRIES
from atoll.errors import InvalidInput

GOOD = {
    "model": ("openai/gpt-4o-mini", "openai/gpt-4o-mini"),
    "base_url": ("http://localhost:8000/v1", "http://localhost:8000/v1"),
    "driver": ("gvisor,jail", "gvisor,jail"),
    "network": ("host", "host"),
    "packages": (["pandas", "numpy>=2"], "pandas, numpy>=2"),
    "memory": ("1G", "1G"),
    "max_depth": (5, "5"),
    "max_iterations": (50, "50"),
    "max_cost": (10, "10.0"),
    "step_timeout": (600, "600"),
    "max_subcalls": (1000, "1000"),
    "token_budget": (20000, "20000"),
    "agent_token_budget": (100000, "100000"),
    "max_tool_calls": (1000, "1000"),
    "concurrency": (64, "64"),
    "validate": ("pytest -q", "pytest -q"),
    "snipara_project_slug": ("my-project", "my-project"),
    "mcp_servers": ({"docs": {"url": "https://example.com/mcp"}}, '{"docs": {"url": "https://example.com/mcp"}}'),
}
DEFAULTS = {
    "model": None, "base_url": None, "driver": None, "network": "none", "packages": (), "memory": None, "max_depth": 4,
    "max_iterations": 10, "max_cost": 2.0, "step_timeout": 30.0, "max_subcalls": 12, "token_budget": 8000,
    "agent_token_budget": 50000, "max_tool_calls": 50, "concurrency": 8, "validate": None,
    "snipara_project_slug": None, "mcp_servers": {},
}  # fmt: skip


def toml(value):
    import json

    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {toml(each)}" for name, each in value.items()) + " }"
    return json.dumps(value)


def test_nothing_said_gives_what_is_usual(project):
    settings = config.load()
    assert {each.name: each.value for each in settings.items()} == DEFAULTS
    assert {each.source for each in settings.items()} == {"default"}
    assert (settings.warnings, settings.path, repr(settings)) == ([], None, "Settings(defaults)")
    assert settings.max_depth == settings["max_depth"] == 4
    with pytest.raises(AttributeError):
        settings.max_dept  # noqa: B018 - the access is the test
    with pytest.raises(InvalidInput, match="did you mean 'max_depth'"):
        settings["max_dept"]


def test_nobody_changes_the_defaults_by_changing_what_they_got(project):
    config.load().mcp_servers["mine"] = {}
    assert config.load().mcp_servers == {}


@pytest.mark.parametrize("name", DEFAULTS)
def test_arguments_overrule_the_environment_and_that_a_file(name, write, monkeypatch):
    value, text = GOOD[name]
    path = write(f"{name} = {toml(value)}", "named.toml")
    entry = next(entry for entry in ENTRIES if entry.name == name)
    usual = config.check(name, value)
    from_file = config.load(path=path)
    assert (from_file[name], from_file.source(name)) == (usual, f"file {path}")
    assert from_file.path == path
    monkeypatch.setenv(entry.environment, text)
    both = config.load(path=path)
    assert (both[name], both.source(name)) == (usual, f"environment {entry.environment}")
    all_of_them = config.load({name: value}, path=path)
    assert (all_of_them[name], all_of_them.source(name)) == (usual, "argument")
    assert config.load({name: None}, path=path).source(name).startswith("environment")


def test_the_winner_is_the_value_of_the_winner(write, monkeypatch):
    path = write("max_depth = 1\nmax_cost = 1\nmax_subcalls = 1", "named.toml")
    monkeypatch.setenv("ATOLL_MAX_COST", "2")
    monkeypatch.setenv("ATOLL_MAX_SUBCALLS", "2")
    settings = config.load({"max_subcalls": 3}, path=path)
    assert (settings.max_depth, settings.max_cost, settings.max_subcalls) == (1, 2.0, 3)


def test_an_empty_variable_is_none(project, monkeypatch):
    monkeypatch.setenv("ATOLL_MAX_DEPTH", " ")
    assert config.load().source("max_depth") == "default"


def test_a_variable_that_looks_like_a_slip_is_told(project, monkeypatch):
    monkeypatch.setenv("ATOLL_MODLE", "x")
    monkeypatch.setenv("ATOLL_JUPYTER_URL", "http://x")
    assert config.load().warnings == ["ATOLL_MODLE is no setting; did you mean ATOLL_MODEL?"]


def test_a_file_can_be_named_by_the_environment(write, monkeypatch):
    monkeypatch.setenv("ATOLL_CONFIG", write('model = "a/b"', "elsewhere.toml"))
    assert config.load().model == "a/b"
    other = write('model = "c/d"', "other.toml")
    assert config.load(path=other).model == "c/d"


BAD = [
    ("model", 5, "give a name such as"),
    ("model", "", "give a name such as"),
    ("model", "a b", "give a name such as"),
    ("base_url", "ftp://x", "write it as 'https://"),
    ("base_url", "http://", "write it as 'https://"),
    ("base_url", "http://[::1", "write it as 'https://"),
    ("base_url", "http://x:99999", "write it as 'https://"),
    ("driver", [], "give a text"),
    ("network", "some", "give 'none', 'all' or 'host'"),
    ("network", ["all"], "give 'none', 'all' or 'host'"),
    ("packages", "pandas", "give a list such as"),
    ("packages", ["--index-url=http://evil"], "packages"),
    ("packages", [5], "packages"),
    ("memory", "lots", "no size"),
    ("max_depth", 0, "from 1 to 5"),
    ("max_depth", 6, "from 1 to 5"),
    ("max_depth", True, "from 1 to 5"),
    ("max_depth", 2.0, "from 1 to 5"),
    ("max_depth", "2", "from 1 to 5"),
    ("max_iterations", 51, "from 1 to 50"),
    ("max_cost", 10.01, "at most 10"),
    ("max_cost", 0, "above 0"),
    ("max_cost", float("nan"), "above 0"),
    ("max_cost", float("inf"), "at most 10"),
    ("step_timeout", 601, "at most 600"),
    ("max_subcalls", 1001, "from 0 to 1000"),
    ("token_budget", -1, "from 1 to"),
    ("max_tool_calls", 1001, "from 0 to 1000"),
    ("concurrency", 65, "from 1 to 64"),
    ("validate", " ", "give a text"),
    ("snipara_project_slug", "../x", "give the slug"),
    ("mcp_servers", [], "one entry for each server"),
    ("mcp_servers", {"a": {}}, "either `command`"),
]


@pytest.mark.parametrize(("name", "value", "told"), BAD)
def test_what_a_setting_cannot_be_is_refused_with_what_to_write(name, value, told, project):
    with pytest.raises(InvalidInput, match=told):
        config.check(name, value)
    with pytest.raises(InvalidInput, match=told):
        config.load({name: value})


def test_a_refusal_names_the_file_or_the_variable(write, monkeypatch):
    path = write("max_depth = 9", "named.toml")
    with pytest.raises(InvalidInput) as refused:
        config.load(path=path)
    assert str(refused.value) == f"{path}: max_depth is 9; give a whole number from 1 to 5."
    monkeypatch.setenv("ATOLL_MAX_DEPTH", "many")
    with pytest.raises(InvalidInput) as refused:
        config.load()
    assert str(refused.value) == "ATOLL_MAX_DEPTH: max_depth is 'many'; give a whole number from 1 to 5."


@pytest.mark.parametrize("found", [False, True])
def test_unknown_keys_are_refused_with_a_suggestion(write, found):
    path = write('modl = "x"')
    with pytest.raises(InvalidInput, match="There is no setting 'modl': did you mean 'model'") as refused:
        config.load(path=None if found else path)
    assert path in str(refused.value)
    with pytest.raises(InvalidInput, match="did you mean 'model'"):
        config.check("modle", "x")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("api_key = 'sk-1234'", "'api_key' does not belong in a file.*ATOLL_API_KEY"),
        ("snipara_api_key = 'sk-1234'", "SNIPARA_API_KEY"),
        ("openai_api_key = 'sk-1234'", "does not belong in a file"),
        ("token = 'sk-1234'", "does not belong in a file"),
    ],
)
def test_keys_in_a_file_are_refused_and_not_told(write, text, told):
    with pytest.raises(InvalidInput, match=told) as refused:
        config.load(path=write(text))
    assert "sk-1234" not in str(refused.value)


def test_a_password_in_an_address_is_refused_and_not_told(project):
    with pytest.raises(InvalidInput, match="before the @") as refused:
        config.load({"base_url": "https://me:sesame@example.com/v1"})
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"model = 'x'\n", r"'model' outside of \[atoll\]"),
        (b"api_key = 'x'\n", "does not belong in a file"),
        (b"atoll = 5\n", r"no table \[atoll\]"),
        (b"[atoll\n", "is no TOML"),
        (b"\xff\xfe", "is no TOML"),
        (b"[atoll]\nx = " + b"[" * 100_000, "is no TOML"),
        (b"#" * ((1 << 20) + 1), "larger than 1 MiB"),
    ],
    ids=range(7),
)
def test_what_is_no_configuration_is_refused(project, content, told):
    (project / "atoll.toml").write_bytes(content)
    with pytest.raises(InvalidInput, match=told):
        config.load()


def test_what_is_no_file_is_refused_and_not_waited_for(project):
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        config.load(path="missing.toml")
    with pytest.raises(InvalidInput, match="cannot be read"):
        config.load(path="a\0b")
    os.mkfifo(project / "atoll.toml")
    with pytest.raises(InvalidInput, match="is no file"):
        config.load()


def test_the_nearest_file_above_is_found_and_none_above_the_home(home, project, write, tmp_path):
    (tmp_path / "atoll.toml").write_text("[atoll]\nmax_depth = 1\n")
    deep = project / "a" / "b"
    deep.mkdir(parents=True)
    assert files.find(str(deep)) is None
    (home / "atoll.toml").write_text("[atoll]\nmax_depth = 2\n")
    assert config.load(start=str(deep)).max_depth == 2
    write("max_depth = 3")
    assert config.load(start=str(deep)).max_depth == 3
    outside = tmp_path / "outside"
    outside.mkdir()
    assert config.load(start=str(outside)).max_depth == 1, "the control: outside of the home the search goes on"


def test_a_working_directory_that_is_gone_has_no_file(project):
    project.rmdir()
    assert config.load().path is None


def test_without_a_file_nothing_reads_toml():
    code = (
        "import sys, os; os.chdir('/'); import atoll.config; atoll.config.load(environ={}); "
        "print(*({'tomllib', 'json', 'hashlib.blake2b', 'asyncio', 'anyio', 'pydantic', 'inspect'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
    assert not pathlib.Path("/atoll.toml").exists(), "the control"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@examples(4000, 300)
@given(st.sampled_from([entry.name for entry in ENTRIES]) | st.text(max_size=10), ANYTHING)
def test_whatever_is_given_is_refused_with_a_sentence_or_stays_as_it_is(name, value):
    try:
        taken = config.check(name, value)
    except InvalidInput as error:
        told = str(error)
        assert told
        return
    assert config.check(name, taken) == taken, "what was checked passes again"


@examples(3000, 200)
@given(st.sampled_from(ENTRIES), st.text(max_size=60))
def test_whatever_a_variable_holds_is_refused_with_a_sentence_or_taken(entry, text):
    try:
        taken = config.load(environ={entry.environment: text}, start="/proc")[entry.name]
    except InvalidInput as error:
        told = str(error)
        assert told.startswith(entry.environment)
        return
    assert config.check(entry.name, taken) == taken if text.strip() else taken == entry.default


@examples(2000, 150)
@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: b"[atoll]\n" + text.encode()))
def test_whatever_a_file_holds_is_refused_with_a_sentence_or_read(content):
    try:
        file = files._parsed("atoll.toml", content)
        config.checked(file)
    except InvalidInput as error:
        told = str(error)
        assert told.startswith("atoll.toml")


def test_the_page_tells_every_setting_with_its_default_and_its_maximum():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "how-to" / "configuration.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")]
    assert [row[0].strip("`") for row in rows] == [entry.name for entry in ENTRIES]
    for (_, usual, most, _), entry in zip(rows, ENTRIES, strict=True):
        if isinstance(entry.default, int | float):
            assert float(usual) == entry.default
        if most:
            assert entry.check(type(entry.default)(float(most))) == float(most)
            with pytest.raises(InvalidInput):
                entry.check(type(entry.default)(float(most)) + 1)
