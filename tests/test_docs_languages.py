"""The table in docs/how-to/languages-and-sessions.md is the guest's. Its code runs in test_docs.py."""

from __future__ import annotations

import pathlib
import re

from atoll.guest.toolchains import LANGUAGES

PAGE = (pathlib.Path(__file__).parents[1] / "docs" / "how-to" / "languages-and-sessions.md").read_text()


def test_the_page_names_every_language():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z0-9]+)`", "|".join(row.split("|")[1:3]))}
    assert named == {name for language in LANGUAGES for name in language.names} - {"python3"}
