"""`install`: packages in a sandbox that runs already, in its user's own site."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import PackagesFailed, Unsupported
from ..packages import settings
from ..policy.limits import check_timeout
from ..policy.requirements import check_requirements
from ..types import Capability
from . import workshop
from .links import Links
from .progress import Lines, reason_of
from .record import Record
from .running import Callback, check_listener


async def install(
    links: Links, record: Record, packages: str | Iterable[str], *, timeout: object, on_progress: Callback | None
) -> None:
    """Raises Unsupported, PackagesFailed, InvalidInput."""
    check_listener(links.io, "on_progress", on_progress)
    wanted = check_requirements([packages] if isinstance(packages, str) else packages)
    seconds = check_timeout(timeout)
    spec = record.info.spec
    if Capability.PACKAGES not in record.driver.capabilities:
        raise Unsupported(f"The {record.driver.name} driver cannot install packages.")
    if spec.image:
        raise Unsupported(
            "A sandbox with an image has the image's own Python.", hint="Run its installer, such as `pip install`."
        )
    if spec.network == "none":
        raise Unsupported(
            "install() fetches packages, and this sandbox has no network.",
            hint='Make it with network="all", or name the packages when it is made: '
            f"Sandbox.create(packages={list(wanted)}).",
        )
    if not wanted:
        return
    lines = Lines(on_progress)
    known = settings.read()
    sources = known.remote()
    for path in known.shown():
        await lines.say_once(f"{path} is left out: a sandbox that runs already cannot be shown files of the host.")
    visible = [workshop.user_site(), *([workshop.environment_site()] if spec.packages else [])]
    order = {"user": True, "packages": wanted, "options": sources.inside(), "visible": visible}
    completed = await workshop.perform(links, order, seconds, lines)
    if not completed.success:
        raise PackagesFailed(reason_of(wanted, completed))
