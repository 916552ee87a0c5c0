"""Forking contexts while they live, as the driver does, into sandboxes that are made here the ordinary way."""

from __future__ import annotations

import contextlib
import glob
import os

from atoll.io import drive
from atoll.sync import Sandbox


def driver_of(box):
    return box._core._record.driver


def handle_of(box):
    return box._core._record.handle


@contextlib.contextmanager
def held(box, wait=10.0):
    """Gives what the driver tells of the contexts that stand still."""
    contexts = drive(driver_of(box).hold(handle_of(box), wait))
    try:
        yield contexts
    finally:
        drive(driver_of(box).release(handle_of(box)))


def transplant(box, *twins):
    return drive(driver_of(box).transplant(handle_of(box), [handle_of(twin) for twin in twins]))


def fork(box, *twins):
    """Bring all contexts of a sandbox into others; gives what became of each, by sandbox and name."""
    with held(box):
        return {made["id"]: {each["name"]: each for each in made["contexts"]} for made in transplant(box, *twins)}


def all_live(outcome):
    return all(each["live"] for contexts in outcome.values() for each in contexts.values())


def text(box, code, **keywords):
    """The value of a cell, as Python shows it."""
    done = box.run_code(code, **keywords)
    assert done.error is None, done.error.traceback
    return done.text


def members(box):
    """The processes whose memory counts for a sandbox, as the host numbers them."""
    found = set()
    for path in glob.glob(f"/sys/fs/cgroup/memory/atoll/{box.id}/cgroup.procs"):
        with open(path, encoding="ascii") as file:
            found |= {int(line) for line in file}
    return found


def context_process(box, name="main"):
    """A context's process, as the host numbers it."""
    (inner,) = [each.pid for each in box.contexts.list() if each.name == name]
    for pid in members(box):
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            numbers = next(line for line in file if line.startswith("NSpid:")).split()[1:]
        if len(numbers) > 1 and int(numbers[-1]) == inner:
            return pid
    raise AssertionError(f"no process of {box.id} calls itself {inner}")


def traces(box):
    groups = glob.glob(f"/sys/fs/cgroup/*/atoll/{box.id}")
    home = os.environ["ATOLL_HOME"]
    return [*groups, *glob.glob(f"{home}/jail/run/{box.id}"), *glob.glob(f"{home}/jail/boxes/{box.id}*")]


def new(stack, **wishes):
    return stack.enter_context(Sandbox.create(**wishes))
