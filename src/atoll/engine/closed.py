"""What `network="all"` does not reach: where clouds hand out credentials, and the host's loopback.

One table of addresses for every wall and for root and users alike; the rules that close them are nftables', which look
at each packet. Routes would not do: a socket that is bound to a device (SO_BINDTODEVICE, free to all since Linux 5.7)
passes them by.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from .settings import BirthFailed

# Link-local first: most clouds, and what hosts and neighbours have among themselves. Then Alibaba, Azure, Oracle.
METADATA4 = ("169.254.0.0/16", "100.100.100.200", "168.63.129.16", "192.0.0.192")
# Link-local, then Amazon (instances, pods), Google, Oracle, Scaleway.
METADATA6 = ("fe80::/10", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42")
# These have no business on a wire, and whoever takes them from one may take them for its own.
LOOPBACK4 = ("127.0.0.0/8", "0.0.0.0/8")
MAPPED6 = "::ffff:0:0/96"
LOOPBACK6 = ("::1", "::", MAPPED6)
_RESOLVER = "/etc/resolv.conf"
_DIRECTORIES = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")


def tool(name: str, package: str) -> str:
    """Where a program of the system is.

    Raises:
        BirthFailed: it is not there ("unsupported"); with the package to install.
    """
    for directory in _DIRECTORIES:
        if os.access(f"{directory}/{name}", os.X_OK):
            return f"{directory}/{name}"
    raise BirthFailed(f'network="all" needs `{name}`; install the package {package}.', "unsupported")


def put_up(text: str, enter: Sequence[str] = ()) -> None:
    """Have nft take rules, all or none of them; `enter` is a command that leads into a network namespace.

    Raises:
        BirthFailed: it is missing, or the kernel does not take them ("unsupported").
    """
    import subprocess

    argv = [*enter, tool("nft", "nftables"), "-f", "-"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[0]
        raise BirthFailed(
            'network="all" is refused, because the addresses where clouds keep credentials cannot be closed: '
            f"nft: {said}. The kernel needs nf_tables, with nft_reject_inet and nft_masq.",
            "unsupported",
        )


def rules(verdict: str = "drop", more: tuple[str, ...] = ()) -> str:
    """Statements of a chain, which has let pass already what stays on this machine. `more` are closed networks.

    A name server that the host is told to ask may be asked there: on some clouds it has the address of the metadata.
    """
    four, six = _name_servers()
    asked = "meta l4proto { tcp, udp } th dport 53"
    lines = [f"ip daddr {_set(LOOPBACK4)} {verdict}", f"ip6 daddr {_set(LOOPBACK6)} {verdict}"]
    lines += [f"{asked} ip daddr {_set(four)} accept"] if four else []
    lines += [f"{asked} ip6 daddr {_set(six)} accept"] if six else []
    # How a neighbour is found on a wire; nobody without CAP_NET_RAW can send these.
    lines += ["icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit } accept"]
    lines += [f"ip daddr {_set((*METADATA4, *more))} {verdict}", f"ip6 daddr {_set(METADATA6)} {verdict}"]
    return "; ".join(lines) + ";"


def _set(addresses: tuple[str, ...]) -> str:
    return f"{{ {', '.join(addresses)} }}"


def _name_servers() -> tuple[tuple[str, ...], tuple[str, ...]]:
    import ipaddress

    try:
        with open(_RESOLVER, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:
        return (), ()
    found = set()
    for words in lines:
        if words[:1] == ["nameserver"] and len(words) > 1:
            try:
                found.add(ipaddress.ip_address(words[1].partition("%")[0]))
            except ValueError:
                continue
    texts = [(each.version, str(each)) for each in found]
    return tuple(sorted(t for v, t in texts if v == 4)), tuple(sorted(t for v, t in texts if v == 6))


def inside(more: tuple[str, ...] = ()) -> str:
    """A table for a network namespace whose processes may not change it.

    The second chain is the wall: it sees all that leaves, whoever sent it and however it got there. The first one
    only answers at once, so that nobody waits for what never comes.
    """
    local = 'oifname "lo" accept;'
    return f"""table inet atoll {{
  chain answer {{ type filter hook output priority 0; {local} {rules("reject", more)} }}
  chain leave {{ type filter hook postrouting priority 0; {local} {rules("drop", more)} }}
}}
"""


def arriving(table: str, interface: str, first: str = "") -> str:
    """A chain for the host: what comes from an interface, before anything is translated. `first` are statements."""
    return f"""table inet {table} {{
  chain arrive {{ type filter hook prerouting priority -300; iifname != "{interface}" accept; {first} {rules()} }}
}}
"""
