"""`install`: packages in a sandbox that runs already, in its user's own site."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ..errors import PackagesFailed, Unsupported
from ..home import state_dir
from ..packages import cache, settings
from ..policy.limits import check_timeout
from ..policy.requirements import check_requirements
from ..types import Capability, Completed
from . import workshop
from .fetching import Wanted, fetch
from .links import Links
from .progress import Lines, reason_of
from .record import Record
from .running import Callback, check_listener
from .transfer import upload_tree

_CLEAN_UP = 30.0


async def install(
    links: Links, record: Record, packages: str | Iterable[str], *, timeout: object, on_progress: Callback | None
) -> None:
    """Raises Unsupported, PackagesFailed, InvalidInput."""
    check_listener(links.io, "on_progress", on_progress)
    wanted = check_requirements([packages] if isinstance(packages, str) else packages)
    seconds = check_timeout(timeout)
    spec = record.info.spec
    await record.demand(Capability.PACKAGES)
    if spec.image:
        raise Unsupported(
            "A sandbox with an image has the image's own Python.", hint="Run its installer, such as `pip install`."
        )
    if not wanted:
        return
    lines = Lines(on_progress)
    known = settings.read()
    visible = [workshop.user_site(), *([workshop.environment_site()] if spec.packages else [])]
    python = record.driver.python or workshop.python()
    order = {"user": True, "packages": wanted, "visible": visible}
    if spec.network == "none":
        most = spec.resources.disk
        completed = await _install_fetched(links, python, known, order, seconds, lines, most=most)
    else:
        sources = known.remote()
        for path in known.shown():
            await lines.say_once(f"{path} is left out: a sandbox that runs already cannot be shown files of the host.")
        completed = await workshop.perform(links, python, {**order, "options": sources.inside()}, seconds, lines)
    if not completed.success:
        raise PackagesFailed(reason_of(wanted, completed))


async def _install_fetched(
    links: Links,
    python: str,
    known: settings.Sources,
    order: dict[str, Any],
    seconds: float | None,
    lines: Lines,
    *,
    most: int | None,
) -> Completed:
    """For a sandbox without a network: pip fetches wheels on the host, where it can start no program, and installs
    them inside. No more is fetched than its disk could hold."""
    if known.wants_source:
        raise Unsupported(
            "Your settings of pip want packages to be built from source, which takes a network.",
            hint=f'Make the sandbox with network="all" or packages={list(order["packages"])}.',
        )
    io = links.io
    place = await io.in_thread(lambda: cache.wheels_place(state_dir()))
    try:
        within = workshop.SECONDS if seconds is None else seconds
        wanted = Wanted(workshop.python(), order["packages"], known, f"{place}/fetched", within, most)
        fetched = await fetch(io, wanted, lines)
        if not fetched.success:
            return fetched
        inside = f"/tmp/{os.path.basename(place)}"  # noqa: S108 - the sandbox's own
        await upload_tree(links, wanted.wheels, inside)
    finally:
        await io.in_thread(lambda: cache.discard(place))
    try:
        return await workshop.perform(links, python, {**order, "options": [], "wheels": inside}, seconds, lines)
    finally:
        with io.shield(_CLEAN_UP):
            await links.ask("remove", path=inside, recursive=True, missing_ok=True)
