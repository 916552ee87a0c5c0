"""The nursery: a walled process that has imported the packages of a template, and that its sandboxes are forked from.

Code of packages runs when it is imported, so it runs here, behind the same wall as in a sandbox: namespaces, an id
of its own, a control group, no network, no capability, Landlock and seccomp stand before the first import. All that
the filter allows beyond a sandbox's is to fork into new namespaces. From the first import on the nursery is hostile,
and so is every process that it forks: nothing on the outside depends on what it does (`nursed.py`).

A nurse, trusted and outside, keeps it. The nursery ends when nobody is left who could ask it for a sandbox, or who
keeps one of it; if it dies, its sandboxes die with it.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from typing import NamedTuple, NoReturn

from ..guest.display import Displays
from . import cgroups, first, inspection, jail, kernel, landlock, layout, messages, seccomp, sweep
from .inspection import Broken
from .settings import FIRST_NURSERY_UID, FIRST_UID, UIDS, Settings, new_id
from .ward import Ward

# How the ids of root's sandboxes are called in a nursery's user namespace.
FIRST_INSIDE = 1 << 20
NAMESPACES = jail.NAMESPACES | kernel.CLONE_NEWUSER | kernel.CLONE_NEWNET
PRELOAD = f"{layout.PACKAGES}/preload.json"
_MEMORY, _PROCESSES = 4 << 30, 256
_PATIENCE, _MOMENT = 120.0, 1.0
_MOST_NAMES = 1000
# A BLAS that has started threads cannot be forked from.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
# A first use imports modules and settles the interpreter's caches; done here, that is not done again in each sandbox
# (see `rehearsal`). A value is shown as a cell shows it.
_REHEARSALS = {
    "numpy": "numpy.arange(6).reshape(2, 3) * 1.5",
    "pandas": "pandas.DataFrame({'a': [1, 2], 'b': [0.5, 1.5], 'c': ['x', 'y']})",
}
_TIMES = 12


def open_nursery(settings: Settings) -> Settings:
    """Start one. The settings then have the socket that it is asked on; it says when it is ready."""
    settings = settings._replace(nursery=new_id())
    orders, theirs = messages.pair()
    nurse, word = messages.pair()
    reader, writer = os.pipe2(os.O_CLOEXEC)
    if (child := os.fork()) == 0:
        code = 1
        try:
            if os.fork() == 0:
                kernel.close_from(3, (theirs.fileno(), word.fileno(), reader))
                _nurse(settings, theirs, word, reader)
            code = 0
        finally:
            os._exit(code)
    os.waitpid(child, 0)
    theirs.close()
    word.close()
    os.close(reader)
    # Whoever has the pipe open wants the nursery to live: the zygote, its stem, and every keeper.
    return settings._replace(orders=orders, nurse=nurse, held=(*settings.held, orders.fileno(), writer))


def _nurse(settings: Settings, orders: socket.socket, word: socket.socket, life: int) -> NoReturn:
    """The trusted process that keeps a nursery, from its birth to its end."""
    sandbox = settings.nursery
    kernel.name_process("atoll-nurse", of=sandbox)
    ward = Ward(settings)
    code = 1
    try:
        listener = messages.listen(settings.layout.socket(sandbox))
        group = cgroups.Group(settings.hierarchy, sandbox) if settings.hierarchy else None
        try:
            pid, channel = _raise(settings, group, orders, word)
            try:
                _keep(ward, pid, channel, life, listener)
            except Broken as broken:
                ward.condemn(str(broken))
            finally:
                _end(pid, group)
            code = 0
        finally:
            if sentence := ward.sentence():
                with contextlib.suppress(OSError):
                    messages.send(word, {"failed": sentence})
            sweep.remove(settings.layout, settings.hierarchy, sandbox)
    except BaseException:  # noqa: BLE001 - the log is the only place left to tell
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _raise(
    settings: Settings, group: cgroups.Group | None, orders: socket.socket, word: socket.socket
) -> tuple[int, Channel]:
    """Make the nursery, and have it close its wall; its pid, and the channels to it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(settings.layout.box(settings.nursery), mode=0o711)
    if not settings.rootless:
        os.setgroups([])
    ours, theirs = messages.pair()
    pid = kernel.clone(NAMESPACES)
    if pid == 0:
        ours.close()
        kernel.name_process("atoll-nursery")
        _live(settings, theirs, orders)
    told = inspection.identity(theirs.fileno())
    theirs.close()
    _map_ids(settings, pid)
    if group:
        group.make()
        group.add(pid)
        group.limit(_MEMORY, _PROCESSES, None)
    with jail.inside(pid):
        jail.enter(settings.template, locked=True)
    messages.send(ours, {"go": True})
    ours.settimeout(_PATIENCE)
    answer, _ = messages.receive(ours)
    if "closed" not in answer:
        raise OSError(str(answer.get("failed", answer)))
    ours.settimeout(None)
    return pid, Channel(ours, orders, word, told)


class Channel(NamedTuple):
    """A nurse's: to the nursery, that of its orders, and to the zygote; and how the nursery's own end is known."""

    control: socket.socket
    orders: socket.socket
    word: socket.socket
    told: inspection.Identity


def _open(ward: Ward, pid: int, channel: Channel) -> None:
    """It says that it has imported everything. Look whether it may be asked for sandboxes, and have it serve.

    Raises:
        Broken: it may not.
    """
    try:
        answer, fds = messages.receive(channel.control)
    except (messages.Ended, ValueError):
        answer, fds = {}, []
    for fd in fds:
        os.close(fd)
    if "loaded" not in answer:
        raise Broken("their import died")
    inmate = ward.open(pid, inspection.identity(channel.orders.fileno()))
    ward.check(inmate, channel.told)
    inspection.check_memory(pid)
    _take_proc(pid)
    messages.send(channel.control, {"serve": True})
    # The nursery's own end is of no use to it without these.
    channel.control.close()
    channel.orders.close()
    messages.send(channel.word, {"ready": time.monotonic()})


def _take_proc(pid: int) -> None:
    """The kernel does this only if nobody holds anything of it; afterwards its sandboxes are out of sight.

    Raises:
        Broken: somebody does.
    """
    deadline = time.monotonic() + _MOMENT
    while True:
        try:
            with jail.inside(pid):
                jail.unmount_proc()
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise Broken(f"the packages hold on to /proc: {error.strerror}") from error
            time.sleep(0.001)


def _end(pid: int, group: cgroups.Group | None) -> None:
    """All that is in its namespaces and in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    if group:
        group.kill()
    os.waitpid(pid, 0)


def _map_ids(settings: Settings, pid: int) -> None:
    """As root the ids of its sandboxes too, none of which it can take: it has no capability, and owns none of them."""
    if settings.rootless:
        ids = f"{layout.USER} 0 1"
    else:
        own = FIRST_NURSERY_UID + pid % UIDS
        ids = f"{layout.USER} {own} 1\n{FIRST_INSIDE} {FIRST_UID} {UIDS}"
    for name, text in (("setgroups", "deny"), ("uid_map", ids), ("gid_map", ids)):
        cgroups.write(f"/proc/{pid}/{name}", text)


def _keep(ward: Ward, pid: int, channel: Channel, life: int, listener: socket.socket) -> None:
    """Until nobody needs it, it is dead, or it breaks a rule.

    Raises:
        Broken: it does.
    """
    descriptor = os.pidfd_open(pid)
    poll = select.poll()
    for fd in (descriptor, life, listener.fileno(), channel.control.fileno()):
        poll.register(fd, select.POLLIN | select.POLLHUP)
    while True:
        ready = {fd for fd, _ in poll.poll(ward.look_every)}
        if ready & {descriptor, life}:
            return
        if listener.fileno() in ready:
            # Somebody looks whether this is kept. It is; there is nothing to ask for.
            with contextlib.suppress(OSError):
                listener.accept()[0].close()
        elif ready:
            poll.unregister(channel.control.fileno())
            _open(ward, pid, channel)
        else:
            with contextlib.suppress(FileNotFoundError), ward.turn():
                pass  # it is looked at when the turn ends


def _live(settings: Settings, control: socket.socket, orders: socket.socket) -> NoReturn:
    """The whole life of a nursery."""
    try:
        first.silence((control.fileno(), orders.fileno()))
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        messages.receive(control)
        try:
            _close_wall(settings)
        except BaseException as error:
            messages.send(control, {"failed": f"The nursery's wall could not be closed: {error}."})
            raise
        messages.send(control, {"closed": True})
        _preload(settings)
        # What packages keep open would be closed in each sandbox; nor may it be kept here.
        kernel.close_from(3, (control.fileno(), orders.fileno()))
        messages.send(control, {"loaded": True})
        messages.receive(control)
        control.close()
        _serve(settings, orders)
    finally:
        os._exit(1)


def _close_wall(settings: Settings) -> None:
    """The steps of `jail.close`, but that new namespaces can still be made. Nothing here is writable."""
    kernel.unshare(kernel.CLONE_NEWCGROUP)
    jail.mount_proc()
    if settings.rootless:
        jail.close_proc_to_root()
    kernel.umount(layout.OLD_ROOT)
    socket.sethostname(layout.HOST_NAME)
    jail.set_rlimits({} if settings.hierarchy else {"as": _MEMORY})
    os.umask(0o022)
    os.setresgid(layout.GROUP, layout.GROUP, layout.GROUP)
    os.setresuid(layout.USER, layout.USER, layout.USER)
    # A change of ids clears both. The maps of what it forks could not be written were it not dumpable.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if settings.landlock:
        # For good: no mount, no tracing of others. A rule about files would hold in its sandboxes too, whose writable
        # places are not mounted yet; here every mount is read-only, and there each process adds the rules itself.
        landlock.restrict(settings.landlock, ("/",))
    machine = kernel.MACHINE
    seccomp.install(
        seccomp.program(
            machine, shared_memory=settings.hierarchy is not None, namespaces=NAMESPACES | int(signal.SIGCHLD)
        )
    )
    os.chdir("/")


def _preload(settings: Settings) -> None:
    """Import what was asked for. What cannot be imported is left for a cell to find out about."""
    os.environ.clear()
    os.environ.update({"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent", **_ONE_THREAD})
    sys.dont_write_bytecode = True
    sys.path[:] = first.python_path(settings, packages=True)
    sys.path_importer_cache.clear()
    with open(PRELOAD, "rb") as file:
        names = json.load(file)["modules"][:_MOST_NAMES]
    for name in names:
        with contextlib.suppress(BaseException):
            __import__(str(name))
    _forget_halves()
    for _ in range(_TIMES):
        rehearse()
    os.environ.clear()
    sys.dont_write_bytecode = False
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # The kernel buries what is forked from here.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    gc.disable()


def _forget_halves() -> None:
    """Forget the submodules of packages whose own import failed: a second try would not find them as attributes.

    matplotlib is one that fails here, since it wants a directory to write to.
    """
    for name in list(sys.modules):
        if name.rpartition(".")[0] and name.partition(".")[0] not in sys.modules:
            del sys.modules[name]


def rehearse() -> None:
    """Make and show a value of each library that this knows and that is imported."""
    for name, expression in _REHEARSALS.items():
        module = sys.modules.get(name)
        if module is not None:
            with contextlib.suppress(Exception):
                value = eval(expression, {name: module})  # noqa: S307 - a constant of ours
                Displays(lambda _bundle, _main: None).show_main(value)


def _serve(settings: Settings, orders: socket.socket) -> None:
    """Fork, and nothing else. An order is a descriptor: the control channel of the process to be."""
    while True:
        data, ancillary, _, _ = orders.recvmsg(16, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        if not data:
            os._exit(0)
        fds = [int.from_bytes(raw[:4], sys.byteorder) for _, _, raw in ancillary]
        with contextlib.suppress(OSError):
            if kernel.clone(NAMESPACES) == 0:
                orders.close()
                first.live_nursed(settings, socket.socket(fileno=fds[0]), rehearse)
        for fd in fds:
            os.close(fd)
