"""A state directory that is full, deep, closed, broken, removed or not ours."""

import errno
import os
import shutil
import subprocess

import pytest
from tests.escape import residue
from tests.escape.harness import USER, Maker, Refused, eventually
from tests.faults import truth


def refused(call, *arguments, **keywords):
    """The error that a call ends with."""
    with pytest.raises(Refused) as caught:
        call(*arguments, **keywords)
    return caught.value


def remove(state):
    """As somebody would who does not know what it is, and at once, though others still write to it."""
    os.rename(state, f"{state}.removed")
    eventually(
        lambda: shutil.rmtree(f"{state}.removed", ignore_errors=True) or not os.path.exists(f"{state}.removed"),
        "it is gone",
    )


def fill(path):
    """Write until the disk is full."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        while os.write(fd, bytes(4096)):
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    finally:
        os.close(fd)


@pytest.fixture
def elsewhere(request):
    """Makers whose state is at a path below their home."""
    made = []

    def get(path, **keywords):
        uid = 0 if os.getuid() == 0 else os.getuid()
        maker = Maker("state", uid, state=path, **keywords)
        made.append(maker)
        return maker

    yield get
    for maker in made:
        maker.close()


def test_a_path_longer_than_a_socket_address_works(elsewhere):
    maker = elsewhere("/".join(["a-rather-long-name-of-a-directory"] * 6))
    assert len(maker.state) > 200
    with maker.create() as box:
        assert box.run("echo deep")["stdout"] == "deep\n"
        twin = maker.twin()
        twin.call("connect", id=box.id)
        assert twin.call("method", id=box.id, name="run", arguments=["echo x"], keywords={})["stdout"] == "x\n"
        twin.leave()
    truth.check(maker)


def test_a_path_with_odd_characters_works(elsewhere):
    maker = elsewhere("a b,c:d\\e'f\"g")
    os.makedirs(f"{maker.home}/src")
    with maker.create(source=f"{maker.home}/src", preset="full-access") as box:
        assert box.run("echo odd > file && cat file")["stdout"] == "odd\n"
    truth.check(maker)


@pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0, to be another user")
def test_a_state_that_cannot_be_written_is_told():
    maker = Maker("closed", USER, state="private/state")
    os.makedirs(f"{maker.home}/private", mode=0o500)
    os.chown(f"{maker.home}/private", USER, USER)
    error = refused(maker.create)
    assert error.type == "StoreError"
    assert "Permission denied" in error.message
    assert "ATOLL_HOME" in error.message
    os.chmod(f"{maker.home}/private", 0o700)
    maker.create().destroy()
    maker.close()


def test_a_state_that_others_may_write_is_refused(elsewhere):
    maker = elsewhere("shared")
    os.mkdir(maker.state)
    open(f"{maker.state}/somebody's", "w").close()
    os.chmod(maker.state, 0o777)
    error = refused(maker.create)
    assert error.type == "StoreError"
    assert "chmod 700" in error.message
    os.chmod(maker.state, 0o700)
    maker.create().destroy()


@pytest.mark.skipif(os.getuid() != 0, reason="needs uid 0, to mount a small disk")
def test_a_full_disk_is_told_and_nothing_is_left(elsewhere):
    maker = elsewhere("small")
    os.mkdir(maker.state, 0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "none", maker.state], check=True)
    try:
        living = maker.create()
        fill(f"{maker.state}/ballast")
        errors = []
        for _ in range(12):
            try:
                maker.create().destroy()
            except Refused as refusal:
                errors.append(refusal.type)
        assert errors
        assert set(errors) <= {"StoreError", "DiskFull", "CreateFailed", "WallUnavailable", "SandboxError"}
        assert living.run("echo alive")["stdout"] == "alive\n"
        os.unlink(f"{maker.state}/ballast")
        truth.check(maker, [living])
        living.destroy()
        truth.check(maker)
    finally:
        maker.call("end")
        subprocess.run(["umount", "-l", maker.state], check=True)


def test_a_registry_that_is_no_registry_is_told(elsewhere):
    maker = elsewhere("broken")
    box = maker.create()
    processes = residue.descendants(box.handle["pid"])
    for name in ("registry.db", "registry.db-wal", "registry.db-shm"):
        with open(f"{maker.state}/{name}", "wb") as file:
            file.write(b"this is no database " * 500)
    twin = maker.twin()
    error = refused(twin.list)
    assert error.type == "StoreError"
    assert "Move the file away" in error.message
    assert refused(twin.create).type == "StoreError"
    for name in ("registry.db", "registry.db-wal", "registry.db-shm"):
        os.unlink(f"{maker.state}/{name}")
    twin.leave()
    another = maker.twin()
    assert another.list() == []
    another.leave()
    # Whoever still holds it can end it, though no list names it.
    assert refused(box.destroy).type == "StoreError"
    eventually(lambda: residue.traces(maker, box, processes) == {}, "nothing is left")
    maker.restart()
    truth.check(maker)


def test_a_state_that_is_removed_takes_its_sandboxes_with_it(maker):
    maker.call("start_zygote", before="from atoll.engine import keeper; keeper.TURN = 0.3")
    box = maker.create()
    box.run("sleep 800 & echo", check=True)
    processes = residue.descendants(box.handle["pid"])
    remove(maker.state)
    error = refused(box.run, "true", timeout=5) if not residue.is_alive(processes[0]) else None
    assert error is None or error.type in ("SandboxGone", "StoreError")
    eventually(lambda: not any(map(residue.is_alive, processes)), "nobody can reach it, so it ends")
    assert residue.control_groups(box.id) == []
    truth.check(maker)


def test_destroy_ends_a_sandbox_whose_state_was_removed(maker):
    box = maker.create()
    processes = residue.descendants(box.handle["pid"])
    remove(maker.state)
    box.destroy()
    eventually(lambda: not any(map(residue.is_alive, processes)), "it is dead")
    assert residue.control_groups(box.id) == []
    truth.check(maker)


def test_a_resume_that_fails_keeps_the_files(maker):
    box = maker.create()
    box.call("files.write", "kept.txt", "kept")
    box.call("stop")
    maker.call("shut_down")
    maker.call("start_zygote", before="from atoll.engine import jail; jail.close = None")
    assert refused(box.call, "resume").type == "CreateFailed"
    maker.call("shut_down")
    assert [info["status"] for info in maker.list()] == ["stopped"]
    box.call("resume")
    assert box.call("files.read", "kept.txt") == "kept"
    box.destroy()
    truth.check(maker)
