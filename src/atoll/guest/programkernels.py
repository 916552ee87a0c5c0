"""Starting a Jupyter kernel and being its client. A part of the text of `programjupyter.py`."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from typing import Any, NoReturn

from .programwire import KernelDied, Unsupported

READY_SECONDS = 60.0
LONGEST_SOCKET = 100
LAST_WORDS = 50
# What a cell and its processes write goes to the guest by itself, who can hold them up; through a kernel nobody can,
# and the last words of one that dies would be lost.
DIRECT = "--IPKernelApp.capture_fd_output=False"
STREAMS = """
import io, sys
for name, fd in (("stdout", 1), ("stderr", 2)):
    stream = io.TextIOWrapper(open(fd, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True)
    setattr(sys, name, stream)
"""
# Figures come with the numbers in them. What tells these is loaded for the first: it is TEXT, as the bridge has it.
CHARTS = """
import sys
def chart(figure, *_arguments, **_options):
    try:
        getattr(figure, "draw_without_rendering", figure.canvas.draw)()
        if "_atoll" not in sys.modules:
            exec(TEXT, {"__name__": "_atoll"})
        data = sys.modules["_atoll"].guest.charts.chart_of(figure)
    except Exception as error:
        sys.stderr.write("a chart's data cannot be told: %s\\n" % error)
        return None
    return None if data is None else {"application/vnd.atoll.chart+json": data}
try:
    from IPython import get_ipython
    get_ipython().display_formatter.mimebundle_formatter.for_type_by_name("matplotlib.figure", "Figure", chart)
except (ImportError, AttributeError):
    pass  # a kernel for Python that is not made of IPython
"""
LAUNCHER = ["-m", "ipykernel_launcher", "-f", "{connection_file}"]


class Kernel:
    """A kernel that runs, and a client of it."""

    def __init__(self, name: str) -> None:
        try:
            specs = importlib.import_module("jupyter_client.kernelspec")
            manager = importlib.import_module("jupyter_client.manager")
        except ImportError:
            raise Unsupported(
                "jupyter:%s needs jupyter_client and the kernel inside the sandbox: make it with "
                'packages=["ipykernel"], or use an image that has them.' % name
            ) from None
        self._pid = 0
        self.has_streams = False
        self._directory = tempfile.mkdtemp(prefix="kernel-")
        os.environ["JUPYTER_RUNTIME_DIR"] = self._directory
        os.environ.setdefault("IPYTHONDIR", os.path.join(self._directory, "ipython"))
        self._manager: Any = manager.KernelManager(kernel_name=name)
        self._manager.connection_file = os.path.join(self._directory, "k.json")
        try:
            spec = self._manager.kernel_spec
        except specs.NoSuchKernel:
            shutil.rmtree(self._directory, ignore_errors=True)
            found = ", ".join(sorted(specs.KernelSpecManager().find_kernel_specs())) or "none"
            raise Unsupported(
                "There is no Jupyter kernel %r inside the sandbox; those that there are: %s. "
                'packages=["ipykernel"] brings python3.' % (name, found)
            ) from None
        self.is_python = spec.language.lower() == "python"
        if spec.language.lower() != "r":  # whose kernel knows no other transport
            path = os.path.join(self._directory, "k")
            self._manager.transport = "ipc"
            # Without a file where a path does not fit into a socket's name.
            self._manager.ip = path if len(path) < LONGEST_SOCKET else "@" + os.path.basename(self._directory)
        self._start(spec)
        if self._pid:
            self._await_sockets()
        self.client: Any = self._manager.blocking_client()
        self.client.start_channels()
        self._await()

    def _start(self, spec: Any) -> None:
        """As a fork of this process where it would be this Python with ipykernel anyway, and that is imported."""
        ours = "ipykernel.kernelapp" in sys.modules and not spec.env
        if ours and _same(spec.argv[0]) and spec.argv[1:] in (LAUNCHER, ["-Xfrozen_modules=off", *LAUNCHER]):
            self._manager.write_connection_file()
            self._pid = os.fork()
            if self._pid == 0:
                _become_kernel(self._manager.connection_file)
            return
        env = dict(os.environ)
        if not _same(spec.argv[0]):
            env.pop("PYTHONPATH", None)  # it is for this Python, and might be poison for another one
        try:
            self.has_streams = "ipykernel_launcher" in spec.argv
            self._manager.start_kernel(env=env, extra_arguments=[DIRECT] if self.has_streams else [])
        except OSError as error:
            raise Unsupported("The kernel cannot be started: %s: %s." % (spec.argv[0], error.strerror)) from None

    def _await_sockets(self) -> None:
        """Who connects before they are there waits for its next attempt."""
        manager = self._manager
        names = ["%s-%d" % (manager.ip, port) for port in (manager.shell_port, manager.iopub_port, manager.stdin_port)]
        until = time.monotonic() + READY_SECONDS
        while not manager.ip.startswith("@") and not all(map(os.path.exists, names)):
            self.check()
            if time.monotonic() > until:
                raise KernelDied("the kernel did not start in time")
            time.sleep(0.002)

    def _await(self) -> None:
        """Until it has answered on all channels."""
        try:
            if self._pid:
                self._greet()
            else:
                self.client.wait_for_ready(timeout=READY_SECONDS)
        except RuntimeError as error:
            raise KernelDied("the kernel did not start: %s" % error) from None

    def _greet(self) -> None:
        """What `wait_for_ready` does, without its pauses: iopub is connected once it tells of a request of ours."""
        until = time.monotonic() + READY_SECONDS
        heard = False
        while not heard:
            self.client.kernel_info()
            heard = self._hears(until)
        while self.receive("shell") or self.receive("iopub"):
            pass

    def _hears(self, until: float) -> bool:
        again = time.monotonic() + 0.02
        while time.monotonic() < min(again, until):
            if self.client.iopub_channel.socket.poll(5) and self.receive("iopub"):
                return True
            self.check()
        if time.monotonic() >= until:
            raise KernelDied("the kernel did not start in time")
        return False

    def receive(self, channel: str) -> Any:
        """A message, if there is one. One that makes no sense is none."""
        sock = getattr(self.client, channel + "_channel").socket
        if not sock.poll(0):
            return None
        try:
            return self.client.session.recv(sock)[1]
        except ValueError:
            return None

    def interrupt(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGINT)
        else:
            self._manager.interrupt_kernel()

    def has_said_more(self) -> bool:
        """Whether there is something left, once it has died."""
        return bool(self.client.iopub_channel.socket.poll(LAST_WORDS))

    @property
    def pid(self) -> int:
        """0 where it cannot be told."""
        return self._pid or int(getattr(self._manager.provisioner, "pid", 0) or 0)

    def check(self) -> None:
        """Raises KernelDied."""
        if self._pid:
            gone, status = os.waitpid(self._pid, os.WNOHANG)
            if gone:
                how = "signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "exit code %d" % (status >> 8)
                raise KernelDied("the kernel has died (%s)" % how)
        elif not self._manager.is_alive():
            raise KernelDied("the kernel has died")

    def close(self) -> None:
        try:
            if self._pid:
                os.kill(self._pid, signal.SIGKILL)
            else:
                self._manager.shutdown_kernel(now=True)
        except OSError:
            pass  # it was faster
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)


def _same(python: str) -> bool:
    return python in ("python", "python3") or os.path.realpath(python) == os.path.realpath(sys.executable)


def _become_kernel(connection_file: str) -> NoReturn:
    """In a fork of the bridge, which has neither threads nor sockets of ZeroMQ yet."""
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(-1)
        os.setsid()
        os.closerange(3, 1 << 16)
        app = importlib.import_module("ipykernel.kernelapp").IPKernelApp
        # By its parent's end it knows that nobody needs it any more.
        parent = "--IPKernelApp.parent_handle=%d" % os.getppid()
        kernel = app.instance()
        kernel.initialize(["-f", connection_file, DIRECT, parent, "--HistoryManager.enabled=False"])
        exec(STREAMS, {})  # noqa: S102  # our own text, which other kernels are sent
        kernel.start()
    except BaseException:  # noqa: BLE001  # it must not unwind into the bridge's code
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(1)
