"""Building an environment of packages: in a sandbox that is made for it, with the installer's words told as they come.

Third-party code runs in that sandbox and nowhere else. What comes out goes the way of every download: hostile
names and links stay in the tree.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from ..driver import Driver
from ..errors import AtollError, FileError, PackagesFailed, SandboxGone, StoreError, Unsupported
from ..packages import cache, recipe, settings
from ..policy.requirements import name_of
from ..types import Completed, Handle, Resources, Spec, Status
from . import running
from .command import exec_request
from .links import Links
from .progress import Lines, reason_of
from .running import Callback
from .transfer import download_tree

# What an installation may take, in seconds, and how much of the machine.
SECONDS = 1800.0
_RESOURCES = Resources(memory=4 << 30, pids=1024, disk=16 << 30)
_LARGEST = 16 << 30
_PATIENCE = 0.2
_CLEAN_UP = 60.0


class _Seat:
    """A sandbox that is in no registry."""

    def __init__(self, driver: Driver, handle: Handle) -> None:
        self.driver = driver
        self.handle = handle

    async def check_usable(self, *, afresh: bool = False) -> None:
        if afresh and await self.judge() != "running":
            raise self.gone()

    async def judge(self) -> Status:
        return await self.driver.status(self.handle)

    def gone(self) -> SandboxGone:
        return SandboxGone("The sandbox in which packages were being installed has ended.")


async def build(driver: Driver, environment: cache.Environment, on_progress: Callback | None = None) -> None:
    """Build an environment, unless it is there; of many who want it at once one does, and the others wait.

    Raises:
        PackagesFailed: the installer failed; with its reason. Nothing is kept.
        Unsupported: this host cannot give an installer the network that it needs, or only with a password in it.
    """
    lines = Lines(on_progress)
    while True:
        with cache.locked(environment, wait=False) as mine:
            if environment.is_built:
                return
            if mine:
                await _build(driver, environment, lines)
                return
        await lines.say_once(f"Another process is installing {', '.join(environment.packages)}; waiting for it.")
        await driver.io.sleep(_PATIENCE)


async def _build(driver: Driver, environment: cache.Environment, lines: Lines) -> None:
    io = driver.io
    try:
        draft = await io.in_thread(lambda: cache.draft(environment))
    except OSError as error:
        raise _no_room(error) from error
    done = False
    try:
        started = time.time()
        size = await _fill(driver, environment, f"{draft}/tree", lines)
        about = {"built": time.time(), "seconds": time.time() - started, "size": size}
        await io.in_thread(lambda: cache.publish(environment, draft, about))
        done = True
    except OSError as error:
        if isinstance(error, AtollError):
            raise
        raise _no_room(error) from error
    finally:
        if not done:
            cache.discard(draft)


async def _fill(driver: Driver, environment: cache.Environment, tree: str, lines: Lines) -> int:
    """Install in a sandbox and fetch the result; its size."""
    sources = settings.read()
    uv = _uv(sources)
    options = sources.inside()
    spec = Spec(
        network="none" if sources.is_local else os.environ.get("ATOLL_PACKAGES_NETWORK", "all"),
        resources=_RESOURCES,
        lifetime=SECONDS + 600,
        workdir=cache.INSIDE,
        env={} if sources.is_local else settings.proxies(),
    )
    shown = [*sources.shown(), *([uv] if uv else [])]
    try:
        handle = await driver.workshop(spec, shown)
    except Unsupported as error:
        raise Unsupported(
            f"Packages are installed in a sandbox with a network of its own, and that cannot be made: {error.message}",
            hint="Or set ATOLL_PACKAGES_NETWORK=host, and the installer shares this machine's network.",
        ) from error
    try:
        links = Links(_Seat(driver, handle))
        try:
            order = {
                "place": cache.INSIDE,
                "packages": environment.packages,
                "names": sorted({name_of(each) for each in environment.packages}),
                "options": options,
                "uv": f"{settings.PLACE}/{len(shown) - 1}" if uv else None,
                "user_site": user_site(),
            }
            await lines.say_once(f"Installing {', '.join(environment.packages)}, once for this machine.")
            completed = await perform(links, order, SECONDS, lines)
            if not completed.success:
                raise PackagesFailed(reason_of(environment.packages, completed))
            try:
                moved = await download_tree(
                    links, cache.INSIDE, tree, overwrite=False, symlinks=True, max_size=_LARGEST
                )
            except FileError as error:
                raise PackagesFailed(f"What was installed cannot be kept: {error}") from error
            return moved.size
        finally:
            links.drop()
    finally:
        with driver.io.shield(_CLEAN_UP):
            await driver.destroy(handle)


async def perform(links: Links, order: dict[str, Any], seconds: float | None, lines: Lines) -> Completed:
    """Run the recipe with the sandbox's own Python; what it says is told line by line."""
    argv = [python(), "-I", "-c", _source(), json.dumps(order)]
    request = exec_request(argv, stdin=False, env=None, workdir=None, timeout=seconds, limit=1 << 20)
    completed = await running.run(links, request, None, check=False, on_stdout=lines.hear, on_stderr=lines.hear)
    await lines.finish()
    return completed


def _source() -> str:
    with open(recipe.__file__, encoding="utf-8") as file:
        return file.read()


def python() -> str:
    """The sandbox's Python: the one that runs this, at its own place (docs/decisions/0006)."""
    return f"{os.path.realpath(sys.base_prefix)}/bin/{_version()}"


def user_site() -> str:
    """Where the sandbox user's own packages are."""
    from ..engine.layout import HOME_INSIDE

    return f"{HOME_INSIDE}/.local/lib/{_version()}/site-packages"


def environment_site() -> str:
    return f"{cache.INSIDE}/lib/{_version()}/site-packages"


def _version() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _uv(sources: settings.Sources) -> str | None:
    """uv, if it is at hand. It takes no index of local files, which pip does, nor another certificate."""
    if sources.shown() or sources.is_local or sources.get("proxy"):
        return None
    import shutil

    found = shutil.which("uv")
    return os.path.realpath(found) if found else None


def _no_room(error: OSError) -> StoreError:
    return StoreError(
        f"The packages cannot be kept: {error}.", hint="Make room, or set ATOLL_HOME to another directory."
    )
