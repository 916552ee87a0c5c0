"""A container engine for tests, of their own: another data directory, another socket, and none of it left at the end.

The workers of one run share it. It ends when nobody uses it any more, however they end: each holds a lock on a file,
which the kernel takes back.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).parents[1]
RUNSC = shutil.which("runsc")
# Debian's runsc takes every network namespace of a new kernel for the host's, and then refuses to use it.
_RUNSC_ARGUMENTS = ["--platform=ptrace", "--network=none"]
_BIRTH = 60
# Others on this machine may have an engine with the default networks.
_POOL = "base=10.213.0.0/16,size=24"

needs_docker = pytest.mark.skipif(
    shutil.which("dockerd") is None or os.geteuid() != 0, reason="needs dockerd (apt-get install docker.io), and root"
)


@contextlib.contextmanager
def shared_engine():
    """The engine that all workers of this run use; DOCKER_HOST says where it is."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    place = pathlib.Path(tempfile.gettempdir()) / f"atd-{run[:12]}"
    with _used(place):
        before = os.environ.get("DOCKER_HOST")
        os.environ["DOCKER_HOST"] = f"unix://{place}/docker.sock"
        try:
            yield place
        finally:
            os.environ.pop("DOCKER_HOST")
            if before is not None:
                os.environ["DOCKER_HOST"] = before


@contextlib.contextmanager
def _used(place):
    while True:
        place.mkdir(mode=0o700, exist_ok=True)
        try:
            users = os.open(place / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # one that was just ending has removed the directory
        fcntl.flock(users, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(place / "users").st_ino == os.fstat(users).st_ino:
                break
        os.close(users)  # of one that was just ending
    try:
        _start_once(place)
        yield
    finally:
        os.close(users)


def _start_once(place):
    with open(place / "starting", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if answers(place / "docker.sock"):
            return
        _launch([sys.executable, __file__, str(place)])
        until = time.monotonic() + _BIRTH
        while not answers(place / "docker.sock"):
            assert time.monotonic() < until, (place / "log").read_text()[-4000:]
            time.sleep(0.05)


def _launch(command):
    """Start a program that nobody waits for."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    actions = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1)]
    os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsid=True)
    os.close(null)


def answers(path):
    """Whether an engine serves there."""
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(str(path))
            sock.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b"OK" in sock.recv(4096)
        except OSError:
            return False


class Daemon:
    """A dockerd. `more` are arguments."""

    def __init__(self, place, *more):
        self.place = pathlib.Path(place)
        self.socket = self.place / "docker.sock"
        self._more = more
        self._process = None

    def start(self):
        settings = {"runtimes": {"runsc": {"path": RUNSC, "runtimeArgs": _RUNSC_ARGUMENTS}}} if RUNSC else {}
        (self.place / "daemon.json").write_text(json.dumps(settings))
        with contextlib.suppress(FileNotFoundError):
            (self.place / "pid").unlink()
        with open(self.place / "log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    "dockerd",
                    f"--config-file={self.place}/daemon.json",
                    f"--data-root={self.place}/data",
                    f"--exec-root={self.place}/exec",
                    f"--pidfile={self.place}/pid",
                    f"--host=unix://{self.socket}",
                    "--bridge=none",
                    "--iptables=false",
                    "--ip6tables=false",
                    f"--default-address-pool={_POOL}",
                    *self._more,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    def await_ready(self):
        until = time.monotonic() + _BIRTH
        while not answers(self.socket):
            assert self._process.poll() is None, (self.place / "log").read_text()[-4000:]
            assert time.monotonic() < until, (self.place / "log").read_text()[-4000:]
            time.sleep(0.05)
        return self

    @contextlib.contextmanager
    def stopped(self):
        """It takes connections, and answers nobody."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def kill(self, number=signal.SIGTERM):
        """End it; with SIGTERM it ends its containers too."""
        self._remove_networks()
        self._process.send_signal(number)
        self._process.wait(60)
        if number == signal.SIGKILL:
            self._kill_containerd()

    def _kill_containerd(self):
        """It is the engine's child here; elsewhere it is a service of its own. What it has started lives on."""
        pidfile = self.place / "exec/containerd/containerd.pid"
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(pidfile.read_text()), signal.SIGKILL)
            pidfile.unlink()  # nobody may take notice of its end, and the next engine would wait for it

    def _remove_networks(self):
        """An engine leaves their bridges behind when it ends, and atoll its rules for them."""
        docker = ["docker", f"--host=unix://{self.socket}", "network"]
        shown = [*docker, "inspect", "-f", "{{slice .Id 0 12}}", "atoll"]
        found = subprocess.run(shown, capture_output=True, text=True, check=False).stdout.strip()
        subprocess.run([*docker, "rm", "atoll"], capture_output=True, check=False)
        if found:
            subprocess.run(["nft", "delete", "table", "inet", f"atoll-br-{found}"], capture_output=True, check=False)

    def end(self):
        """For good, with its containers and all that it has left."""
        subprocess.run(
            f"docker --host=unix://{self.socket} ps -aq | xargs -r docker --host=unix://{self.socket} rm -f",
            shell=True, capture_output=True, check=False,
        )  # fmt: skip
        if self._process.poll() is None:
            self.kill()
        self.remove()

    def remove(self):
        """All that it has left: a killed one leaves containerd and mounts."""
        self._kill_containerd()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if words[0].endswith(b"containerd-shim-runc-v2") and f"{self.place}/".encode() in b" ".join(words):
                    os.kill(int(pid), signal.SIGKILL)
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            mounted = [line.split()[4] for line in file]
        for path in sorted((path for path in mounted if path.startswith(f"{self.place}/")), reverse=True):
            subprocess.run(["umount", "-l", path], check=False)
        # Who comes for the next engine waits at this file, until nothing of the last one is there any more.
        for path in self.place.iterdir():
            if path.name != "users":
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        (self.place / "users").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.place.rmdir()


def small_root(directory):
    """A root file system with a shell, a few tools and no Python, for an image that is made in no time."""
    root = directory / "small"
    if not root.exists():
        for path in ("/bin/sh", "/bin/cat", "/bin/sleep"):
            told = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
            for needed in [path, *(word for word in told.split() if word.startswith("/"))]:
                target = root / needed.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(needed, target)
        root.chmod(0o755)
    return root


def _supervise(place):
    """Be the process that keeps the engine, until nobody uses it."""
    daemon = Daemon(place).start()
    users = os.open(f"{place}/users", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(users, fcntl.LOCK_EX)
    finally:
        daemon.end()


if __name__ == "__main__":
    _supervise(sys.argv[1])
