"""The documentation says what is there."""

from __future__ import annotations

import ast
import pathlib
import re
import runpy
import threading

import pytest

from atoll import AtollError, Sandbox, registry
from atoll.agent import journal
from atoll.agent.forgetting import forget

from .documented import python_blocks, run_page

ROOT = pathlib.Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# Those that need a server of their own run beside its other tests.
ELSEWHERE = {"docker.md": "tests/docker/test_page.py"}
PROGRAMS = [page for page in PAGES if page.name not in ELSEWHERE and next(python_blocks(page.read_text()), None)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def wanted_packages(pages):
    """Every list of packages that a page gives to a sandbox."""
    for page in pages:
        for block in python_blocks(page.read_text()):
            for node in ast.walk(ast.parse(block.code)):
                if isinstance(node, ast.keyword) and node.arg == "packages":
                    yield tuple(sorted(ast.literal_eval(node.value)))


def forget_runs():
    """What agents of a page have left in the journal, and their snapshots."""
    kept = journal.shared()
    for run in kept.runs():
        forget(kept, run.id)


@pytest.fixture(scope="module")
def environments(request):
    """What this run needs is installed at once: an installer waits more than it works. A page meets what has failed."""

    def install(packages):
        try:
            Sandbox.create(packages=packages).destroy()
        except AtollError:
            return

    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    pages = {call.params["page"] for call in calls if call} & set(PROGRAMS)
    threads = [threading.Thread(target=install, args=[packages]) for packages in set(wanted_packages(pages))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs_and_does_what_it_says(page, environments, tmp_path, monkeypatch):
    before = {info.id for info in Sandbox.list()}
    monkeypatch.chdir(tmp_path)
    # A page may make a driver, which nobody after it shall meet.
    monkeypatch.setattr(registry, "BUILT_IN", dict(registry.BUILT_IN))
    try:
        run_page(page.read_text(), page.name)
    finally:
        left = [info.id for info in Sandbox.list() if info.id not in before]
        for id in left:
            Sandbox.connect(id).destroy()
        forget_runs()
    assert left == []


@pytest.mark.timeout(600)
def test_the_demonstration_of_an_agent_shows_its_answer_its_log_and_its_picture(
    environments, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "agent.py"), run_name="__main__")
    said = capfd.readouterr().out
    assert "Answer: The best month was April, with 410" in said
    assert "llm_query" in said
    assert (tmp_path / "atoll-demo.png").read_bytes().startswith(b"\x89PNG")
    forget_runs()


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```python\n6 * 7  # -> 43\n```", "line 2 gives 42"),
        ("```python\nprint('a', 'b', sep='-')  # -> a b\n```", "line 2 prints"),
        ("```python\nif False:\n    print()  # -> x\n```", "never reached"),
        ("```python\nx = 1  # -> 1\n```", "belong to no expression"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```", "page.md:2 prints:\n1"),
        ("```python notest\n1\n```", "every block runs"),
    ],
)
def test_a_page_that_says_something_wrong_is_found_out(page, complaint):
    with pytest.raises(AssertionError, match=complaint):
        run_page(page, "page.md")


def test_a_page_that_is_right_passes():
    run_page(
        "```python\nx = 6\n```\nand\n```python\nx * 7  # -> 42\nprint('took 3 s')  # -> took … s\n"
        "for i in range(2):\n    print(i)\n```\n```text\ntook …\n0\n1\n```\n",
        "page.md",
    )


def test_the_index_names_every_page():
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


def test_decisions_are_numbered_without_gaps():
    names = sorted(page.name for page in (ROOT / "docs" / "decisions").glob("*.md"))
    assert [name[:5] for name in names] == [f"{number:04}-" for number in range(1, len(names) + 1)]
