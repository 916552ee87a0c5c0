"""What this host offers for the jail, layer by layer, each tried rather than guessed. For `doctor`."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping

from ..types import Layer
from . import cgroups, closed, disk, firewall, jail, kernel, landlock, seccomp, threshold
from .settings import BirthFailed

_APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
_CLONE_SWITCH = "/proc/sys/kernel/unprivileged_userns_clone"
# The release of passt that takes no packet for the host's loopback from a sandbox (its commit f15be719).
_SOUND_PASST = "20240318"
TUN = "/dev/net/tun"
_RULES = {"nft": "nftables", "nsenter": "util-linux"}
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
    return container_fix(container(), read)


def container() -> str:
    """What kind of container this process is in, as far as one can tell: "Docker", "Podman", "container", or ""."""
    if os.path.exists("/run/.containerenv"):
        return "Podman"
    if os.path.exists("/.dockerenv"):
        return "Docker"
    # The second is what systemd-nspawn, LXC and others set, in lower case.
    return "container" if {"KUBERNETES_SERVICE_HOST", "container"} & os.environ.keys() else ""


def container_fix(place: str, read: Callable[[str], str] = _read) -> str:
    """What a container must be started with, so that there can be walls in it."""
    words = "--security-opt seccomp=unconfined"
    words += " --security-opt unmask=ALL" if place == "Podman" else " --security-opt systempaths=unconfined"
    if read("/proc/self/attr/current").partition(" ")[0] not in ("", "unconfined"):
        words += " --security-opt apparmor=unconfined"
    if os.geteuid() == 0 and not threshold.may_map_root():
        words += " --user 1000"
    if place in ("", "container"):
        begin = "Start this container" if place else "If this is a container, start it"
        return (
            f"{begin} with {words} (Docker); in Kubernetes with `seccompProfile: {{type: Unconfined}}` and "
            '`procMount: Unmasked`. `driver="wasm"` needs neither (docs/how-to/containers.md).'
        )
    return f'Start this container with {words}. `driver="wasm"` needs nothing of it (docs/how-to/containers.md).'


def is_denied(message: str) -> bool:
    """Whether an error is the host's refusal, rather than a lack of something."""
    return any(os.strerror(number) in message for number in (errno.EPERM, errno.EACCES))


def _namespaces() -> Layer:
    flags = jail.NAMESPACES | kernel.CLONE_NEWNET | kernel.CLONE_NEWCGROUP
    failure = _in_child(lambda: kernel.unshare(flags | kernel.CLONE_NEWUSER))
    if failure:
        return Layer("namespaces", ready=False, detail=failure, fix=namespace_fix())
    return Layer("namespaces", ready=True, detail="user, mount, pid, network, ipc, uts, cgroup")


def _unshare_as_root(flags: int) -> None:
    """Take this process into namespaces in which it may do everything."""
    uid, gid, lent = os.getuid(), os.getgid(), not threshold.is_rootless()
    kernel.unshare(flags | (0 if lent else kernel.CLONE_NEWUSER))
    if not lent:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            threshold.write_map(name, text)


def _mounts() -> Layer:
    def try_mounts() -> None:
        rootless = threshold.is_rootless()
        _unshare_as_root(kernel.CLONE_NEWNS | kernel.CLONE_NEWPID)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("probe", "/tmp", "tmpfs", 0, "size=1m")
        for name in ("lower", "upper", "work", "merged", "proc", "old"):
            os.mkdir(f"/tmp/{name}")
        options = "lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work" + (",userxattr" if rootless else "")
        kernel.mount("probe", "/tmp/merged", "overlay", 0, options)
        os.close(kernel.open_tree("/tmp/merged", recursive=True))
        if failure := _in_child(_mount_in_a_pid_namespace):
            raise OSError(errno.EPERM, failure)

    failure = _in_child(try_mounts)
    if failure:
        # Ubuntu lets anybody make a user namespace, and then forbids what it is good for.
        fix = namespace_fix() if is_denied(failure) else "atoll needs Linux 5.12 or newer with overlayfs."
        return Layer("mounts", ready=False, detail=failure, fix=fix)
    return Layer("mounts", ready=True, detail="private mounts, overlayfs, open_tree, proc, pivot_root")


def _mount_in_a_pid_namespace() -> None:
    # A container masks parts of its /proc, and then the kernel gives nobody in it a new one.
    kernel.mount("proc", "/tmp/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    os.chdir("/tmp")
    kernel.pivot_root(".", "old")


def _groups() -> Layer:
    found = cgroups.find()
    if found is not None:
        return Layer("control groups", ready=True, detail=f"v{found.version}: {', '.join(sorted(found.controllers))}")
    return Layer(
        "control groups",
        ready=False,
        detail="none is writable: memory is limited per process and by polling, cpu cannot be limited",
        fix=groups_fix(),
        required=False,
    )


def groups_fix() -> str:
    """What gives an ordinary user control groups."""
    if container():
        return "A container has none to give but with --privileged; its own limits hold for all sandboxes together."
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers") and os.path.isdir("/run/systemd/system"):
        return (
            "Run `sudo mkdir -p /etc/systemd/system/user@.service.d`, then `printf '[Service]\\nDelegate=cpu memory "
            "pids\\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf` and `sudo systemctl "
            "daemon-reload`, and log in again; or run as root."
        )
    return "Run as root."


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
    if not threshold.is_rootless():
        return [network({"ip": "iproute2", **_RULES}), disk_limit()]
    way_out = network({"pasta": "passt", **_RULES}, tun=True)
    return [way_out, *([_passt()] if way_out.ready else [])]


def network(tools: Mapping[str, str], *, tun: bool = False) -> Layer:
    """Whether `network="all"` can be had: its tools are there, by package, and the kernel takes the rules.

    `tun` is for a network stack in user space.
    """

    def try_rules() -> None:
        _unshare_as_root(kernel.CLONE_NEWNET)
        try:
            closed.put_up(closed.inside())
        except BirthFailed as error:
            raise OSError(errno.EOPNOTSUPP, str(error)) from error

    layer = _tool_layer("network=all", tools)
    if not layer.ready:
        return layer
    failure = _in_child(try_rules)
    if failure:
        fix = "Use a kernel with CONFIG_NF_TABLES_INET and CONFIG_NFT_REJECT_INET."
        fix = namespace_fix() if is_denied(failure) else fix
        return Layer(layer.name, ready=False, detail=failure, fix=fix, required=False)
    if tun and not os.access(TUN, os.R_OK | os.W_OK):
        fix = f"Start this container with --device {TUN}." if container() else f"Run: sudo chmod 666 {TUN}"
        return Layer(layer.name, ready=False, detail=f"{TUN} cannot be opened", fix=fix, required=False)
    return layer if tun else _firewall(layer)


def _firewall(layer: Layer) -> Layer:
    """Whether this host passes packets on. What iptables drops is let pass when a network is made."""
    said = subprocess.run(
        [closed.tool("nft", "nftables"), "list", "chains"], capture_output=True, text=True, check=False
    )
    chain = firewall.closed_chain(said.stdout)
    if chain is None:
        return layer
    return Layer(
        layer.name,
        ready=False,
        detail=f"the firewall's chain {chain} drops what it does not know, and so what sandboxes send",
        fix=f"nft insert rule {chain} iifname 'at*' accept; "
        f"nft insert rule {chain} ct state established,related accept",
        required=False,
    )


def disk_limit() -> Layer:
    """Whether a sandbox can have a disk of its own, by trying to have a loop device."""
    layer = _tool_layer("disk limit in the kernel", {"mkfs.ext4": "e2fsprogs"})
    if not layer.ready:
        return layer
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(1 << 20)
        try:
            os.close(disk.attach(file.name)[1])
        except OSError as error:
            fix = "Give this container its loop devices: --privileged." if container() else "Run: modprobe loop"
            return Layer(layer.name, ready=False, detail=f"no loop device: {error}", fix=fix, required=False)
    return Layer(layer.name, ready=True, detail="an ext4 file system on a loop device", required=False)


def _passt() -> Layer:
    """Whether a user's network has a second lock before the host's loopback; the first one are the rules."""
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


def _tool_layer(name: str, tools: Mapping[str, str]) -> Layer:
    places = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
    missing = [tool for tool in tools if not any(os.access(f"{place}/{tool}", os.X_OK) for place in places)]
    if missing:
        fix = f"apt-get install {' '.join(dict.fromkeys(tools[tool] for tool in missing))}"
        return Layer(name, ready=False, detail=f"missing: {', '.join(missing)}", fix=fix, required=False)
    return Layer(name, ready=True, detail=", ".join(tools), required=False)


def layers() -> list[Layer]:
    """Each layer of the jail on this host. What needs one that is missing is not tried."""
    if not sys.platform.startswith("linux"):
        return [Layer("Linux", ready=False, detail=sys.platform, fix="Use a hosted driver on this system.")]
    found = [Layer("Linux", ready=True, detail=f"{os.uname().release}, {kernel.MACHINE}, {_who()}"), _namespaces()]
    if found[-1].ready:
        found.append(_mounts())
    else:
        found.append(Layer("mounts", ready=False, detail="not tried, because they need namespaces"))
    found += [_groups(), _landlock(), _seccomp()]
    return found + (_tools() if all(layer.ready for layer in found[1:3]) else [])


def _who() -> str:
    if os.geteuid() != 0:
        return f"user {os.getuid()}, without root"
    return "root" if not threshold.is_rootless() else "root without its rights, so as an ordinary user"
