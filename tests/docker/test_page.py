"""The page about containers does what it says."""

from __future__ import annotations

from ..containers import ROOT, needs_docker, shared_engine
from ..documented import run_page


@needs_docker
def test_the_code_of_the_page_runs_and_does_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with shared_engine():
        run_page((ROOT / "docs" / "how-to" / "docker.md").read_text(), "docker.md")
