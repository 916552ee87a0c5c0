"""The root file system of a sandbox: a small read-only tmpfs with read-only binds of what an image needs.

The zygote fills one for the default image and every sandbox shares it; an `image=` or another `workdir`
gets one of its own.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence

from . import kernel, layout
from .settings import BirthFailed

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Where that Python's standard library is in a sandbox with an image, which may have another one at its place.
IMAGE_LIBRARY = "/.python"
# What programs in /usr expect to find in /etc and that tells nothing about this host.
_ETC_SHARED = (
    "alternatives",
    "ca-certificates",
    "fonts",
    "java-17-openjdk",
    "java-21-openjdk",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "mime.types",
    "pki/tls/certs",
    "pki/ca-trust",
    "localtime",
    "R",
    "protocols",
    "services",
)
# A source comes with other owners, inodes and change times than its index remembers, and is nobody's trap here.
_GIT = "[core]\n\ttrustctime = false\n\tcheckStat = minimal\n[safe]\n\tdirectory = *\n"
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_NOT_FROM_IMAGE = frozenset(
    ("root", "proc", "dev", "sys", "tmp", "run", "home", "workspace", "etc", layout.OLD_ROOT[1:])
)

Look = Callable[[str], int]
_NOTHING: Mapping[str, str] = {}
_LOOKED_AT = kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV | kernel.MOUNT_ATTR_RDONLY


def interpreter() -> str:
    """The directory that holds the Python that runs this, with its standard library.

    Raises:
        OSError: it is the host's root, which no sandbox may see.
    """
    prefix = os.path.realpath(sys.base_prefix)
    if prefix == "/":
        raise OSError("this Python says that it is installed in /, so it cannot be shown without the whole host")
    return prefix


def library() -> str:
    """Where that Python has its standard library."""
    return os.path.dirname(os.path.realpath(os.__file__))


def etc_files(resolver: str = "") -> dict[str, str]:
    """The generated part of /etc."""
    return {
        "passwd": (
            "root:x:0:0:root:/root:/bin/sh\n"
            f"{layout.USER_NAME}:x:{layout.USER}:{layout.GROUP}::{layout.HOME_INSIDE}:/bin/bash\n"
            "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
        ),
        "group": f"root:x:0:\n{layout.USER_NAME}:x:{layout.GROUP}:\nnogroup:x:65534:\n",
        "hosts": f"127.0.0.1 localhost {layout.HOST_NAME}\n::1 localhost\n",
        "hostname": f"{layout.HOST_NAME}\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "resolv.conf": resolver,
        "os-release": _host_release(),
        "gitconfig": _GIT,
    }


def _host_release() -> str:
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            return file.read()
    except OSError:
        return 'NAME="Linux"\n'


def _place(source: str, target: str) -> None:
    """Copy a symlink, or bind a file or directory read-only. Follows nothing."""
    mode = os.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISDIR(mode):
        os.mkdir(target)
        kernel.bind(source, target, read_only=True)
    elif stat.S_ISREG(mode):
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        kernel.bind(source, target, read_only=True)


def _write_etc(directory: str, resolver: str) -> None:
    os.makedirs(directory, exist_ok=True)
    for name, text in etc_files(resolver).items():
        with open(f"{directory}/{name}", "w", encoding="utf-8") as file:
            file.write(text)


def _host_etc(root: str, resolver: str) -> None:
    _write_etc(f"{root}/etc", resolver)
    for name in _ETC_SHARED:
        source = f"/etc/{name}"
        if os.path.exists(source):
            os.makedirs(os.path.dirname(f"{root}/etc/{name}"), exist_ok=True)
            # A link such as localtime is followed: what it points to in /usr is there too.
            _place(source, f"{root}/etc/{name}")


def _image_etc(root: str, image: str, resolver: str) -> None:
    """The image's own /etc, if it is a directory, with the generated files on top."""
    _write_etc(f"{root}/etc", resolver)
    try:
        fd = os.open(f"{image}/etc", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        # By descriptor: a path could hold what overlayfs takes for a separator.
        layers = f"lowerdir={root}/etc:/proc/self/fd/{fd}"
        kernel.mount("etc", f"{root}/etc", "overlay", kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV, layers)
    finally:
        os.close(fd)


def _devices(root: str) -> None:
    os.mkdir(f"{root}/dev")
    for name in _DEVICES:
        target = f"{root}/dev/{name}"
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        # They are the host's own: who has the id of its root could give them another mode.
        kernel.bind(f"/dev/{name}", target, read_only=True, device=True)
    for link, to in (
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ):
        os.symlink(to, f"{root}/dev/{link}")
    for name in ("pts", "shm"):
        os.mkdir(f"{root}/dev/{name}")


def _as_it_is(path: str) -> int:
    return kernel.open_tree(path, recursive=True)


def populate(
    root: str,
    *,
    image: str | None = None,
    workdir: str = layout.WORKSPACE,
    resolver: str = "",
    shown: Sequence[str] = (),
    look: Look = _as_it_is,
    environment: str = "",
    besides: Mapping[str, str] = _NOTHING,
) -> None:
    """Fill the directory `root`, in this mount namespace, with a read-only root file system.

    An image is hostile, and this runs among the host's mounts: every directory of ours is made while the root is
    still empty, so that no link of an image is ever on the way to it, and only names that are free are taken from it.
    `shown` are host paths that are seen as /shown/0, /shown/1 and so on; `look` gives each as a detached mount.
    `environment` is a tree of packages. `besides` are host directories by where they are seen.

    Raises:
        OSError: a mount was refused.
        BirthFailed: the image has no such working directory.
    """
    kernel.mount("atoll", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=8m")
    _devices(root)
    ours = ["etc", "proc", "tmp", "run", "root", "home/user", layout.OLD_ROOT[1:]]
    if image is None or not _is_in_image(image, workdir):
        ours.append(workdir[1:])
    prefix = interpreter()
    if image is not None:
        ours.append(IMAGE_LIBRARY[1:])
    elif not prefix.startswith("/usr"):
        ours.append(prefix[1:])
    if image is None:
        ours.append(layout.PACKAGES[1:])
    for path in ours:
        os.makedirs(f"{root}/{path}", exist_ok=True)
    _show(root, shown, besides, look)
    if environment:
        kernel.bind(environment, root + layout.PACKAGES, read_only=True)
    if image is not None:
        kernel.bind(library(), root + IMAGE_LIBRARY, read_only=True)
        _image_system(root, image, resolver)
        return
    if not os.path.lexists(f"{root}/var/tmp"):
        os.makedirs(f"{root}/var", exist_ok=True)
        os.symlink("/tmp", f"{root}/var/tmp")
    if not prefix.startswith("/usr"):
        kernel.bind(prefix, root + prefix, read_only=True)
    _host_system(root, resolver)


def _show(root: str, shown: Sequence[str], besides: Mapping[str, str], look: Look) -> None:
    for place, path in besides.items():
        os.makedirs(root + place)
        _attach(look(path), root + place)
    for number, path in enumerate(shown):
        os.makedirs(f"{root}{layout.SHOWN}", exist_ok=True)
        target = f"{root}{layout.SHOWN}/{number}"
        if os.path.isdir(path):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        _attach(look(path), target)


def _attach(tree: int, target: str) -> None:
    try:
        kernel.mount_setattr(tree, _LOOKED_AT, recursive=True)
        kernel.move_mount(tree, target)
    finally:
        os.close(tree)


def _is_in_image(image: str, workdir: str) -> bool:
    """Whether the image has this directory, or at least its first part, which then cannot be made any more.

    Raises:
        BirthFailed: it has the first part, but not the whole.
    """
    first = workdir.split("/")[1]
    if first in _NOT_FROM_IMAGE or not os.path.lexists(f"{image}/{first}"):
        return False
    place = image
    for name in workdir[1:].split("/"):
        place = f"{place}/{name}"
        if os.path.islink(place) or not os.path.isdir(place):
            raise BirthFailed(
                f"The image has /{first}, but no directory {workdir} in it; choose another workdir.", "invalid_input"
            )
    return True


def _host_system(root: str, resolver: str) -> None:
    place_system(root)
    _host_etc(root, resolver)


def place_system(root: str) -> None:
    """Show the host's programs and libraries."""
    for name in SYSTEM:
        if os.path.lexists(f"/{name}"):
            _place(f"/{name}", f"{root}/{name}")


def _image_system(root: str, image: str, resolver: str) -> None:
    for name in sorted(os.listdir(image)):
        if name not in _NOT_FROM_IMAGE and not os.path.lexists(f"{root}/{name}"):
            _place(f"{image}/{name}", f"{root}/{name}")
    _image_etc(root, image, resolver)


def seal(root: str) -> None:
    """Make the root itself read-only; what is mounted below stays as it is."""
    flags = kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount(None, root, None, flags)
