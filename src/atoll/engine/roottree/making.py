"""What goes into a root file system, and into the part of it that runs anywhere."""

from __future__ import annotations

import compileall
import contextlib
import glob
import os
import shutil
import subprocess
import sys

from ...guest import begin
from .. import rootfs
from ..launch import cloudpickle_directory
from ..steward.lines import package_directory
from . import (
    CLOUDPICKLE,
    GUEST,
    LIBRARY,
    PYTHON,
    SITE_PACKAGES,
    WHEELS,
    gathering,
    interpreter,
    site_packages,
    tools,
)
from .copying import Copier, merged

_EMPTY = ("proc", "sys", "dev", "run", "workspace", "home/user", "root", "var", "opt", "srv", "mnt", "etc", "packages")
# Of the standard library: what tests, draws or builds extensions, and what is not this Python's.
_LEFT_OUT = frozenset(("site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo", "tkinter"))
_SUFFIXES_LEFT_OUT = (".a", ".o", ".opt-1.pyc", ".opt-2.pyc")
_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)


def tree(root: str) -> None:
    """Fill an empty directory with a whole root file system."""
    copier = Copier(root)
    _skeleton(root)
    _tools(copier)
    _python(copier)
    _pip(copier)
    copier.libraries(tools.LIBRARIES)
    _etc(copier)
    _guest(copier)
    _cloudpickle(copier)
    _compile(root + LIBRARY)
    _compile(root + GUEST)
    gathering.gather(root, f"{root}{GUEST}/{begin.MODULES}")
    _index_libraries(root)


def alone(built: str, target: str) -> None:
    """Fill an empty directory with the Python of a tree and all that it needs; files are shared with the tree."""
    for place in ("bin", "lib"):
        os.mkdir(f"{target}/{place}")
    os.link(built + PYTHON, f"{target}/bin/python")
    library = f"{target}/lib/{os.path.basename(LIBRARY)}"
    shutil.copytree(built + LIBRARY, library, symlinks=True, copy_function=os.link)
    shutil.copytree(f"{built}{GUEST}/atoll", f"{target}/atoll", symlinks=True, copy_function=os.link)
    needs = Copier(f"{target}/needs")
    needs.file(interpreter(), "/python")
    for path in _extensions():
        needs.file(path, f"/{os.path.basename(path)}")
    needs.libraries(tools.LIBRARIES)
    for directory, _, names in os.walk(f"{target}/needs/usr"):
        for name in names:
            place = "bin/ld.so" if name.startswith("ld-") else f"lib/{name}"
            os.rename(f"{directory}/{name}", f"{target}/{place}")
    shutil.rmtree(f"{target}/needs")


def with_busybox(built: str, target: str) -> None:
    """Fill an empty directory with the files of a tree, but for some programs."""
    shutil.copytree(built, target, symlinks=True, copy_function=os.link, dirs_exist_ok=True)
    busybox = f"{target}/usr/bin/busybox"
    for name in tools.OF_BUSYBOX if os.path.exists(busybox) else ():
        path = f"{target}/usr/bin/{name}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.link(busybox, path)


def _skeleton(root: str) -> None:
    for name in _EMPTY:
        os.makedirs(f"{root}/{name}", exist_ok=True)
    for name in ("tmp", "var/tmp", "dev/shm"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    os.chmod(f"{root}/tmp", 0o1777)  # noqa: S103 - as everywhere
    for name in ("bin", "sbin", "lib", "lib64"):
        os.makedirs(f"{root}/usr/{name}", exist_ok=True)
        os.symlink(f"usr/{name}", f"{root}/{name}")
    os.makedirs(root + SITE_PACKAGES)


def _tools(copier: Copier) -> None:
    for name in tools.NAMES:
        found = next((f"{place}/{name}" for place in tools.PLACES if os.path.isfile(f"{place}/{name}")), None)
        if found is not None:
            copier.public(os.path.realpath(found), f"/usr/bin/{name}")
    for path in tools.DATA:
        copier.public(path, merged(path))


def _python(copier: Copier) -> None:
    copier.file(interpreter(), PYTHON)
    for name in ("python3", "python"):
        os.symlink(os.path.basename(PYTHON), f"{copier.root}/usr/local/bin/{name}")
    os.symlink(PYTHON, f"{copier.root}/usr/bin/python3")
    copier.directory(rootfs.library(), LIBRARY, _is_left_out)
    for path in _extensions():  # they lie elsewhere on some systems
        copier.file(path, f"{LIBRARY}/lib-dynload/{os.path.basename(path)}")


def _pip(copier: Copier) -> None:
    """As a command, where the base installation has it; and as the wheel that a distribution keeps beside Python."""
    if os.path.isdir(f"{site_packages()}/pip"):
        for name in ("pip", "pip3"):
            path = f"{copier.root}/usr/local/bin/{name}"
            with open(path, "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\nexec {PYTHON} -m pip "$@"\n')
            os.chmod(path, 0o755)  # noqa: S103 - a program
    for wheel in glob.glob(f"{WHEELS}/pip-*.whl"):
        copier.public(wheel, wheel)


def _is_left_out(path: str) -> bool:
    name = os.path.basename(path)
    if name in _LEFT_OUT or name.endswith(_SUFFIXES_LEFT_OUT):
        return True
    return name.endswith(".pyc") and f".{sys.implementation.cache_tag}." not in name


def _extensions() -> list[str]:
    """The compiled modules of the standard library."""
    import _struct

    # Of the base installation, where a compiled module has a file at all.
    place = os.path.dirname(getattr(_struct, "__file__", None) or f"{rootfs.library()}/lib-dynload/_struct")
    with contextlib.suppress(FileNotFoundError):
        return sorted(f"{place}/{name}" for name in os.listdir(place) if ".so" in name and "tkinter" not in name)
    return []


def _etc(copier: Copier) -> None:
    for name, text in rootfs.etc_files().items():
        with open(f"{copier.root}/etc/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    found = next(filter(os.path.isfile, _CERTIFICATES), None)
    if found is None:
        return
    kept = _CERTIFICATES[0]
    copier.file(found, kept)
    for link in _certificate_links():
        os.makedirs(os.path.dirname(copier.root + link), exist_ok=True)
        if not os.path.lexists(copier.root + link):
            os.symlink(kept, copier.root + link)


def _certificate_links() -> list[str]:
    """Where else programs look for the certificates; one is where the OpenSSL of this Python does."""
    try:
        import ssl
    except ImportError:
        return []
    own = ssl.get_default_verify_paths().openssl_cafile
    return [*_CERTIFICATES[1:], *([merged(own)] if own.startswith("/") else [])]


def _guest(copier: Copier) -> None:
    for part in ("guest", "wire"):
        copier.directory(
            f"{package_directory()}/atoll/{part}",
            f"{GUEST}/atoll/{part}",
            lambda path: os.path.basename(path) == "__pycache__",
        )
    with open(f"{copier.root}{GUEST}/atoll/__init__.py", "w", encoding="utf-8") as file:
        file.write("")


def _cloudpickle(copier: Copier) -> None:
    place = cloudpickle_directory()
    if place:
        copier.directory(place, CLOUDPICKLE, lambda path: not path.endswith(".py"))


def _compile(directory: str) -> None:
    """So that nobody has to do it again at each start. What does not compile is not compiled."""
    compileall.compile_dir(directory, quiet=2, stripdir=directory, prependdir=directory.partition("/tree.draft")[2])


def _index_libraries(root: str) -> None:
    """For `ctypes.util.find_library`; the loader finds everything without. Only root can change into a tree."""
    tool = next(filter(os.path.isfile, ("/sbin/ldconfig", "/usr/sbin/ldconfig")), None)
    if tool is not None and os.geteuid() == 0:
        subprocess.run([tool, "-r", root], capture_output=True, check=False)
