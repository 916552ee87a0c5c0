"""The root file system of a sandbox: a small read-only tmpfs with read-only binds of what an image needs.

The zygote fills one for the default image and every sandbox shares it; an `image=` or another `workdir`
gets one of its own.
"""

from __future__ import annotations

import os
import sys

from . import kernel, layout

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
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
    "localtime",
    "R",
    "protocols",
    "services",
)
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_NOT_FROM_IMAGE = frozenset(("proc", "dev", "sys", "tmp", "run", "home", "workspace", "etc", layout.OLD_ROOT[1:]))

# The directories /dev and / themselves are on a read-only mount, so nothing can be made in them.
WRITABLE_INSIDE = ("/tmp", layout.HOME_INSIDE, "/dev")


def interpreter() -> str:
    """The directory that holds the Python that runs this, with its standard library.

    Raises:
        OSError: it is the host's root, which no sandbox may see.
    """
    prefix = os.path.realpath(sys.base_prefix)
    if prefix == "/":
        raise OSError("this Python says that it is installed in /, so it cannot be shown without the whole host")
    return prefix


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
    }


def _host_release() -> str:
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            return file.read()
    except OSError:
        return 'NAME="Linux"\n'


def _make_parents(root: str, path: str) -> str:
    full = f"{root}/{path.strip('/')}"
    os.makedirs(full, exist_ok=True)
    return full


def _place(source: str, target: str) -> None:
    """Copy a symlink, or bind a file or directory read-only."""
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
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
    """The image's own /etc, with the generated files on top."""
    _write_etc(f"{root}/.etc", resolver)
    os.makedirs(f"{root}/etc")
    if os.path.isdir(f"{image}/etc"):
        layers = f"lowerdir={root}/.etc:{image}/etc"
        kernel.mount("etc", f"{root}/etc", "overlay", kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV, layers)
    else:
        _write_etc(f"{root}/etc", resolver)


def _devices(root: str) -> None:
    os.mkdir(f"{root}/dev")
    for name in _DEVICES:
        target = f"{root}/dev/{name}"
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        # A device on a mount without devices cannot be opened, so these few are bound plainly.
        kernel.mount(f"/dev/{name}", target, None, kernel.MS_BIND)
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


def populate(root: str, *, image: str | None = None, workdir: str = layout.WORKSPACE, resolver: str = "") -> None:
    """Fill the directory `root`, in this mount namespace, with a read-only root file system.

    Raises:
        OSError: a mount was refused.
    """
    kernel.mount("atoll", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755,size=8m")
    _devices(root)
    if image is None:
        _host_system(root, resolver)
    else:
        _image_system(root, image, resolver)
    if not os.path.lexists(f"{root}/var"):
        os.mkdir(f"{root}/var")
        os.symlink("/tmp", f"{root}/var/tmp")
    for path in ("proc", "tmp", "run", "root", layout.HOME_INSIDE, layout.OLD_ROOT, workdir):
        if not os.path.isdir(f"{root}/{path.strip('/')}"):
            _make_parents(root, path)
    _interpreter_too(root, image)


def _host_system(root: str, resolver: str) -> None:
    for name in SYSTEM:
        if os.path.lexists(f"/{name}"):
            _place(f"/{name}", f"{root}/{name}")
    _host_etc(root, resolver)


def _image_system(root: str, image: str, resolver: str) -> None:
    for name in sorted(os.listdir(image)):
        if name not in _NOT_FROM_IMAGE:
            _place(f"{image}/{name}", f"{root}/{name}")
    _image_etc(root, image, resolver)


def _interpreter_too(root: str, image: str | None) -> None:
    """Cells run on the Python that runs atoll, wherever it lives."""
    prefix = interpreter()
    if image is None and prefix.startswith("/usr"):
        return
    target = f"{root}{prefix}"
    if image is None or not os.path.exists(target):
        os.makedirs(target, exist_ok=True)
        kernel.bind(prefix, target, read_only=True)


def seal(root: str) -> None:
    """Make the root itself read-only; what is mounted below stays as it is."""
    flags = kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount(None, root, None, flags)
