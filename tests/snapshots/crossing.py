"""A program that makes and exports snapshots, or imports them and tells of what is in them, as whoever runs it.

python -m tests.snapshots.crossing export DIRECTORY | import DIRECTORY
"""

from __future__ import annotations

import pathlib
import sys

from tests.snapshots import kinds

from atoll import Sandbox, Snapshots


def export(directory):
    """Two snapshots in a row, each as a file and what is in it as text."""
    with Sandbox.create() as box:
        box.run_code("x = 42")
        for name, work in (("one", kinds.make), ("two", kinds.change)):
            work(box)
            box.run(f"mkdir -p {name}/sub && mv {name} moved-{name}", check=True)
            box.snapshot(name)
            (directory / f"{name}.txt").write_text("\n".join(kinds.tell(box)))
    for each in Snapshots().list():
        Snapshots().export(each.name, directory / f"{each.name}.tar")
        (directory / f"{each.name}.tar").chmod(0o644)
        Snapshots().delete(each.name)


def import_all(directory):
    """Raises AssertionError unless all of it is as it was, and would be written the same way again."""
    for name in ("one", "two"):
        Snapshots().import_file(directory / f"{name}.tar")
        with Sandbox.create(snapshot=name) as box:
            assert kinds.tell(box) == (directory / f"{name}.txt").read_text().split("\n")
            assert box.run_code("x").text == "42"
        own = pathlib.Path.home() / "again.tar"
        Snapshots().export(name, own)
        assert own.read_bytes() == (directory / f"{name}.tar").read_bytes()
    for name in ("one", "two"):
        Snapshots().delete(name)


if __name__ == "__main__":
    {"export": export, "import": import_all}[sys.argv[1]](pathlib.Path(sys.argv[2]))
