"""One keeper a sandbox, whoever asks for it at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from atoll.engine import claim, messages
from atoll.engine.layout import Layout
from atoll.engine.settings import BirthFailed
from atoll.errors import AtollError, Busy, Unsupported
from atoll.io import drive
from atoll.sync import Sandbox

_RESUME = """
import sys
from atoll.sync import Sandbox
box = Sandbox.connect(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
box.resume()
print(box.run("cat kept").stdout, end="")
"""


def _stopped() -> Sandbox:
    box = Sandbox.create()
    box.run("echo precious > kept", check=True)
    box.stop()
    return box


def _resumed_by_processes(box: Sandbox, count: int) -> list[str]:
    command = [sys.executable, "-c", _RESUME, box.id]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    processes = [subprocess.Popen(command, text=True, **pipes) for _ in range(count)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    return [process.communicate(timeout=60)[0] for process in processes]


def test_many_processes_that_resume_one_sandbox_all_find_it_with_its_files():
    box = _stopped()
    try:
        for _ in range(3):
            assert _resumed_by_processes(box, 4) == ["precious\n"] * 4
            box.stop()
    finally:
        box.destroy()


def test_many_threads_that_resume_one_sandbox_all_find_it_with_its_files():
    box = _stopped()
    outcomes: list[object] = []

    def resume(start: threading.Barrier) -> None:
        found = Sandbox.connect(box.id)
        start.wait(30)
        try:
            found.resume()
            outcomes.append(found.run("cat kept").stdout)
        except AtollError as error:
            outcomes.append(error)

    try:
        for _ in range(4):
            outcomes.clear()
            start = threading.Barrier(4)
            threads = [threading.Thread(target=resume, args=(start,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(90)
            assert outcomes == ["precious\n"] * 4
            Sandbox.connect(box.id).stop()
    finally:
        box.destroy()


@pytest.fixture
def places(tmp_path):
    found = Layout(str(tmp_path))
    for directory in (found.run, found.boxes, found.box("sb-x")):
        os.makedirs(directory, exist_ok=True)
    return found


def _claims_in_another_process(places: Layout) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            claim.claim(places, "sb-x")
        except BirthFailed as error:
            os._exit(3 if error.code == "busy" else 4)
        except BaseException:  # noqa: BLE001 - a fork of the tests must not go on
            os._exit(5)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 3)
    return code == 0


def test_a_claim_ends_with_its_process_and_excludes_others_until_then(places):
    assert _claims_in_another_process(places)
    assert _claims_in_another_process(places)
    claim.claim(places, "sb-x")
    assert not _claims_in_another_process(places)


def test_a_sandbox_that_is_kept_cannot_be_claimed_and_keeps_its_socket(places):
    with messages.listen(places.socket("sb-x")):
        assert not _claims_in_another_process(places)
        assert os.path.exists(places.socket("sb-x"))


def test_the_socket_of_a_dead_keeper_is_no_obstacle(places):
    messages.listen(places.socket("sb-x")).close()
    assert _claims_in_another_process(places)
    messages.listen(places.socket("sb-x")).close()


def test_a_sandbox_without_files_cannot_be_claimed(places):
    os.rmdir(places.box("sb-x"))
    with pytest.raises(BirthFailed, match="destroyed"):
        claim.claim(places, "sb-x")


_FORKING = """
import os
while True:
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        pass
"""


def test_a_sandbox_that_forks_all_the_time_is_paused_or_says_why_not_and_obeys_afterwards():
    with Sandbox.create() as box:
        box.start(["python3", "-c", f"import os\nfor _ in range(8):\n    if not os.fork(): break\n{_FORKING}"])
        begun = time.monotonic()
        try:
            box.pause()
        except Busy as error:
            assert "cannot be paused now" in str(error)  # noqa: PT017 - either end is right
        else:
            assert box.info.status == "paused"
            box.resume()
        assert time.monotonic() - begun < 20
        assert box.run("echo works").stdout == "works\n"


def test_a_keeper_that_does_not_know_a_request_is_of_an_older_atoll():
    with Sandbox.create() as box:
        record = box._core._record
        with pytest.raises(Unsupported, match=r"was made by an older atoll, which cannot do that\. Stop and resume it"):
            drive(record.driver._ask(record.handle, {"op": "of tomorrow"}))
        assert box.run("echo on").stdout == "on\n"
