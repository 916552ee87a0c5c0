"""The command line is tested as it is used: the installed script, in a process of its own, with real sandboxes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import pytest

from atoll import Sandbox
from atoll.engine import launch

from .terminal import Terminal

SCRIPT = os.path.join(os.path.dirname(sys.executable), "atoll")
LONGEST = 60


class Done(NamedTuple):
    code: int
    out: bytes
    err: str


class Cli:
    """Runs `atoll` in a state directory of its own."""

    script = SCRIPT

    def __init__(self, home):
        self.home = home
        self._started = []

    def env(self, **more):
        unwanted = ("ATOLL_DRIVER", "NO_COLOR", "PYTHONDONTWRITEBYTECODE", "COLUMNS")
        kept = {name: value for name, value in os.environ.items() if name not in unwanted}
        return {**kept, "ATOLL_HOME": self.home, **more}

    def __call__(self, *words, input=None, env=None, cwd=None):
        """Run it to its end. Without `input` its standard input is empty."""
        done = subprocess.run(
            [SCRIPT, *words], input=input or b"", capture_output=True, env=self.env(**(env or {})), cwd=cwd,
            timeout=LONGEST, check=False,
        )  # fmt: skip
        err = done.stderr.decode()
        assert "Traceback" not in err, err
        return Done(done.returncode, done.stdout, err)

    def start(self, *words, **keywords):
        """Start it with pipes, for what happens while it runs. It ends with the test."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **keywords}
        self._started.append(subprocess.Popen([SCRIPT, *words], env=self.env(), **pipes))
        return self._started[-1]

    def close(self):
        for process in self._started:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()

    def terminal(self, *words, env=None):
        return Terminal([SCRIPT, *words], self.env(TERM="xterm", **(env or {})))

    def sandboxes(self):
        """The ids of those that exist, without the cost of a process."""
        return [info.id for info in Sandbox.list() if info.status != "gone"]


@pytest.fixture(scope="session")
def home():
    path = tempfile.mkdtemp(prefix="ac-", dir="/tmp")
    yield path
    launch.shut_down(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def atoll(home, monkeypatch):
    """The command line. A test that leaves a sandbox behind fails."""
    monkeypatch.setenv("ATOLL_HOME", home)
    cli = Cli(home)
    yield cli
    cli.close()
    left = cli.sandboxes()
    for id in left:
        Sandbox.connect(id).destroy()
    assert left == []


@pytest.fixture
def kept(atoll):
    """The id of a sandbox that ends with the test."""
    made = Sandbox.create()
    yield made.id
    made.destroy()


@pytest.fixture
def eventually():
    """Waits until something is so, instead of for a time that might be long enough."""

    def wait(condition, seconds=20.0):
        deadline = time.monotonic() + seconds
        while not (outcome := condition()):
            assert time.monotonic() < deadline, "it never became so"
            time.sleep(0.02)
        return outcome

    return wait


def stop(process, number=signal.SIGINT):
    """Send a signal and wait; gives the exit code and the rest of both streams."""
    process.send_signal(number)
    out, err = process.communicate(timeout=LONGEST)
    return process.returncode, out, err.decode()
