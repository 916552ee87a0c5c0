"""`network="all"`: a way out of an otherwise empty network namespace.

As root a pair of virtual interfaces and address translation, both named after the sandbox and removed with
it; as an ordinary user pasta, a network stack in user space. The sandbox reaches what the host reaches, but
neither other sandboxes, nor what `closed` lists. Where that cannot be closed, there is no network.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time

from . import closed, firewall, jail, kernel
from .closed import tool
from .layout import network_mark
from .settings import BirthFailed

_SUBNETS = 1 << 14
_GET_USER_NAMESPACE = 0xB701
_READY_TIMEOUT = 10.0
_FORWARDING = "/proc/sys/net/ipv4/ip_forward"
_FIREWALL = "firewall"
_ALL_SANDBOXES = "10.213.0.0/16"


def _run(argv: list[str]) -> None:
    """Run a network tool.

    Raises:
        BirthFailed: it failed; with what it said.
    """
    import subprocess

    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BirthFailed(f"The sandbox's network could not be set up: {' '.join(argv[:3])}: {done.stderr.strip()}")


def interface(sandbox: str) -> str:
    """The host's end of a sandbox's pair; interface names end at 15 characters."""
    return "at" + sandbox[-12:]


def _subnet(sandbox: str, attempt: int) -> tuple[str, str, str]:
    number = (sum(ord(c) * 31**i for i, c in enumerate(sandbox)) + attempt) % _SUBNETS
    base = (10 << 24) | (213 << 16) | (number << 2)
    host, guest = base + 1, base + 2
    return tuple(".".join(str(a >> shift & 255) for shift in (24, 16, 8, 0)) for a in (base, host, guest))  # type: ignore[return-value]


def _addresses() -> str:
    with open("/proc/net/fib_trie", encoding="ascii") as file:
        return file.read()


def _rules(sandbox: str, subnet: str) -> str:
    name = interface(sandbox)
    return f"""table inet {name} {{
  chain out {{ type nat hook postrouting priority 100; ip saddr {subnet}/30 oifname != "{name}" masquerade; }}
  chain pass {{ type filter hook forward priority 0; iifname "{name}" ip daddr {_ALL_SANDBOXES} drop; }}
}}
""" + closed.arriving(
        # Of IPv6 there are only link-local addresses here, and the host listens on its own.
        name,
        name,
        first="meta nfproto ipv6 drop;",
    )


def _forward() -> None:
    """Let this host pass packets on. It stays so: others may rely on it by the time the sandbox ends."""
    with open(_FORWARDING, encoding="ascii") as file:
        if file.read().strip() == "1":
            return
    with open(_FORWARDING, "w", encoding="ascii") as file:
        file.write("1")


def _pass_the_firewall(name: str, box: str) -> None:
    # Written down first: what is not there can be removed, too.
    with open(network_mark(box), "w", encoding="ascii") as file:
        file.write(_FIREWALL)
    try:
        passed = firewall.let_pass(name)
    except OSError as error:
        raise BirthFailed(f'network="all" cannot be had: {error}.', "unsupported") from error
    if not passed:
        os.truncate(network_mark(box), 0)


def _connect_root(sandbox: str, box: str, pid: int) -> None:
    ip, nsenter = tool("ip", "iproute2"), tool("nsenter", "util-linux")
    name = interface(sandbox)
    known = _addresses()
    subnet, host, guest = next(
        triple for triple in (_subnet(sandbox, attempt) for attempt in range(_SUBNETS)) if triple[1] not in known
    )
    inside = [nsenter, f"--net=/proc/{pid}/ns/net", ip]
    os.close(os.open(network_mark(box), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    try:
        # The rules first: there is no moment without them.
        closed.put_up(_rules(sandbox, subnet))
        _run([ip, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(pid)])
        _run([ip, "addr", "add", f"{host}/30", "dev", name])
        _run([ip, "link", "set", name, "up"])
        _run([*inside, "addr", "add", f"{guest}/30", "dev", "eth0"])
        _run([*inside, "link", "set", "eth0", "up"])
        _run([*inside, "route", "add", "default", "via", host])
        _forward()
        _pass_the_firewall(name, box)
    except BaseException:
        forget(sandbox, box)
        raise


def forget(sandbox: str, box: str) -> None:
    """Remove what `connect_all` left on the host. Does nothing where there is nothing.

    Raises:
        OSError: a tool that was there is gone.
    """
    if not os.path.exists(network_mark(box)):
        return
    import subprocess

    name = interface(sandbox)
    try:
        ip, nft = tool("ip", "iproute2"), tool("nft", "nftables")
    except BirthFailed as error:
        raise FileNotFoundError(str(error)) from error
    # The interface goes by itself when the kernel gets round to removing the namespace of its other end.
    for argv in ([nft, "delete", "table", "inet", name], [ip, "link", "del", name]):
        subprocess.run(argv, capture_output=True, check=False)
    if _passes_the_firewall(box):
        firewall.take_back(name)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(network_mark(box))


def _passes_the_firewall(box: str) -> bool:
    with contextlib.suppress(OSError), open(network_mark(box), encoding="ascii") as file:
        return file.read() == _FIREWALL
    return False


def _connect_rootless(pid: int, kinship: int) -> None:
    """pasta becomes the keeper's child, which ends it with the sandbox."""
    pasta, nsenter = tool("pasta", "passt"), tool("nsenter", "util-linux")
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise BirthFailed('network="all" without root needs /dev/net/tun, which this user may not open.', "unsupported")
    # Before there is an interface, so that there is no moment without them. Nobody inside will have CAP_NET_ADMIN.
    closed.put_up(closed.inside((_ALL_SANDBOXES,)), [nsenter, f"--net=/proc/{pid}/ns/net"])
    owner = _owner(pid)
    quiet = ["-f", "-q", "--config-net", "-t", "none", "-u", "none", "-T", "none", "-U", "none", "--no-map-gw"]
    child = kernel.clone(kinship)
    if child == 0:
        try:
            # It takes an inherited SIG_IGN, which Python sets, for a failure.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            os.set_inheritable(owner, True)
            os.execv(pasta, [pasta, *quiet, "--userns", f"/proc/self/fd/{owner}", str(pid)])  # noqa: S606 - our own
        finally:
            os._exit(127)
    os.close(owner)
    deadline = time.monotonic() + _READY_TIMEOUT
    while not _has_interface(pid):
        if time.monotonic() > deadline or _has_ended(child):
            raise BirthFailed(
                "The sandbox's network did not come up; what pasta said is beside this, or in the zygote's log."
            )
        time.sleep(0.005)


def _owner(pid: int) -> int:
    """The user namespace in which the network of a process can be changed: it may have gone on into another one."""
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(network, _GET_USER_NAMESPACE)
    finally:
        os.close(network)


def _has_ended(pid: int) -> bool:
    """Its keeper has not waited for it yet, so a dead one is still to be seen."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")


def _has_interface(pid: int) -> bool:
    with open(f"/proc/{pid}/net/route", encoding="ascii") as file:
        return len(file.readlines()) > 1


def connect_all(sandbox: str, box: str, pid: int, *, rootless: bool, kinship: int) -> None:
    """Give the network namespace of process `pid` a way out.

    Raises:
        BirthFailed: a tool is missing ("unsupported") or failed.
    """
    if rootless:
        _connect_rootless(pid, kinship)
    else:
        _connect_root(sandbox, box, pid)


def add_dummies(pid: int) -> None:
    """Give the network namespace of process `pid`, which has no way out, the addresses that the jail's have.

    A sandbox is none the worse for being without them, but for programs that look for addresses of one family.
    """
    child = os.fork()
    if child == 0:  # an ordinary user finds no way back
        try:
            kernel.setns(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC), kernel.CLONE_NEWNET)
            jail.add_dummy_addresses()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
