"""Environments on disk: built once, whoever asks at the same time, and never half.

```
<home>/environments/<key>/          a whole environment; it never changes
    tree/                           what sandboxes see, read-only
    about.json                      what it was made of, for people
<home>/environments/<key>.lock      held by its builder, and shared by whoever uses it
<home>/environments/<key>.draft.*   one that is being built, or whose builder was killed
```
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import settings

# Where a sandbox sees its environment. Scripts in it name their interpreter by this path.
INSIDE = "/packages"
_FORMAT = 1
_KEY_LENGTH = 32
_KEY_LETTERS = frozenset("0123456789abcdef")


class Environment(NamedTuple):
    """One environment, built or not."""

    home: str
    key: str
    packages: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{directory(self.home)}/{self.key}"

    @property
    def tree(self) -> str:
        return f"{self.place}/tree"

    @property
    def is_built(self) -> bool:
        return os.path.isdir(self.tree)


class NotBuilt(Exception):
    """It has to be built first. Never leaves atoll: whoever makes sandboxes builds it and tries again."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment.key)
        self.environment = environment


def directory(home: str) -> str:
    return f"{home}/environments"


def wanted(home: str, packages: tuple[str, ...], python: str | None = None) -> Environment:
    """The environment for some requirements with this Python and this host's settings; see `Driver.python`.

    Raises:
        Unsupported: a setting of pip that cannot be honoured.
    """
    import hashlib

    parts = [_FORMAT, INSIDE, packages, _interpreter(python), settings.read().choosing()]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return Environment(home, digest[:_KEY_LENGTH], packages)


def known(home: str, key: str) -> Environment:
    """An environment by its key. Raises ValueError for what is none."""
    if len(key) != _KEY_LENGTH or not set(key) <= _KEY_LETTERS:
        raise ValueError(key)
    return Environment(home, key, ())


def _interpreter(python: str | None) -> list[Any]:
    """What compiled packages depend on, and the paths that an environment names."""
    library = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else None
    return [
        sys.implementation.name,
        sys.version_info[:2],
        getattr(sys, "abiflags", ""),
        os.uname().machine,
        library,
        python or os.path.realpath(sys.base_prefix),
    ]


@contextlib.contextmanager
def in_use(environment: Environment) -> Iterator[str]:
    """The path of its tree, which nobody removes meanwhile.

    Raises:
        NotBuilt: it is not there, or just being built.
    """
    # Not waited for: who holds it alone is building, and that is waited for without blocking an event loop.
    with locked(environment, shared=True, wait=False) as mine:
        if not mine or not environment.is_built:
            raise NotBuilt(environment)
        yield environment.tree


@contextlib.contextmanager
def locked(environment: Environment, *, shared: bool = False, wait: bool = True) -> Iterator[bool]:
    """Hold an environment's lock; whether it was had, for who does not wait. The kernel frees it however one ends."""
    os.makedirs(directory(environment.home), mode=0o700, exist_ok=True)
    fd = os.open(f"{environment.place}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


def draft(environment: Environment) -> str:
    """A new directory to build in, for who holds the lock; drafts of builders that were killed are removed.

    Raises:
        OSError: the disk refuses.
    """
    from ..engine.removal import remove_tree

    for name in os.listdir(directory(environment.home)):
        if name.startswith(f"{environment.key}.draft."):
            remove_tree(f"{directory(environment.home)}/{name}")
    path = f"{environment.place}.draft.{os.getpid()}"
    os.mkdir(path, 0o755)
    return path


def wheels_place(home: str) -> str:
    """A new directory for wheels that go to one sandbox; to be removed by `discard`. Those of the dead are removed.

    Raises:
        OSError: the disk refuses.
    """
    import tempfile

    top = directory(home)
    os.makedirs(top, mode=0o700, exist_ok=True)
    for name in os.listdir(top):
        prefix, _, rest = name.partition(".")
        pid = rest.partition(".")[0]
        if prefix == "wheels" and not (pid.isdigit() and os.path.exists(f"/proc/{pid}")):
            discard(f"{top}/{name}")
    return tempfile.mkdtemp(prefix=f"wheels.{os.getpid()}.", dir=top)


def publish(environment: Environment, path: str, about: dict[str, Any]) -> None:
    """Make a finished draft the environment. It is on the disk before it has the name.

    Raises:
        OSError: the disk refuses.
    """
    from ..engine.roottree import open_to_all

    with open(f"{path}/about.json", "w", encoding="utf-8") as file:
        json.dump({"packages": environment.packages, **about}, file, indent=1)
    open_to_all(f"{path}/tree")
    _flush(path)
    os.rename(path, environment.place)
    _flush(directory(environment.home))


def discard(path: str) -> None:
    """Remove a draft that came to nothing."""
    from ..engine.removal import remove_tree

    remove_tree(path)


def _flush(path: str) -> None:
    """Write a whole file system out: cheaper than each of thousands of files."""
    from ..engine import kernel

    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        kernel.syncfs(fd)
    finally:
        os.close(fd)


class Kept(NamedTuple):
    """An environment on disk, as `atoll packages` lists it."""

    key: str
    packages: tuple[str, ...]
    built: float
    size: int


def listing(home: str) -> list[Kept]:
    """Every environment that is built, newest first."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(directory(home)):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                environment = known(home, name)
                with open(f"{environment.place}/about.json", encoding="utf-8") as file:
                    about = json.load(file)
                found.append(Kept(name, tuple(about["packages"]), float(about["built"]), int(about["size"])))
    return sorted(found, key=lambda each: -each.built)


def remove(environment: Environment) -> bool:
    """Remove an environment that nobody uses; False when somebody does.

    Raises:
        OSError: the disk refuses.
    """
    with locked(environment, wait=False) as mine:
        if not mine:
            return False
        if environment.is_built:
            path = f"{environment.place}.draft.{os.getpid()}"
            # First the name: what is half removed must not be found.
            os.rename(environment.place, path)
            discard(path)
    return True
