"""Building an environment of packages: in a sandbox that is made for it, with the installer's words told as they come.

Third-party code runs in that sandbox and nowhere else; wheels are fetched by pip outside, which starts no program. What
comes out of the sandbox goes the way of every download: hostile names and links stay in the tree.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, NamedTuple

from ..driver import Driver
from ..errors import AtollError, FileError, PackagesFailed, SandboxGone, StoreError, Unsupported
from ..packages import cache, recipe, settings
from ..policy.offers import check_spec
from ..policy.requirements import name_of
from ..types import Completed, Handle, Resources, Spec, Status
from . import running
from .command import exec_request
from .fetching import Wanted, fetch
from .links import Links
from .progress import Lines, is_out_of_reach, reason_of
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

    info = None

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
        Unsupported: one of pip's settings cannot be honoured, or only by showing a password to code of packages.
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
        size = await _fill(driver, environment, draft, lines)
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


class _Order(NamedTuple):
    """What an installer is to do, and what its sandbox shows it."""

    options: list[list[str]]
    network: Any
    env: dict[str, str] | None = None
    shown: tuple[str, ...] = ()
    wheels: str | None = None
    uv: str | None = None


async def _fill(driver: Driver, environment: cache.Environment, draft: str, lines: Lines) -> int:
    """Install in a sandbox and fetch the result into `draft`/tree; its size.

    Wheels are fetched on the host, so that their code never has a network or a password. What has none is fetched and
    built in a sandbox that has.
    """
    sources = settings.read()
    await lines.say_once(f"Installing {', '.join(environment.packages)}, once for this machine.")
    local = _Order(sources.inside(), "none", shown=sources.shown()) if sources.is_local else None
    # Where the host's Python is not shown, its directories are only as far as everybody may read them.
    if local and (driver.python is None or sources.wants_source):
        return await _install(driver, environment, local, f"{draft}/tree", lines)
    if sources.wants_source:
        return await _install(driver, environment, _networked(sources), f"{draft}/tree", lines)
    fetched = f"{draft}/fetched"
    wanted = Wanted(python(), environment.packages, sources, fetched, SECONDS)
    try:
        completed = await fetch(driver.io, wanted, lines)
        if completed.success:
            order = _Order([], "none", shown=(wanted.wheels,), wheels=f"{settings.PLACE}/0")
            return await _install(driver, environment, order, f"{draft}/tree", lines)
    finally:
        await driver.io.in_thread(lambda: cache.discard(fetched))
    why = reason_of(environment.packages, completed)
    if is_out_of_reach(completed) or completed.timed_out:
        raise PackagesFailed(why)
    if local:
        return await _install(driver, environment, local, f"{draft}/tree", lines)
    await lines.say_once("There are no wheels of all of these; trying to build them from source.")
    try:
        return await _install(driver, environment, _networked(sources), f"{draft}/tree", lines)
    except Unsupported as error:
        raise PackagesFailed(
            f"{why.rstrip('.')}. That was as wheels; what has none is built in a sandbox with a network, and that "
            f"cannot be made: {error.message}",
            hint=error.hint,
        ) from error


def _networked(sources: settings.Sources) -> _Order:
    """An installer that looks for everything itself."""
    uv = _uv(sources)
    shown = (*sources.shown(), *([uv] if uv else []))
    return _Order(
        sources.inside(),
        os.environ.get("ATOLL_PACKAGES_NETWORK", "all"),
        settings.proxies(),
        shown,
        uv=f"{settings.PLACE}/{len(shown) - 1}" if uv else None,
    )


async def _install(driver: Driver, environment: cache.Environment, order: _Order, tree: str, lines: Lines) -> int:
    spec = Spec(
        network=order.network,
        resources=_RESOURCES,
        lifetime=SECONDS + 600,
        workdir=cache.INSIDE,
        env=order.env or {},
    )
    try:
        check_spec(driver.name, await driver.offers(), spec)
        handle = await driver.workshop(spec, order.shown)
    except Unsupported as error:
        if order.network != "all":
            raise
        raise Unsupported(
            error.message, hint="Or set ATOLL_PACKAGES_NETWORK=host, and the installer shares this machine's network."
        ) from error
    try:
        links = Links(_Seat(driver, handle))
        try:
            told = {
                "place": cache.INSIDE,
                "packages": environment.packages,
                "names": sorted({name_of(each) for each in environment.packages}),
                "options": order.options,
                "wheels": order.wheels,
                "uv": order.uv,
                "user_site": user_site(),
            }
            completed = await perform(links, driver.python or python(), told, SECONDS, lines)
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


async def perform(links: Links, inside: str, order: dict[str, Any], seconds: float | None, lines: Lines) -> Completed:
    """Run the recipe with the sandbox's own Python, `inside`; what it says is told line by line."""
    argv = [inside, "-I", "-c", _source(), json.dumps(order)]
    request = exec_request(argv, stdin=False, env=None, workdir=None, timeout=seconds, limit=1 << 20)
    completed = await running.run(links, request, None, check=False, on_stdout=lines.hear, on_stderr=lines.hear)
    await lines.finish()
    return completed


def _source() -> str:
    with open(recipe.__file__, encoding="utf-8") as file:
        return file.read()


def python() -> str:
    """The Python that runs this, at its own place, where most walls show it (docs/decisions/0006)."""
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
