"""The table of processes and their rights in docs/explanation/security.md, compared with processes that run."""

import contextlib
import os
import threading
from pathlib import Path

import pytest
from tests.escape import residue
from tests.escape.harness import eventually

PAGE = Path(__file__).parents[2] / "docs/explanation/security.md"
_COLUMNS = ("process", "id", "capabilities", "namespaces of its own", "filter", "whose bytes it reads")


def table():
    """Its rows by the names of processes."""
    lines = PAGE.read_text().split("## Who has which rights")[1].split("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert tuple(rows[0]) == _COLUMNS
    return {row[0].strip("`"): dict(zip(_COLUMNS, row, strict=True)) for row in rows[2:]}


def rights(pid, user):
    """What the kernel says of a process, in the words of the table."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    ids = {*status["Uid"].split(), *status["Gid"].split()}
    sets = {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    own = {name for name in os.listdir("/proc/self/ns") if not name.endswith("_for_children")}
    own = {name for name in own if os.readlink(f"/proc/{pid}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}")}
    return {
        "id": "yours" if ids == {str(user)} else "the sandbox's" if len(ids) == 1 else str(ids),
        "capabilities": "none" if sets == {0} else "all",
        "namespaces of its own": ", ".join(sorted(own)) or "none",
        "filter": "no" if status["Seccomp"] == "0" else "yes",
    }


def name_of(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def below(pid):
    return [each for each, _ in residue.descendants(pid)]


def expected(row, maker):
    wanted = {column: row[column] for column in _COLUMNS[1:5]}
    if maker.name == "user":
        wanted["id"] = "yours"
        if wanted["capabilities"] == "all":
            wanted["namespaces of its own"] += ", user"
    return wanted


def test_everybody_has_the_rights_that_the_table_says(maker):
    rows = table()
    box = maker.box
    box.run("true")
    box.try_cell(nothing)
    guest = below(box.handle["pid"])[1]
    contexts = below(guest)[1:]
    assert contexts
    for pid in contexts:
        assert rights(pid, maker.uid) == expected(rows["contexts, commands"], maker)
    assert rights(guest, maker.uid) == expected(rows["the guest"], maker)
    outside = {pid: name_of(pid) for pid in below(maker.zygote()) if name_of(pid).startswith("atoll-")}
    assert {"atoll-zygote", "atoll-stem", "atoll-keeper"} <= set(outside.values())
    assert outside[box.handle["pid"]] == "atoll-keeper"
    for pid, name in outside.items():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # of those that are just going
            found, wanted = rights(pid, maker.uid), expected(rows[name], maker)
            if name == "atoll-midwife":
                # Those of the sandbox that it makes are its own, too, from some moment on until it goes.
                found.pop("namespaces of its own")
                wanted.pop("namespaces of its own")
            assert found == wanted, name


def nothing():
    return None


def test_everybody_is_in_the_table(maker):
    """Between the zygote and the guests there is nobody else."""
    maker.box.run("true")
    names = {name_of(pid) for pid in below(maker.zygote())}
    assert {name for name in names if name.startswith("atoll-")} <= set(table())


def test_an_errand_has_the_rights_that_the_table_says(maker):
    """It is there for a moment only: one looks until it is seen."""
    row, found = expected(table()["atoll-errand"], maker), []
    with contextlib.closing(Snapshots(maker)) as snapshots:

        def look():
            for pid in below(snapshots.keeper)[1:]:
                if name_of(pid) == "atoll-errand":
                    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                        found.append(rights(pid, maker.uid))
            return found

        eventually(look, "an errand is seen")
    assert all(each == row for each in found), found


class Snapshots:
    """A sandbox of which snapshots are made until this is closed."""

    def __init__(self, maker):
        self._box = maker.create()
        self.keeper = self._box.handle["pid"]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._make)
        self._thread.start()

    def _make(self):
        while not self._over.is_set():
            self._box.call("snapshot")

    def close(self):
        self._over.set()
        self._thread.join()
        self._box.destroy()


@pytest.mark.parametrize("process", ["the guest", "contexts, commands"])
def test_who_runs_hostile_code_has_nothing(process):
    row = table()[process]
    assert (row["id"], row["capabilities"], row["filter"]) == ("the sandbox's", "none", "yes")
