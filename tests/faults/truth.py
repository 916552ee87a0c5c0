"""What must be true again after any fault."""

import os
import socket

from tests.escape import residue
from tests.escape.harness import eventually


def answers(path):
    """Whether somebody listens on a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        directory = os.open(os.path.dirname(path), os.O_PATH)
        try:
            return sock.connect_ex(f"/proc/self/fd/{directory}/{os.path.basename(path)}") == 0
        finally:
            os.close(directory)


def boxes(maker):
    return set(os.listdir(f"{maker.state}/jail/boxes"))


def sockets(maker):
    return {name for name in os.listdir(f"{maker.state}/jail/run") if name.startswith("sb-")}


def check(maker, living=()):
    """The listing tells the truth, those that live answer, and nothing is left of the others.

    A new zygote is started first, for it sweeps.
    """
    maker.call("shut_down")
    maker.create().destroy()
    maker.list()
    listed = {info["id"]: info["status"] for info in maker.list()}
    assert listed == {box.id: "running" for box in living}
    for box in living:
        assert box.run("echo alive")["stdout"] == "alive\n"
    eventually(lambda: is_tidy(maker, {box.id for box in living}), "every box has a keeper and every keeper a box")


def is_tidy(maker, living):
    """Whether what is on disk is what lives or waits for a user, and nothing else."""
    names = boxes(maker)
    return (
        living <= names
        and names == sockets(maker)
        and all(answers(f"{maker.state}/jail/run/{name}") for name in names)
        and set(residue.loop_devices(f"{maker.state}/jail/boxes")) == _loops_of(maker, names)
    )


def _loops_of(maker, names):
    found = set()
    for name in names:
        found |= set(residue.loop_devices(f"{maker.state}/jail/boxes/{name}"))
    return found
