"""`network="all"`: a way out of an otherwise empty network namespace.

As root a pair of virtual interfaces and address translation, both named after the sandbox and removed with
it; as an ordinary user pasta, a network stack in user space. The sandbox reaches what the host reaches, but
not link-local addresses, where clouds keep their metadata and credentials.
"""

from __future__ import annotations

import os
import time

from . import kernel
from .settings import BirthFailed

_SUBNETS = 1 << 14
_READY_TIMEOUT = 10.0
_FORWARDING = "/proc/sys/net/ipv4/ip_forward"


def _run(argv: list[str], text: str = "") -> None:
    """Run a network tool.

    Raises:
        BirthFailed: it failed; with what it said.
    """
    import subprocess

    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BirthFailed(f"The sandbox's network could not be set up: {' '.join(argv[:3])}: {done.stderr.strip()}")


def _tool(name: str, package: str) -> str:
    for directory in ("/usr/sbin", "/usr/bin", "/sbin", "/bin"):
        if os.access(f"{directory}/{name}", os.X_OK):
            return f"{directory}/{name}"
    raise BirthFailed(f'network="all" needs `{name}`; install the package {package}.', "unsupported")


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
  chain pass {{ type filter hook forward priority 0; iifname "{name}" ip daddr 169.254.0.0/16 drop; }}
  chain host {{ type filter hook input priority 0; iifname "{name}" ip daddr 169.254.0.0/16 drop; }}
}}
"""


def _connect_root(sandbox: str, pid: int) -> None:
    ip, nft, nsenter = _tool("ip", "iproute2"), _tool("nft", "nftables"), _tool("nsenter", "util-linux")
    name = interface(sandbox)
    known = _addresses()
    subnet, host, guest = next(
        triple for triple in (_subnet(sandbox, attempt) for attempt in range(_SUBNETS)) if triple[1] not in known
    )
    inside = [nsenter, f"--net=/proc/{pid}/ns/net", ip]
    try:
        _run([ip, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(pid)])
        _run([ip, "addr", "add", f"{host}/30", "dev", name])
        _run([ip, "link", "set", name, "up"])
        _run([*inside, "addr", "add", f"{guest}/30", "dev", "eth0"])
        _run([*inside, "link", "set", "eth0", "up"])
        _run([*inside, "route", "add", "default", "via", host])
        _run([nft, "-f", "-"], _rules(sandbox, subnet))
        with open(_FORWARDING, "r+", encoding="ascii") as file:
            if file.read().strip() != "1":
                file.write("1")
    except BaseException:
        forget(sandbox)
        raise


def forget(sandbox: str) -> None:
    """Remove what `connect_all` left on the host. Does nothing where there is nothing."""
    name = interface(sandbox)
    if os.geteuid() != 0 or not os.path.exists(f"/sys/class/net/{name}"):
        return
    import subprocess

    for argv in (["ip", "link", "del", name], ["nft", "delete", "table", "inet", name]):
        subprocess.run(argv, capture_output=True, check=False)


def _connect_rootless(pid: int, kinship: int) -> None:
    """pasta becomes the keeper's child, which ends it with the sandbox."""
    pasta = _tool("pasta", "passt")
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise BirthFailed('network="all" without root needs /dev/net/tun, which this user may not open.', "unsupported")
    quiet = ["-f", "-q", "--config-net", "-t", "none", "-u", "none", "-T", "none", "-U", "none", "--no-map-gw"]
    child = kernel.clone(kinship)
    if child == 0:
        try:
            os.execv(pasta, [pasta, *quiet, str(pid)])  # noqa: S606 - our own arguments
        finally:
            os._exit(127)
    deadline = time.monotonic() + _READY_TIMEOUT
    while not _has_interface(pid):
        if time.monotonic() > deadline or not os.path.exists(f"/proc/{child}/fd/0"):
            raise BirthFailed("The sandbox's network did not come up; the zygote's log has what pasta said.")
        time.sleep(0.005)


def _has_interface(pid: int) -> bool:
    with open(f"/proc/{pid}/net/route", encoding="ascii") as file:
        return len(file.readlines()) > 1


def connect_all(sandbox: str, pid: int, *, rootless: bool, kinship: int) -> None:
    """Give the network namespace of process `pid` a way out.

    Raises:
        BirthFailed: a tool is missing ("unsupported") or failed.
    """
    if rootless:
        _connect_rootless(pid, kinship)
    else:
        _connect_root(sandbox, pid)
