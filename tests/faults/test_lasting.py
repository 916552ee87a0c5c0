"""A machine that stops: all of atoll's processes are killed at once, and what had a checkpoint comes back."""

import contextlib
import os
import signal

import pytest
from tests.escape import residue
from tests.escape.harness import Refused, eventually
from tests.faults import truth
from tests.faults.test_kills import first_process, stem_of

STATE = "x = [1]\ndef f(): return x\nclass C:\n    def m(self): return f()\nc = C()\nimport math, os\nos.chdir('/tmp')"
QUESTION = "c.m() is x and math.pi > 3 and os.getcwd() == '/tmp'"


def text(execution):
    return execution["results"][0]["data"]["text/plain"]


def crash(maker, *boxes):
    """kill -9 of the zygote, its stem, the keepers and all behind the walls, as near to at once as can be."""
    zygote = maker.zygote()
    pids = [zygote, stem_of(zygote)]
    for box in boxes:
        pids += [box.handle["pid"], first_process(box)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # the death of one before it was its own
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: all(residue.start_time(pid) is None for pid in pids), "what was killed is dead")


def test_after_a_crash_the_last_checkpoint_and_the_files_come_back(maker):
    kept, other = maker.create(), maker.create()
    kept.code(STATE)
    assert kept.call("checkpoint")["lost"] == {}
    kept.code("x = 2; lost = 1")
    kept.run("echo written later > note")
    crash(maker, kept, other)
    assert {info["id"]: info["status"] for info in maker.list()} == {kept.id: "stopped", other.id: "gone"}
    maker.call("connect", id=kept.id)
    kept.call("resume")
    assert text(kept.code(QUESTION)) == "True"
    assert kept.code("lost")["error"]["name"] == "NameError"
    assert kept.run("cat note")["stdout"] == "written later\n"
    truth.check(maker, [kept])
    kept.destroy()
    truth.check(maker)


def test_it_comes_back_as_often_as_the_machine_stops(maker):
    box = maker.create()
    box.code("n = 0")
    box.call("checkpoint")
    for expected in range(3):
        crash(maker, box)
        assert [info["status"] for info in maker.list()] == ["stopped"]
        maker.call("connect", id=box.id)
        box.call("resume")
        box.handle = maker.call("handle", id=box.id)
        assert text(box.code("n")) == str(expected)
        box.code("n += 1")
        box.call("checkpoint")
    box.destroy()
    truth.check(maker)


def test_a_guest_that_dies_leaves_a_stopped_sandbox_if_there_is_a_checkpoint(maker):
    kept, other = maker.create(), maker.create()
    kept.code("x = 1")
    kept.call("checkpoint")
    for box in (kept, other):
        os.kill(first_process(box), signal.SIGKILL)
    eventually(
        lambda: {info["id"]: info["status"] for info in maker.list()}.get(kept.id) == "stopped", "it counts as stopped"
    )
    with pytest.raises(Refused, match="gone"):
        other.run("true")
    maker.call("connect", id=kept.id)
    kept.call("resume")
    assert text(kept.code("x")) == "1"
    kept.destroy()
    other.destroy()
    truth.check(maker)


def test_a_crashed_one_ends_with_its_time(maker):
    box = maker.create(lifetime=600)
    box.code("x = 1")
    box.call("checkpoint")
    box.call("set_lifetime", 2.0)
    crash(maker, box)
    eventually(lambda: box.id not in {i["id"] for i in maker.list() if i["status"] == "stopped"}, "its time is over")
    truth.check(maker)


def test_a_crash_while_a_checkpoint_is_written_leaves_the_last_one(maker):
    box = maker.create(resources={"memory": "1G"})
    box.code("x = 'first'")
    box.call("checkpoint")
    box.code("x = 'second'; import os; large = [os.urandom(1 << 20) for _ in range(100)]")
    writing = box.begin("checkpoint")
    eventually(lambda: box.run("ls /home/user/.atoll/state | wc -l")["stdout"].strip() != "2", "it is being written")
    crash(maker, box)
    with pytest.raises(Refused):
        writing.get()
    maker.call("connect", id=box.id)
    box.call("resume")
    assert text(box.code("x")) in ("'first'", "'second'")
    box.destroy()
    truth.check(maker)
