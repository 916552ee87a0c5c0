"""Snapshots, rollbacks and forks of one sandbox."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidInput, Unsupported
from ..policy.labels import check_labels
from ..policy.limits import check_lifetime
from ..policy.names import check_name
from ..policy.spec import spec_to_json
from ..policy.text import shown
from ..types import Capability, Handle, Info, Snapshot
from . import lasting
from .links import Links
from .record import Record

MOST_TWINS = 1000
_CLEAN_UP = 30.0


async def snapshot(record: Record, links: Links, name: str | None, wait: float, *, force: bool) -> Snapshot:
    """Keep files and variables under a name. Raises as `AsyncSandbox.snapshot` says."""
    await record.demand(Capability.SNAPSHOT)
    chosen = f"snap-{os.urandom(4).hex()}" if name is None else check_name(name, "name")
    seconds = lasting.check_wait(wait)
    await record.check_usable(afresh=True)
    # They are kept inside, among the files. A cell that runs on keeps its context's variables from it.
    memory = record.info.spec.resources.memory
    kept = await lasting.checkpoint(links, seconds, memory, leave_busy=True, durable=False)
    facts = {
        "sandbox": record.id,
        "created": time.time(),
        "spec": spec_to_json(record.info.spec),
        "lost": dict(kept.lost),
    }
    return described(record.driver.name, await record.driver.snapshot(record.handle, chosen, facts, force=force))


async def rollback(record: Record, links: Links, name: str) -> None:
    """Have files and variables as in a snapshot. Raises as `AsyncSandbox.rollback` says."""
    await record.demand(Capability.SNAPSHOT)
    found = await record.driver.find_snapshot(check_name(name, "name"))
    if found["sandbox"] != record.id:
        whose = f"is of the sandbox {found['sandbox']}" if found["sandbox"] else "came from a file"
        raise InvalidInput(
            f"The snapshot {name!r} {whose}, and this is {record.id}.",
            hint=f"Make a sandbox of it with Sandbox.create(snapshot={name!r}).",
        )
    await record.check_usable(afresh=True)
    await record.driver.rollback(record.handle, name)
    links.drop()
    await links.ask("revive")


async def fork(
    record: Record,
    links: Links,
    count: int,
    wait: float,
    *,
    labels: Mapping[str, str] | None,
    lifetime: float | None,
    force: bool,
    live: bool,
) -> list[Record]:
    """Sandboxes that go on where this one is. Raises as `AsyncSandbox.fork` says."""
    await record.demand(Capability.FORK)
    if live:
        raise Unsupported(
            f"The {record.driver.name} driver has no live forks; they come with the microvm wall, where a hypervisor "
            "copies memory.",
            hint="Leave live=True out: a fork then has files and variables, and info.lost names what it has not.",
        )
    seconds = lasting.check_wait(wait)
    spec = record.info.spec._replace(
        labels=record.info.labels if labels is None else check_labels(labels),
        lifetime=record.info.spec.lifetime if lifetime is None else check_lifetime(lifetime),
        snapshot=None,
    )
    await record.check_usable(afresh=True)
    kept = await lasting.checkpoint(links, seconds, spec.resources.memory, durable=False)
    twins: list[Record] = []

    def register(handle: Handle) -> None:
        created = time.time()
        info = Info(
            handle.id, record.driver.name, "running", spec.labels, created, created + spec.lifetime, spec, {}, ()
        )
        record.store.add(
            handle.id, record.driver.name, "running", spec.labels, spec, handle, created, created + spec.lifetime
        )
        twins.append(Record(record.driver, record.store, handle, info))

    try:
        await record.driver.fork(record.handle, spec, count, register, wait=seconds, force=force)
        for twin in twins:
            info = await record.driver.describe(twin.handle, twin.info)
            twin.info = info._replace(lost={**kept.lost, **info.lost})
    except BaseException:
        with record.driver.io.shield(_CLEAN_UP):
            for twin in twins:
                await twin.destroy()
        raise
    return twins


def described(driver: str, manifest: Mapping[str, Any]) -> Snapshot:
    """What a driver tells of a snapshot, as the public value."""
    return Snapshot(
        str(manifest["name"]),
        str(manifest["sandbox"]),
        driver,
        float(manifest["created"]),
        int(manifest["size"]),
        tuple(map(str, manifest["layers"])),
        dict(manifest.get("lost") or {}),
    )


def check_count(count: object) -> int:
    """Raises InvalidInput."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_TWINS:
        raise InvalidInput(f"n is {shown(count)}; give a whole number from 1 to {MOST_TWINS}.")
    return count
