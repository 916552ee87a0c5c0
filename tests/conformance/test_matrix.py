"""docs/reference/conformance.md tells the truth."""

from __future__ import annotations

import pathlib

from atoll.testing.matrix import MEANINGS, page
from atoll.types import Capability

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"


def test_the_page_is_what_the_suite_says():
    assert PAGE.read_text() == page(), "run: python -m atoll.testing > docs/reference/conformance.md"


def test_every_capability_is_explained():
    assert set(MEANINGS) == set(Capability)


def test_the_page_shows_what_a_driver_refuses():
    rows = {row.split("`")[1]: row for row in page().splitlines() if row.startswith("| `")}
    assert "*refused*" in rows["IMAGE"]
    assert "*refused*" not in rows["CODE"]
