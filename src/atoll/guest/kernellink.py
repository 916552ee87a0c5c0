"""A context whose code a Jupyter kernel runs, by way of a bridge of ours: `programjupyter.py`."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import socket
import sys
from typing import Any, Dict, List, Optional, Tuple

from ..wire.frames import EVENT, Frame
from . import contextprocess, fresh, packets, spawn
from .arguments import encoded
from .contextlink import Listener
from .contextstart import ContextSettings
from .descriptors import close_all, pipe
from .loop import Callback, nothing
from .machine import Machine
from .marks import put_mark
from .pipes import Sink
from .programdriver import DriverLink, as_file, driver_text
from .refusal import no_process_left
from .situation import set_environment

_PATIENCE = 2.0
_ABOVE = 100
_IMPORTED = "ipykernel.kernelapp"
_BORN = b'{"born":'
_RUN = "import sys; sys.path.pop(0); exec(compile(open(4, encoding='utf-8', closefd=False).read(), 'bridge', 'exec'))"
# What a Python kernel is given, in the order in which they can be loaded.
_GIVEN = (
    *("wire." + name for name in ("plain", "hollow", "streams", "dtypes", "tables", "values")),
    *("guest." + name for name in ("complaints", "refusal", "arguments", "brief", "hosttools", "variables")),
    *("guest." + name for name in ("mime", "chartaxes", "chartboxes", "charts")),
)
_HERE = os.path.dirname(os.path.abspath(__file__))


def _text() -> bytes:
    """The bridge, and in its last line what it gives to a kernel."""
    given: Dict[str, str] = {}
    for name in _GIVEN:
        with open(os.path.join(os.path.dirname(_HERE), *name.split(".")) + ".py", encoding="utf-8") as file:
            given[name] = file.read()
    given["kernel"] = driver_text("programhelper.py").decode("utf-8")
    bridge = driver_text("programwire.py", "programkernels.py", "programears.py", "programjupyter.py")
    return b"%s\n#given %s" % (bridge, json.dumps(given).encode("ascii"))


_DRIVER = _text()


class KernelLink(DriverLink):
    """A driver that has started the interpreter in a session of its own, and takes its time to pass signals on."""

    costly = True
    _spared = False

    def __init__(self, machine: Machine, listener: Listener, settings: ContextSettings, kernel: str) -> None:
        self._kernel = kernel
        argv = [machine.config.python, "-c", _RUN, kernel]
        super().__init__(machine, listener, settings, argv, _DRIVER, {}, _paths(machine, settings))

    def request(self, payload: bytes) -> None:
        """What is no code is for the kernel, too, if it is one of Python's."""
        request = json.loads(payload)
        if request.get("do", "code") == "code":
            super().request(payload)
        else:
            self._busy = True
            self._run(request)

    def _run(self, request: Dict[str, Any]) -> None:
        self._spared = False
        super()._run(request)

    def call(self, payload: bytes) -> None:
        self._say({"call": json.loads(payload)})

    def feed(self, payload: bytes, taken: Callback) -> None:
        left = [0]

        def consumed(size: int) -> None:
            left[0] -= size
            if left[0] <= 0:
                taken()

        message = {"bytes": len(payload)}
        left[0] = 4 + len(json.dumps(message)) + len(payload)
        self._say(message, payload, consumed)

    def kill(self) -> None:
        """All of it. A kernel that was only just interrupted gets a little longer to say so."""
        if self._begun and not self._spared and not self._closed:
            self._spared = True
            self.interrupt()
            self._machine.loop.after(_PATIENCE, self._kill_spared)
        else:
            self._machine.killer.kill_command(self.mark, nothing)

    def _kill_spared(self) -> None:
        if self._spared and self._busy and self.alive:
            self.kill()


class Nest:
    """A process that has imported all that bridges and Python kernels need, and forks them. Starts when it is made.

    Raises:
        Refused: there is no process left.
    """

    def __init__(self, machine: Machine) -> None:
        machine.marks.issue()
        self._line, theirs = packets.pair()
        text = as_file(_DRIVER)
        ends = [machine.devnull, machine.devnull, machine.devnull, theirs.fileno(), text]
        lifted: List[int] = []
        try:
            machine.enter(ContextSettings().cwd)
            lifted.extend(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for fd in ends)
            env = {**machine.config.environment(), **_paths(machine, ContextSettings())}
            self.pid = (_fork if _IMPORTED in sys.modules else _spawn)(machine, env, lifted)
        except (OSError, spawn.CannotStart) as error:
            self._line.close()
            raise no_process_left() from error
        finally:
            theirs.close()
            close_all([text, *lifted])
        self.alive = True
        machine.reaper.watch(self.pid, self._exited)

    def _exited(self, _status: int) -> None:
        self.alive = False
        self._line.close()

    def hatch(self, order: Dict[str, Any], fds: List[int]) -> None:
        """Have it fork a bridge, which says so itself. Raises OSError."""
        socket.send_fds(self._line, [json.dumps(order).encode("ascii")], fds)


class NestLink(KernelLink):
    """A bridge that a nest forks. It has no pid until it is born; if that never happens, its socket ends."""

    def _launch(self, argv: Any, driver: bytes, env: Dict[str, str]) -> Tuple[socket.socket, Sink]:
        machine = self._machine
        variables = {**machine.config.environment(), **self._settings.env, **env}
        made: List[int] = []
        ours, theirs = packets.pair()
        try:
            ours.setblocking(False)
            requests, requests_end = pipe(made)
            stdout, stderr = self._outputs(made)
            machine.enter(self._settings.cwd)
            made.append(os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            nest_of(machine).hatch(
                {"kernel": self._kernel, "env": variables}, [theirs.fileno(), requests, stdout, stderr, made[-1]]
            )
            made.remove(requests_end)
        except BaseException as error:
            ours.close()
            for source in self._sources:
                source.close()
            if isinstance(error, OSError):
                raise no_process_left() from error
            raise
        finally:
            theirs.close()
            close_all(made)
        return ours, Sink(machine.loop, requests_end)

    def _take(self, frame: Frame) -> None:
        if frame.kind == EVENT and not self.pid and frame.payload.startswith(_BORN):
            self._be_born(frame.json().get("born"))
        else:
            super()._take(frame)

    def _be_born(self, pid: Optional[Any]) -> None:
        if type(pid) is not int:
            return
        self.pid = pid
        put_mark(pid, self.mark)
        self._machine.reaper.watch(pid, self._exited)
        self._say({"go": True})

    def kill(self) -> None:
        if self.pid:
            super().kill()
        else:
            self._requests.close()  # at which it ends before it begins

    def _ended_early(self) -> None:
        """The socket ended. Without a process behind it nobody else tells."""
        if not self.pid and self.alive:
            self._death = self._death or "the kernel was never born"
            self._exited(0)


def _spawn(machine: Machine, env: Dict[str, str], fds: List[int]) -> int:
    """Raises OSError, CannotStart."""
    argv = [encoded(word, "An argument") for word in (machine.config.python, "-c", _RUN, "nest")]
    command = spawn.Command(argv, {encoded(name, "A name"): encoded(env[name], "A variable") for name in env})
    with machine.victims:
        return spawn.spawn_with(command, [(fd, number) for number, fd in enumerate(fds)])


def _fork(machine: Machine, env: Dict[str, str], fds: List[int]) -> int:
    """Where whoever has forked the guest has imported it all. Raises OSError."""
    pid = machine.victims.fork()
    if pid == 0:
        try:
            contextprocess.reset_signals()
            os.setsid()
            for number, fd in enumerate(fds):
                os.dup2(fd, number)
            contextprocess.close_all_but(tuple(range(len(fds))))
            set_environment(env)
            for name in fresh.find_own_modules():
                del sys.modules[name]
            sys.argv = ["", "nest"]
            gc.enable()
            exec(compile(_DRIVER, "bridge", "exec"), {"__name__": "__main__"})  # noqa: S102  # our own text
        finally:
            os._exit(1)
    return pid


def nest_of(machine: Machine) -> Nest:
    """The nest of a sandbox, made if there is none."""
    nest: Optional[Nest] = machine.nest
    if nest is None or not nest.alive:
        nest = machine.nest = Nest(machine)
    return nest


def _paths(machine: Machine, settings: ContextSettings) -> Dict[str, str]:
    """Have the bridge see the packages that contexts have."""
    env = {**machine.config.environment(), **settings.env}
    paths = [*machine.config.python_path, *filter(None, [env.get("PYTHONPATH")])]
    return {"PYTHONPATH": ":".join(paths)} if paths else {}
