"""Views that are kept ready: one small process for each source and rules, until something changes there.

Whoever makes a view of a large tree watches the tree meanwhile, and leaves a curator behind who goes on watching. It
holds the mask and gives it to the next who asks, by descriptor, as long as nothing has happened in the source: so
what is given is what would be made anew, without looking at the tree. With the first change it ends, and the next who
asks makes a view and leaves a new one.

It serves its own user only, on a socket in the state directory that is named after the source, the rules and the
user namespace, since a mask is of no use in another. It sees no file of the host: its root is the mask itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from ...policy.ignores import Ignores
from ...policy.rules import Matcher
from ...types import PathRule
from .. import kernel, messages
from ..layout import VIEWS, Layout
from ..settings import Settings
from .preparing import prepare
from .sentry import Sentry
from .tree import compile_tree
from .view import Recipe, View, from_json

_VERSION = 1
_IDLE = 240.0
# A view that is made sooner than this is not worth a process.
_WORTH_KEEPING = 0.02
_MOST = 16
_PATIENCE = 2.0
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR
_MASK_ATTRIBUTES = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV | kernel.MOUNT_ATTR_RDONLY


def obtain(settings: Settings, source: str, rules: Sequence[PathRule], ignore: Sequence[str] = ()) -> View:
    """A view of a source, from its curator if it has one and nothing has changed since, else a new one.

    To be called by one thread of a process that may mount. The caller closes it.

    Raises:
        OSError: the source cannot be read, or nothing can be mounted.
        Unsupported: these rules cannot be enforced here.
    """
    recipe = settings.recipe or "D"
    address = f"{settings.layout.run}/{_name(source, rules, ignore, recipe)}"
    return _ask(address) or _make(settings.layout, address, source, rules, ignore, recipe)


def _name(source: str, rules: Sequence[PathRule], ignore: Sequence[str], recipe: Recipe) -> str:
    from hashlib import sha256

    status = os.stat(source)
    # A namespace's number may come again; one that is dead leaves nobody who answers.
    whose = os.stat("/proc/self/ns/user").st_ino
    tree = [os.path.realpath(source), status.st_dev, status.st_ino]
    key = json.dumps([_VERSION, whose, recipe, tree, [list(rule) for rule in rules], list(ignore)])
    return VIEWS + sha256(key.encode()).hexdigest()[:24]


def _ask(address: str) -> View | None:
    """The curator's view, or None if there is no curator, or it has nothing to give."""
    try:
        with messages.connect(address) as curator:
            # The directory is ours alone; this holds even if it were not.
            if messages.peer_uid(curator) != os.getuid():
                return None
            curator.settimeout(_PATIENCE)
            messages.send(curator, {"want": "view"})
            answer, fds = messages.receive(curator)
    except (OSError, ValueError, messages.Ended):
        return None
    return _unpack(answer, fds)


def _unpack(answer: dict[str, Any], fds: list[int]) -> View | None:
    if "view" not in answer or len(fds) != 2:
        for fd in fds:
            os.close(fd)
        return None
    mask, described = fds
    try:
        return from_json(json.loads(os.pread(described, os.fstat(described).st_size, 0)), mask)
    finally:
        os.close(described)


def _make(
    places: Layout, address: str, source: str, rules: Sequence[PathRule], ignore: Sequence[str], recipe: Recipe
) -> View:
    before = time.monotonic()
    sentry = Sentry()
    try:
        view = _build(source, rules, ignore, recipe, sentry)
        slow = time.monotonic() - before > _WORTH_KEEPING
        if not (slow and view.mask >= 0 and sentry.is_calm() and _has_room(places)):
            return view
        # Not a copy for each: before Linux 6.15 what is attached nowhere cannot be copied.
        _leave_curator(address, view, sentry)
        view.close()
    finally:
        sentry.close()
    return _ask(address) or _build(source, rules, ignore, recipe, None)


def _build(
    source: str, rules: Sequence[PathRule], ignore: Sequence[str], recipe: Recipe, sentry: Sentry | None
) -> View:
    ignores = Ignores(ignore) if ignore else None
    tree = compile_tree(source, Matcher(rules), ignores, before=sentry.watch if sentry else None)
    return prepare(tree, recipe=recipe)


def _has_room(places: Layout) -> bool:
    """Whether there may be one more. Names of dead ones are removed when there are too many."""
    try:
        names = [name for name in os.listdir(places.run) if name.startswith(VIEWS)]
    except OSError:
        return False
    return len(names) < _MOST or sum(_is_alive(f"{places.run}/{name}") for name in names) < _MOST


def _is_alive(address: str) -> bool:
    try:
        messages.connect(address).close()
    except messages.NOBODY:
        with contextlib.suppress(OSError):
            os.unlink(address)
        return False
    except OSError:
        return True
    return True


def _leave_curator(address: str, view: View, sentry: Sentry) -> None:
    """Fork one that is nobody's child, and wait until it can be asked, or has failed."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        between = os.fork()
        if between == 0:
            try:
                os.setsid()
                if os.fork() == 0:
                    _live(address, view, sentry, writer)
            finally:
                os._exit(0)
        os.close(writer)
        writer = -1
        os.read(reader, 1)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(between, 0)
    finally:
        for fd in (reader, writer):
            if fd >= 0:
                os.close(fd)


def _live(address: str, view: View, sentry: Sentry, ready: int) -> NoReturn:
    try:
        # Its memory is a copy of its maker's.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        _reset_signals()
        kernel.name_process("atoll-curator")
        listener = _listen(address)
        if listener is None:
            os._exit(0)
        sentry.watch_name(address)
        described = os.memfd_create("view")
        os.write(described, json.dumps(view._replace(inhabited=True).to_json()).encode())
        kernel.close_from(3, (listener.fileno(), sentry.fileno(), view.mask, described, ready))
        # While the host's files are in sight: its end takes its name away.
        directory = os.open(os.path.dirname(address), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        namespace = _enter(view.mask, os.path.dirname(address))
        os.close(ready)
        try:
            waiting = _serve(listener, sentry, (namespace, described))
        finally:
            os.unlink(os.path.basename(address), dir_fd=directory)
        if waiting is not None:
            waiting.close()
    except BaseException:  # noqa: BLE001 - nobody depends on it
        os._exit(1)
    os._exit(0)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _listen(address: str) -> socket.socket | None:
    """None if somebody else serves there already."""
    for _ in range(2):
        try:
            return messages.listen(address)
        except FileExistsError:
            try:
                messages.connect(address).close()
                return None
            except messages.NOBODY:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(address)
    return None


def _enter(mask: int, somewhere: str) -> int:
    """Have the mask as the only mount: a curator shall keep no disk of the host busy. Gives the mount namespace."""
    kernel.unshare(kernel.CLONE_NEWNS)
    namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount_setattr(mask, _MASK_ATTRIBUTES, recursive=False)
    kernel.move_mount(mask, somewhere)
    os.chdir(somewhere)
    kernel.pivot_root(".", ".")
    kernel.umount(".")
    os.chdir("/")
    os.close(mask)
    return namespace


def _serve(listener: socket.socket, sentry: Sentry, view: tuple[int, int]) -> socket.socket | None:
    """Until something has happened, or nobody has asked for long. Gives who waits for the end, if anybody does."""
    poll = select.poll()
    poll.register(listener.fileno(), _READABLE)
    poll.register(sentry.fileno(), _READABLE)
    while events := poll.poll(_IDLE * 1000):
        # A change that is not yet told of when somebody asks came after the question.
        if not sentry.is_calm() or events == [(sentry.fileno(), select.POLLIN)]:
            return None
        with contextlib.suppress(OSError, ValueError, messages.Ended):
            client, _ = listener.accept()
            if _answer(client, sentry, view):
                return client
            client.close()
    return None


def _answer(client: socket.socket, sentry: Sentry, view: tuple[int, int]) -> bool:
    """Whether this was the last."""
    if messages.peer_uid(client) != os.getuid():
        return False
    client.settimeout(_PATIENCE)
    request, fds = messages.receive(client)
    for fd in fds:
        os.close(fd)
    if request.get("shutdown"):
        return True
    if not sentry.is_calm():
        messages.send(client, {"changed": True})
        return True
    messages.send(client, {"view": True}, *view)
    return False
