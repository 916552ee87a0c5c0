"""The host's own firewall, where it passes on no packets that it does not know.

Docker sets the policy of iptables' chain FORWARD to DROP: `network="all"` of root would be a network on which nothing
arrives.

A sandbox's packets are accepted at the end of that chain, so that all that its administrator or Docker has to say about
them comes first. What `closed` and `network` refuse is refused in tables of their own, which this does not touch.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

_PLACES = ("/usr/sbin/iptables", "/sbin/iptables", "/usr/bin/iptables")
_CHAIN = "FORWARD"
# Waits for others who change rules at the same time.
_PATIENCE = "--wait=10"


def _iptables() -> str | None:
    return next((path for path in _PLACES if os.access(path, os.X_OK)), None)


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def drops() -> bool:
    """Whether iptables passes on nothing that it does not know."""
    tool = _iptables()
    return tool is not None and _run(tool, _PATIENCE, "-S", _CHAIN).stdout.startswith(f"-P {_CHAIN} DROP")


def _rules(interface: str) -> Iterator[list[str]]:
    yield ["-i", interface, "-j", "ACCEPT"]
    yield ["-o", interface, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"]


def let_pass(interface: str) -> bool:
    """Have what comes from an interface passed on, and the answers to it; whether anything was to be done.

    Raises:
        OSError: the host takes no such rule.
    """
    tool = _iptables()
    if tool is None or not drops():
        return False
    for rule in _rules(interface):
        done = _run(tool, _PATIENCE, "-A", _CHAIN, *rule)
        if done.returncode != 0:
            raise OSError(f"this host's firewall passes on no packets, and takes no rule: {done.stderr.strip()}")
    return True


def take_back(interface: str) -> None:
    """Remove what `let_pass` has added, if it is there."""
    tool = _iptables()
    if tool is None:
        return
    for rule in _rules(interface):
        _run(tool, _PATIENCE, "-D", _CHAIN, *rule)


def closed_chain(listed: str) -> str | None:
    """The first chain in what `nft list chains` says that passes on nothing it does not know, and is not iptables'."""
    table = ""
    for block in re.split(r"\n(?=table )", listed):
        table = block.partition("{")[0].removeprefix("table ").strip()
        for name, body in re.findall(r"chain (\S+) \{([^}]*)\}", block):
            if "hook forward" in body and "policy drop" in body and not (table == "ip filter" and name == _CHAIN):
                return f"{table} {name}"
    return None
