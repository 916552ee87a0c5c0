"""docs/reference/conformance.md tells the truth."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap

import pytest

from atoll.testing.matrix import MEANINGS, drivers, expected, page
from atoll.testing.record import read
from atoll.types import Capability

REFERENCE = pathlib.Path(__file__).parents[2] / "docs" / "reference"
RECORD = str(REFERENCE / "conformance.json")
PAGE = REFERENCE / "conformance.md"
ALL = drivers()


def test_the_page_is_what_was_written_down():
    assert PAGE.read_text() == page(read(RECORD)), "run: make matrix"


@pytest.mark.parametrize("driver", ALL, ids=lambda driver: driver.name)
def test_each_driver_was_seen_to_pass_what_it_declares(driver):
    """The run itself is the class in this directory; what was written down must not be that of another suite."""
    assert read(RECORD).get(driver.name, frozenset()) == expected(driver), "run: make matrix"


@pytest.mark.parametrize("driver", ALL, ids=lambda driver: driver.name)
def test_each_driver_is_held_to_it_in_ci(driver):
    source = (pathlib.Path(__file__).parent / f"test_{driver.name.replace('-', '_')}.py").read_text()
    assert f'driver = "{driver.name}"' in source


def test_every_capability_is_explained():
    assert set(MEANINGS) == set(Capability)


def test_the_page_shows_what_a_driver_refuses():
    rows = {row.split("`")[1]: row for row in page(read(RECORD)).splitlines() if row.startswith("| `")}
    assert "*refused*" in rows["IMAGE"]
    assert "*refused*" not in rows["LIFETIME"]


def test_what_fails_or_is_skipped_is_not_written_down(tmp_path):
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            import pytest

            @pytest.fixture(autouse=True)
            def told(record_property):
                record_property("atoll_driver", "wall")

            def test_good(): pass
            def test_bad(): assert False
            def test_left_out(): pytest.skip("why")
            """
        )
    )
    record = tmp_path / "record.json"
    record.write_text('{"test_old": ["wall", "other"]}')
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "atoll.testing.record"]
    command += ["--record-conformance", str(record), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert read(str(record)) == {"wall": {"test_good"}, "other": {"test_old"}}
