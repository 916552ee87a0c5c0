"""docs/how-to/write-a-driver.md tells the truth."""

from __future__ import annotations

import inspect
import pathlib
import re
import tomllib

from atoll import registry
from atoll.driver import Driver
from atoll.testing.suite import all_tests

GUIDE = (pathlib.Path(__file__).parents[2] / "docs" / "how-to" / "write-a-driver.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_what_it_shows_is_a_driver_and_a_suite_of_it(monkeypatch):
    monkeypatch.setattr(registry, "BUILT_IN", dict(registry.BUILT_IN))
    scope = {"__name__": "guide"}
    for block in blocks("python"):
        exec(block, scope)
    assert not inspect.isabstract(scope["MyWallDriver"])
    assert scope["TestMyWall"].driver_class is scope["MyWallDriver"]


def test_it_explains_every_method_of_the_contract():
    table = GUIDE.partition("| method |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in table.splitlines()[2:])))
    assert named == {name for name in vars(Driver) if inspect.iscoroutinefunction(getattr(Driver, name))}


def test_every_test_that_it_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", GUIDE))
    assert named
    assert named <= set(all_tests())


def test_the_entry_point_is_in_the_group_that_the_registry_reads():
    (block,) = blocks("toml")
    assert list(tomllib.loads(block)["project"]["entry-points"]) == [registry.GROUP]
