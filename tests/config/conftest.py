from __future__ import annotations

import pytest


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home directory of its own, with a state directory, and no settings in the environment."""
    import os

    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ATOLL_HOME", str(tmp_path / "state"))
    for name in list(os.environ):
        if name.startswith("SNIPARA_") or (name.startswith("ATOLL_") and name != "ATOLL_HOME"):
            monkeypatch.delenv(name)
    return home


@pytest.fixture
def project(home, monkeypatch):
    """A directory beneath the home, which is the working directory."""
    project = home / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def write(project):
    """Write settings to the project's atoll.toml."""

    def written(text, name="atoll.toml"):
        (project / name).write_text(f"[atoll]\n{text}\n")
        return str(project / name)

    return written
