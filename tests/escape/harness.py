"""What the escape tests stand on: a maker of sandboxes as root or as a user, and attempts that run on both sides.

An attempt is a plain function. Its source is sent inside the wall, or run by the same user outside of it, so
that what is refused inside is shown to work outside.
"""

import copy
import ctypes
import enum
import inspect
import itertools
import json
import os
import queue
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import cloudpickle
from tests.escape import prelude, residue

import atoll

USER = 61234
PATIENCE = 60.0
SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(atoll.__file__)))
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")

_MODULES = "ctypes, errno, fcntl, json, os, signal, socket, stat, struct, termios, time"
_PRELUDE = f"import {_MODULES}\n{inspect.getsource(prelude)}"


class Refused(Exception):
    """The worker's call raised; `type` is the name of the error's class."""

    def __init__(self, error):
        super().__init__(f"{error['type']}: {error['message']}")
        self.type = error["type"]
        self.message = error["message"]


class Pending:
    """An answer that is still to come."""

    def __init__(self):
        self._box = queue.Queue()

    def put(self, answer):
        self._box.put(answer)

    def get(self, timeout=PATIENCE):
        answer = self._box.get(timeout=timeout)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["value"]


class Box:
    """A sandbox, held by the worker."""

    def __init__(self, maker, id, info, handle):
        self.maker = maker
        self.id = id
        self.info = info
        self.handle = handle

    def begin(self, name, *arguments, **keywords):
        return self.maker.begin("method", id=self.id, name=name, arguments=arguments, keywords=keywords)

    def call(self, name, *arguments, **keywords):
        return self.begin(name, *arguments, **keywords).get()

    def run(self, command, **keywords):
        return self.call("run", command, **keywords)

    def code(self, code, **keywords):
        return self.call("run_code", code, **keywords)

    def try_cell(self, attempt, *arguments):
        """The outcome of an attempt in a context."""
        done = self.code(script(attempt, *arguments))
        return _last_line(done["stdout"], done)

    def try_command(self, attempt, *arguments):
        """The outcome of an attempt in a fresh process."""
        done = self.run(["python3", "-I", "-"], stdin=script(attempt, *arguments))
        return _last_line(done["stdout"], done)

    def destroy(self):
        self.call("destroy")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.destroy()


class Maker:
    """Makes sandboxes as one user, from a process of its own, in a state directory of its own."""

    def __init__(self, name, uid, devices=(), state="state", driver="jail", files=(), env=(), packages=""):
        """`devices` are paths of device nodes with their numbers, which only this maker sees, and may open.

        `files` are paths of programs with what this maker sees there instead; a program without content cannot be run.
        `env` is added to its environment. `packages` is a directory that it can import from.
        `state` is where the state directory is, below the home. `driver` is the wall of its sandboxes.
        """
        self.name = name
        self.driver = driver
        self._env = dict(env)
        self._packages = packages
        self.uid = uid
        self.top = tempfile.mkdtemp(prefix=f"at-{name}-", dir="/tmp")
        os.chmod(self.top, 0o755)
        self.home = f"{self.top}/home"
        self.state = f"{self.home}/{state}"
        os.mkdir(self.home, 0o700)
        if uid != os.getuid():
            os.chown(self.home, uid, uid)
        shutil.copytree(os.path.dirname(cloudpickle.__file__), f"{self.top}/lent/cloudpickle")
        self._shared = None
        self._bind = {self._make_device(path, number): path for path, number in dict(devices).items()}
        self._bind |= {self._make_file(path, content): path for path, content in dict(files).items()}
        self._numbers = itertools.count()
        self._waiting = {}
        self._box = None
        self._connect_worker()

    def _connect_worker(self):
        self._process = self._start()
        threading.Thread(target=self._read, args=(self._process, self._waiting), daemon=True).start()

    def _start(self):
        places = {"python": os.path.realpath(sys.base_prefix), "source": SOURCE, "tests": os.path.dirname(WORKER)}
        if self._packages:
            places["packages"] = self._packages
        if self.uid != os.getuid():
            places = {name: self._share(name, path) for name, path in places.items()}
        python = f"{places['python']}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        self.prefix, self.source = places["python"], places["source"]
        path = ":".join([places["source"], f"{self.top}/lent", *([places["packages"]] if self._packages else ())])
        env = {"PATH": "/usr/bin:/bin", "HOME": self.home, "ATOLL_HOME": self.state, "PYTHONPATH": path,
               "PYTHONDONTWRITEBYTECODE": "1", "ATOLL_TEST_SECRET": "secret-of-the-maker",
               "ATOLL_DRIVER": self.driver, **self._env}  # fmt: skip
        return subprocess.Popen(
            [python, "-S", f"{places['tests']}/worker.py"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, cwd="/", preexec_fn=self._become,  # noqa: PLW1509  # it takes no lock
        )  # fmt: skip

    def _make_device(self, path, number):
        node = f"{self.top}/{os.path.basename(path)}"
        os.mknod(node, stat.S_IFCHR | 0o666, number)
        os.chmod(node, 0o666)
        return node

    def _make_file(self, path, content):
        own = f"{self.top}/{os.path.basename(path)}"
        with open(own, "wb") as file:
            file.write(content)
        os.chmod(own, 0o755 if content else 0o644)
        return own

    def _share(self, name, path):
        """Where the other user finds a directory that may lie below a private home: bound in its own mounts."""
        if path in self._bind or _open_to_all(path):
            return self._bind.get(path, path)
        if self._shared is None:
            # Not in /tmp, which a sandbox has one of its own of.
            self._shared = tempfile.mkdtemp(prefix=f"at-{self.name}-", dir="/opt")
            os.chmod(self._shared, 0o755)
        target = f"{self._shared}/{name}"
        os.mkdir(target, 0o755)
        self._bind[path] = target
        return target

    def _become(self):
        if self.uid == os.getuid():
            return
        if self._bind:
            libc = ctypes.CDLL(None, use_errno=True)
            unshared = libc.unshare(0x20000) == 0 and libc.mount(None, b"/", None, 0x44000, None) == 0
            if not unshared or any(
                libc.mount(source.encode(), target.encode(), None, 0x5000, None)
                for source, target in self._bind.items()
            ):
                raise OSError(ctypes.get_errno(), "bind")
        os.setgroups([])
        os.setresgid(self.uid, self.uid, self.uid)
        os.setresuid(self.uid, self.uid, self.uid)

    def _read(self, process, waiting):
        with process.stdout:
            for line in process.stdout:
                answer = json.loads(line)
                waiting.pop(answer["number"]).put(answer)
        for pending in list(waiting.values()):
            pending.put({"error": {"type": "WorkerDied", "message": "the worker ended"}})

    def begin(self, op, **arguments):
        number = next(self._numbers)
        pending = self._waiting[number] = Pending()
        self._process.stdin.write(json.dumps({"number": number, "op": op, "with": arguments}) + "\n")
        self._process.stdin.flush()
        return pending

    def call(self, op, **arguments):
        return self.begin(op, **arguments).get()

    def create(self, **wishes):
        made = self.call("create", **wishes)
        return Box(self, **made)

    @property
    def box(self):
        """A sandbox for attempts that leave it as it was."""
        if self._box is None:
            self._box = self.create()
        return self._box

    def try_outside(self, attempt, *arguments):
        """The outcome of an attempt by the same user without a wall: the positive control."""
        done = self.call("outside", source=script(attempt, *arguments))
        return _last_line(done["stdout"], done)

    def list(self):
        return self.call("listing")

    def give_file(self, name, text):
        """A host file that this maker may read and write; its path."""
        path = f"{self.home}/{name}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o666)
        os.chown(path, self.uid, self.uid)
        return path

    def zygote(self):
        """The pid of this maker's zygote."""
        return self.call("zygote")

    def restart(self):
        """Kill the worker, as the kernel would, and begin anew with another."""
        self._process.kill()
        self._process.wait(PATIENCE)
        self._process.stdin.close()
        self._waiting, self._box = {}, None
        self._connect_worker()

    def twin(self):
        """Another process of the same user with the same state; end it with `leave`."""
        twin = copy.copy(self)
        twin._waiting, twin._box = {}, None
        twin._connect_worker()
        return twin

    def leave(self):
        self._process.stdin.close()
        self._process.wait(PATIENCE)

    def close(self):
        """End everything, and look that it has ended."""
        # A zygote, its keepers and what they remove last have a mount namespace of their own.
        ours = {residue.mount_namespace(pid) for pid in self.call("zygotes")} - {None}
        self.call("end")
        self.leave()
        for mounts in ours:
            eventually(lambda mounts=mounts: not residue.in_mount_namespace(mounts), "zygotes and keepers are gone")
        # What has a mount namespace that this process may not see is not waited for, and removes its own at its end.
        for directory in filter(None, (self.top, self._shared)):
            shutil.rmtree(directory, ignore_errors=True)
            eventually(
                lambda path=directory: not os.path.exists(path) or shutil.rmtree(path, True), f"{directory} goes"
            )


def script(attempt, *arguments):
    """Python source that prints the outcome of an attempt as one line of JSON."""
    source = textwrap.dedent(inspect.getsource(attempt))
    # Members of an enumeration, such as socket.AF_INET, go as the numbers that they are.
    plain = [int(each) if isinstance(each, enum.IntEnum) else each for each in arguments]
    passed = ", ".join([attempt.__name__, *map(repr, plain)])
    return f"{_PRELUDE}\n{source}\nprint(json.dumps(outcome({passed})), flush=True)\n"


def _last_line(text, whole):
    lines = text.strip().splitlines()
    assert lines, f"the attempt said nothing: {whole}"
    return json.loads(lines[-1])


def _open_to_all(path):
    """Whether any user may read below a directory."""
    while path != "/":
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
        path = os.path.dirname(path)
    return True


def eventually(check, what, timeout=PATIENCE):
    """Wait until `check` gives something true; its value."""
    deadline = time.monotonic() + timeout
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < deadline, f"it never came true: {what}"
        time.sleep(0.02)
