"""`--packages`, and what is kept of them."""

from __future__ import annotations

import pytest

from atoll.cli.options import packages_of
from atoll.testing import wheels


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["numpy,pandas"], ("numpy", "pandas")),
        (["numpy", "pandas"], ("numpy", "pandas")),
        (["a>=1,<2,b"], ("a>=1,<2", "b")),
        (["a[x,y],b"], ("a[x,y]", "b")),
        ([], ()),
    ],
)
def test_packages_are_named_with_commas(given, meant):
    assert packages_of(given) == meant


def test_packages_are_installed_listed_and_removed(atoll, tmp_path, monkeypatch):
    wheels.make(tmp_path, "by-command", {"by_command.py": "A = 42\n"})
    wheels.use_only(tmp_path, monkeypatch)
    run = ["run", "--packages", "by-command", "--", "python3", "-c", "import by_command; print(by_command.A)"]
    first = atoll(*run)
    assert (first.code, first.out) == (0, b"42\n"), first.err
    assert "Successfully installed by-command" in first.err
    again = atoll(*run)
    assert (again.code, again.out, again.err) == (0, b"42\n", "")
    kept = atoll("run", "--keep", "--packages", "by-command", "true")
    listed = atoll("packages").out.decode().splitlines()
    row = next(line for line in listed if line.endswith("by-command")).split()
    assert row[-2] == "1", "one sandbox is made with it"
    refused = atoll("packages", "remove", row[0])
    assert refused.code == 125
    assert "stays" in refused.err
    assert atoll("destroy", kept.err.split()[-1]).code == 0
    assert atoll("packages", "remove", "--unused").code == 0
    assert b"by-command" not in atoll("packages", "list").out


def test_what_cannot_be_removed_is_told(atoll):
    for words in (["remove"], ["remove", "--unused", "x"], ["drop"], ["remove", "nothing"]):
        assert atoll("packages", *words).code == 125
