"""A sandbox that has ended leaves nothing: no process, mount, control group, socket, file, interface or device."""

import os
import socket

import pytest
from tests.escape import residue
from tests.escape.harness import eventually


def all_processes(box):
    return residue.descendants(box.handle["pid"])


def check_gone(maker, box, processes):
    """At once, but for the keeper itself and the sockets that it has just answered by: it is about to end."""
    keeper = [each for each in processes if each[0] == box.handle["pid"]]
    left = residue.traces(maker, box, [each for each in processes if each not in keeper])
    assert left.keys() <= {"sockets"}, left
    eventually(lambda: residue.traces(maker, box, processes) == {}, "the keeper is gone")


def leave_things_behind(box):
    """Processes in the background, deep trees, odd modes."""
    box.run("(setsid sleep 1000 &) ; nohup sleep 1001 >/dev/null 2>&1 & echo started", check=True)
    box.run(
        "mkdir -p a/b/c && echo x > a/b/c/d && chmod 000 a/b && mkfifo pipe && ln -s / root && touch $(printf '\\377')"
    )
    box.code("import os; pid = os.fork()\nif pid == 0:\n    import time; time.sleep(1000)")


WISHES = {
    "plain": {},
    "disk": {"resources": {"disk": "32M"}},
    "workdir": {"workdir": "/elsewhere/deep"},
    "env": {"env": {"A": "b"}},
    "host network": {"network": "host"},
}


@pytest.mark.parametrize("wish", sorted(WISHES))
def test_destroy_leaves_nothing(maker, wish):
    box = maker.create(**WISHES[wish])
    leave_things_behind(box)
    processes = all_processes(box)
    before = residue.traces(maker, box, processes)
    assert {"processes", "sockets", "files"} <= set(before)
    assert len(before["processes"]) >= 5
    box.destroy()
    check_gone(maker, box, processes)


def test_destroy_of_a_sandbox_over_a_source_leaves_nothing(maker):
    tree = f"{maker.home}/source-to-leave"
    os.makedirs(tree)
    with open(f"{tree}/file", "w") as file:
        file.write("x")
    os.chown(tree, maker.uid, maker.uid)
    box = maker.create(source=tree, preset="full-access")
    leave_things_behind(box)
    processes = all_processes(box)
    assert "files" in residue.traces(maker, box, processes)
    box.destroy()
    check_gone(maker, box, processes)
    assert os.listdir(tree) == ["file"]


def test_the_end_of_a_lifetime_leaves_nothing(maker):
    box = maker.create()
    leave_things_behind(box)
    processes = all_processes(box)
    box.call("set_lifetime", 0.3)
    eventually(lambda: residue.traces(maker, box, processes) == {}, "everything of it is gone")
    assert [info["status"] for info in maker.list() if info["id"] == box.id] == ["gone"]
    assert box.id not in [info["id"] for info in maker.list()]


def test_stop_keeps_the_files_only_and_destroy_removes_them(maker):
    box = maker.create()
    box.call("files.write", "kept.txt", "x")
    leave_things_behind(box)
    processes = all_processes(box)
    box.call("stop")
    eventually(lambda: set(residue.traces(maker, box, processes)) == {"files"}, "only files are left")
    box.destroy()
    check_gone(maker, box, processes)


def test_a_paused_sandbox_can_be_destroyed(maker):
    box = maker.create()
    leave_things_behind(box)
    processes = all_processes(box)
    box.call("pause")
    box.destroy()
    check_gone(maker, box, processes)


def test_many_sandboxes_later_only_those_that_wait_for_a_user_are_there(maker):
    """Zygote, stem and the parked ones are always there; nothing is left beside them."""
    zygote = maker.zygote()
    for _ in range(20):
        maker.create().destroy()

    def tidy():
        """Whether every box has a keeper, every keeper a box, and the zygote a link to each and little else."""
        boxes = set(os.listdir(f"{maker.state}/jail/boxes"))
        sockets = {name for name in os.listdir(f"{maker.state}/jail/run") if name.startswith("sb-")}
        family = len(residue.siblings(zygote))
        links = len(os.listdir(f"/proc/{zygote}/fd"))
        # With each sandbox goes its keeper, its first process, and a context that was made ahead.
        small = family <= 2 + 3 * len(boxes) and links <= 14 + len(boxes)
        return boxes == sockets and small and all(map(answers, (f"{maker.state}/jail/run/{name}" for name in boxes)))

    eventually(tidy, "nothing is left of twenty sandboxes")


def answers(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        return sock.connect_ex(path) == 0
