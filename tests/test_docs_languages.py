"""The code in docs/how-to/languages-and-sessions.md runs, and its table is the guest's."""

from __future__ import annotations

import pathlib
import re
import shutil

import pytest

from atoll.guest.toolchains import LANGUAGES

PAGE = (pathlib.Path(__file__).parents[1] / "docs" / "how-to" / "languages-and-sessions.md").read_text()
BLOCKS = re.findall(r"(<!-- no test.*-->\n)?```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.skipif(shutil.which("node", path="/usr/bin:/bin") is None, reason="a sandbox sees no node here")
@pytest.mark.parametrize("code", [code for untested, code in BLOCKS if not untested])
def test_the_code_runs(code, capsys):
    exec(compile(code, "languages-and-sessions.md", "exec"), {})


def test_the_page_names_every_language():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z0-9]+)`", "|".join(row.split("|")[1:3]))}
    assert named == {name for language in LANGUAGES for name in language.names} - {"python3"}
