"""What this host offers for the jail, layer by layer, each tried rather than guessed. For `doctor`."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

from ..types import Layer
from . import cgroups, closed, jail, kernel, landlock, seccomp
from .settings import BirthFailed

_APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
_CLONE_SWITCH = "/proc/sys/kernel/unprivileged_userns_clone"
# The release of passt that takes no packet for the host's loopback from a sandbox (its commit f15be719).
_SOUND_PASST = "20240318"
_MAX_NAMESPACES = "/proc/sys/user/max_user_namespaces"


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _in_child(action: Callable[[], None]) -> str | None:
    """Try something in a child process: None when it worked, else the reason."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            action()
            os._exit(0)
        except OSError as error:
            os.write(writer, str(error.strerror or error).encode())
        finally:
            os._exit(1)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        said = pipe.read()
    return None if os.waitpid(pid, 0)[1] == 0 else said or "it crashed"


def namespace_fix(read: Callable[[str], str] = _read) -> str:
    """Why an ordinary user may not make namespaces here, and what to do."""
    if read(_APPARMOR) == "1":
        return (
            "Ubuntu's AppArmor forbids user namespaces to programs without a profile: run "
            "`sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or give your Python a profile "
            "with `userns,` (docs/how-to/ubuntu.md)."
        )
    if read(_CLONE_SWITCH) == "0":
        return "Run `sudo sysctl kernel.unprivileged_userns_clone=1`."
    if read(_MAX_NAMESPACES) == "0":
        return "Run `sudo sysctl user.max_user_namespaces=10000`."
    return "In a container, allow unshare and mount (for Docker: --security-opt seccomp=unconfined), or run as root."


def _namespaces() -> Layer:
    flags = jail.NAMESPACES | kernel.CLONE_NEWNET | kernel.CLONE_NEWCGROUP
    failure = _in_child(lambda: kernel.unshare(flags | kernel.CLONE_NEWUSER))
    if failure:
        return Layer("namespaces", ready=False, detail=failure, fix=namespace_fix())
    return Layer("namespaces", ready=True, detail="user, mount, pid, network, ipc, uts, cgroup")


def _unshare_as_root(flags: int) -> None:
    """Take this process into namespaces in which it may do everything."""
    uid, gid = os.getuid(), os.getgid()
    kernel.unshare(flags | (kernel.CLONE_NEWUSER if uid else 0))
    if uid:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def _mounts() -> Layer:
    def try_mounts() -> None:
        uid = os.getuid()
        _unshare_as_root(kernel.CLONE_NEWNS)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("probe", "/tmp", "tmpfs", 0, "size=1m")
        for name in ("lower", "upper", "work", "merged"):
            os.mkdir(f"/tmp/{name}")
        options = "lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work" + (",userxattr" if uid else "")
        kernel.mount("probe", "/tmp/merged", "overlay", 0, options)
        os.close(kernel.open_tree("/tmp/merged", recursive=True))

    failure = _in_child(try_mounts)
    if failure:
        # Ubuntu lets anybody make a user namespace, and then forbids what it is good for.
        denied = failure in (os.strerror(errno.EPERM), os.strerror(errno.EACCES))
        fix = namespace_fix() if denied else "atoll needs Linux 5.12 or newer with overlayfs."
        return Layer("mounts", ready=False, detail=failure, fix=fix)
    return Layer("mounts", ready=True, detail="private mounts, overlayfs, open_tree")


def _groups() -> Layer:
    found = cgroups.find()
    if found is None:
        return Layer(
            "control groups",
            ready=False,
            detail="none is writable: memory is limited per process and by polling, cpu cannot be limited",
            fix="Run as root, or let systemd delegate memory, pids and cpu to your user.",
            required=False,
        )
    return Layer("control groups", ready=True, detail=f"v{found.version}: {', '.join(sorted(found.controllers))}")


def _landlock() -> Layer:
    abi = landlock.version()
    if abi == 0:
        fix = "Use Linux 5.13 or newer with Landlock enabled (lsm=landlock,...)."
        return Layer("Landlock", ready=False, detail="not in this kernel", fix=fix, required=False)
    return Layer("Landlock", ready=True, detail=f"version {abi}")


def _seccomp() -> Layer:
    def try_filter() -> None:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        seccomp.install(seccomp.program(kernel.MACHINE))

    failure = _in_child(try_filter)
    if failure:
        return Layer("seccomp", ready=False, detail=failure, fix="Use a kernel with CONFIG_SECCOMP_FILTER.")
    return Layer("seccomp", ready=True, detail=f"filter for {kernel.MACHINE}")


def _tools() -> list[Layer]:
    if os.geteuid() == 0:
        return [
            network(("ip", "nft", "nsenter"), "iproute2 nftables util-linux"),
            _tool_layer("disk limit in the kernel", ("mkfs.ext4",), "e2fsprogs"),
        ]
    way_out = network(("pasta", "nft", "nsenter"), "passt nftables util-linux")
    return [way_out, *([_passt()] if way_out.ready else [])]


def network(tools: tuple[str, ...], packages: str) -> Layer:
    """Whether `network="all"` can be had: its tools are there, and the kernel takes the rules."""

    def try_rules() -> None:
        _unshare_as_root(kernel.CLONE_NEWNET)
        try:
            closed.put_up(closed.inside())
        except BirthFailed as error:
            raise OSError(errno.EOPNOTSUPP, str(error)) from error

    layer = _tool_layer("network=all", tools, packages)
    failure = _in_child(try_rules) if layer.ready else None
    if failure:
        fix = "Use a kernel with CONFIG_NF_TABLES_INET and CONFIG_NFT_REJECT_INET."
        return Layer(layer.name, ready=False, detail=failure, fix=fix, required=False)
    return layer


def _passt() -> Layer:
    """Whether a user's network has a second lock before the host's loopback; the first one are the rules."""
    import subprocess

    done = subprocess.run([closed.tool("pasta", "passt"), "--version"], capture_output=True, text=True, check=False)
    return passt_layer(done.stdout)


def passt_layer(said: str) -> Layer:
    """What to say of a pasta that says `said` when it is asked for its version."""
    import re

    first = (said.splitlines() or ["pasta"])[0].removeprefix("pasta").strip() or "unknown version"
    found = re.search(r"(20\d\d)_?(\d\d)_?(\d\d)", first)
    if found and "".join(found.groups()) >= _SOUND_PASST:
        return Layer("passt", ready=True, detail=first, required=False)
    detail = f"{first}: before 2024-03-18 it passes on what is sent to the host's loopback, and only rules keep it in"
    fix = "Install a newer passt (Debian 13, Ubuntu 24.10)."
    return Layer("passt", ready=False, detail=detail, fix=fix, required=False)


def _tool_layer(name: str, tools: tuple[str, ...], packages: str) -> Layer:
    places = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
    missing = [tool for tool in tools if not any(os.access(f"{place}/{tool}", os.X_OK) for place in places)]
    if missing:
        fix = f"apt-get install {packages}"
        return Layer(name, ready=False, detail=f"missing: {', '.join(missing)}", fix=fix, required=False)
    return Layer(name, ready=True, detail=", ".join(tools), required=False)


def layers() -> list[Layer]:
    """Each layer of the jail on this host."""
    if not sys.platform.startswith("linux"):
        return [Layer("Linux", ready=False, detail=sys.platform, fix="Use a hosted driver on this system.")]
    release = os.uname().release
    who = "root" if os.geteuid() == 0 else f"user {os.getuid()}, without root"
    first = Layer("Linux", ready=True, detail=f"{release}, {kernel.MACHINE}, {who}")
    return [first, _namespaces(), _mounts(), _groups(), _landlock(), _seccomp(), *_tools()]
