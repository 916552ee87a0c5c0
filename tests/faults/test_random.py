"""kill -9 at random points, by a seed that a failure names: afterwards the truth on disk is checked."""

import contextlib
import os
import random
import signal
import time

from tests import thorough
from tests.escape import residue
from tests.escape.harness import Box, Refused
from tests.faults import truth

ROUNDS = thorough.amount(12, 6)
# Whatever is killed, a caller hears one of these and nothing else.
TYPED = {"SandboxGone", "CreateFailed", "WallUnavailable", "Unresponsive", "ProtocolError", "Busy", "SandboxNotFound"}


def victims(maker, zygote):
    """Every process of the engine and of its sandboxes."""
    family = residue.siblings(zygote)
    return sorted({pid for each in family for pid, _ in residue.descendants(each)})


def settle(pending):
    """The type of the error that it ended with, or None."""
    try:
        pending.get()
    except Refused as refusal:
        return refusal.type
    return None


def test_whoever_is_killed_whenever_the_truth_is_told_afterwards(maker):
    chance = random.Random(thorough.SEED)
    boxes = [maker.create() for _ in range(2)]
    errors = set()
    for _ in range(ROUNDS):
        zygote = maker.zygote()
        pending = [box.begin("run", "echo x; sleep 0.02; echo y") for box in boxes]
        pending += [box.begin("run_code", "sum(range(10000))") for box in boxes]
        fresh = [maker.begin("create") for _ in range(2)]
        time.sleep(chance.random() * 0.05)
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(victims(maker, zygote) or [zygote]), signal.SIGKILL)
        errors |= {settle(each) for each in pending}
        for each in fresh:
            with contextlib.suppress(Refused):
                boxes.append(Box(maker, **each.get()))
        boxes = [box for box in boxes if settle(box.begin("run", "true")) is None][-4:]
        for info in maker.list():
            if info["status"] == "running" and info["id"] not in [box.id for box in boxes]:
                maker.call("connect", id=info["id"])
                with contextlib.suppress(Refused):
                    maker.call("method", id=info["id"], name="destroy", arguments=[], keywords={})
    assert errors - {None} <= TYPED
    truth.check(maker, boxes)
    for box in boxes:
        box.destroy()
    truth.check(maker)
