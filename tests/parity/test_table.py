"""docs/reference/parity.md and the tests of this directory name the same things."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

HERE = pathlib.Path(__file__).parent
PAGE = (HERE.parent.parent / "docs" / "reference" / "parity.md").read_text()
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
FILES = {re.search(r"^Tests: `(test_\w+\.py)`", section, re.MULTILINE)[1]: section for section in SECTIONS}
ROW = re.compile(r"^\| (?P<feature>.+?) \|(?P<call>.*?)\| (?P<test>[^|]+) \|$", re.MULTILINE)


def rows(section):
    return [match for match in ROW.finditer(section) if match["feature"] not in ("feature", "---")]


def named_in(file):
    """Each test function with its docstring."""
    tree = ast.parse((HERE / file).read_text())
    return {
        node.name: ast.get_docstring(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_every_document_has_a_section():
    own = {path.name for path in HERE.glob("test_*.py")} - {"test_table.py"}
    assert set(FILES) == own
    assert len(FILES) == 5


@pytest.mark.parametrize("file", FILES)
def test_every_row_names_a_test_or_the_issue_that_brings_one(file):
    found = rows(FILES[file])
    assert len(found) == FILES[file].count("\n| ") - 1, "a row that cannot be read"
    for row in found:
        later = re.fullmatch(r"\*issue \d+, not yet\*", row["test"])
        named = re.fullmatch(r"`(test_\w+)`", row["test"])
        assert later or named, row[0]
        assert bool(row["call"].strip()) == bool(named), row[0]
        if named:
            assert named[1] in named_in(file)


@pytest.mark.parametrize("file", FILES)
def test_every_test_has_one_row_and_says_what_it_mirrors(file):
    named = re.findall(r"`(test_\w+)` \|$", FILES[file], re.MULTILINE)
    assert sorted(named) == sorted(named_in(file))
    assert all(named_in(file).values())
