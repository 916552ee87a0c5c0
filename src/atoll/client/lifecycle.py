"""Making sandboxes and finding them again, on the registry and the drivers.

Who finds a sandbox that has ended sweeps up after it and removes its row; a listing tells of it once,
with the status "gone" and the reason.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .. import registry, store
from ..driver import Driver, Register
from ..errors import AtollError, Busy, DriverError, InvalidInput, SandboxGone
from ..io import IO, BlockingIO, drive
from ..policy.ignores import check_ignore
from ..policy.labels import check_labels
from ..policy.offers import check_spec
from ..policy.sizes import format_size
from ..policy.spec import make_spec, spec_from_json, with_image_as_path
from ..policy.text import kind_of, shown
from ..store import Reservation, Row, Store
from ..types import Capability, Codebase, Handle, Info, Resources, Spec, Status
from .choosing import choose
from .keywords import CREATE
from .record import Record, reason_of_end
from .running import Callback, check_listener, tell

if TYPE_CHECKING:
    from .tools import Function, Tools

_CLEAN_UP = 30.0
_MAKING = 60.0
_WISHES = frozenset(make_spec.__kwdefaults__ or ())
_HANDED_ON = frozenset(CREATE)
_DECIDED = ("image", "source", "codebase", "ignore", "workdir", "packages")
_STATUSES = frozenset(("creating", "running", "paused", "stopped", "gone"))

Write = Callable[[str, str, Status, Mapping[str, str], Spec, Handle, float, float], None]


async def create(io: IO, driver: str | None = None, *, on_progress: Callback | None = None, **wishes: Any) -> Record:
    """Make a sandbox; `wishes` are the keywords of `make_spec`.

    Raises:
        InvalidInput, Unsupported, DriverError, CreateFailed, PackagesFailed, StoreError: nothing is left of it.
    """
    check_listener(io, "on_progress", on_progress)
    registered = store.shared()

    async def make(wall: Driver, passed_over: Mapping[str, str]) -> Record:
        spec = await _spec(wall, wishes)
        made = await _build(wall, spec, registered, registered.add, on_progress)
        return await _noted(made, passed_over, on_progress)

    return await choose(io, driver, make)


async def connect(io: IO, id: str) -> Record:
    """A sandbox that exists, whoever made it, by its id or the beginning of that.

    Raises:
        SandboxNotFound: no sandbox has that id.
        InvalidInput: several ids begin so.
        SandboxGone: it has ended; the message says why, and what was left of it is swept up.
    """
    if not isinstance(id, str):
        raise InvalidInput(f"id is {kind_of(id)}; give the id of a sandbox.")
    registered = store.shared()
    row = registered.resolve(id) if id else registered.get(id)
    driver = registry.load(row.driver, io)
    reason = None if row.handle is None else await driver.ending(row.handle)
    record = await _record(io, registered, row)
    if record is None:
        raise SandboxGone(f"The sandbox {row.id} is gone: {reason or reason_of_end(_info(row, 'gone'), row)}.")
    return record


def connect_at_once(id: str, io: IO) -> Record:
    """The same where nothing can be awaited, for whoever speaks by `io` from then on. Raises as `connect`."""
    found = drive(connect(BlockingIO(), id))
    return Record(registry.load(found.driver.name, io), found.store, found.handle, found.info)


async def find(io: IO, labels: Mapping[str, str]) -> Record | None:
    """The newest sandbox that carries all of `labels` and has not ended."""
    registered = store.shared()
    for row in registered.find(_some(labels)):
        record = await _record(io, registered, row)
        if record is not None:
            return record
    return None


async def listing(
    io: IO,
    labels: Mapping[str, str] | None = None,
    driver: str | None = None,
    status: Status | None = None,
    codebase: str | Codebase | None = None,
) -> list[Info]:
    """Every sandbox that matches, newest first, each judged by its driver."""
    over = None if codebase is None else await _codebase_id(io, codebase)
    if status is not None and status not in _STATUSES:
        raise InvalidInput(f"status is {status!r}; give one of {', '.join(sorted(_STATUSES))}.")
    registered = store.shared()
    found = []
    for row in registered.find(check_labels(labels)):
        if driver in (None, row.driver) and over in (None, row.spec.codebase):
            info = await _look(io, registered, row)
            if info is not None and status in (None, info.status):
                found.append(info)
    return found


async def get_or_create(
    io: IO,
    labels: Mapping[str, str],
    driver: str | None = None,
    *,
    on_progress: Callback | None = None,
    **wishes: Any,
) -> Record:
    """The newest sandbox that carries `labels`, or a new one; of many callers at once, one makes it.

    Raises:
        Busy: another process has been making it for a minute.
    """
    check_listener(io, "on_progress", on_progress)
    labels = _some(labels)

    async def make(wall: Driver, passed_over: Mapping[str, str]) -> Record:
        spec = await _spec(wall, {**wishes, "labels": labels})
        return await _noted(await _get_or_make(io, labels, wall, spec, on_progress), passed_over, on_progress)

    return await choose(io, driver, make)


async def _get_or_make(
    io: IO, labels: Mapping[str, str], wall: Driver, spec: Spec, on_progress: Callback | None
) -> Record:
    registered = store.shared()
    dead: set[str] = set()
    deadline = time.monotonic() + _MAKING
    while time.monotonic() < deadline:
        found = registered.reserve(labels, lambda row: row.id not in dead)
        if isinstance(found, Row):
            record = await _record(io, registered, found)
            if record is not None:
                return record
            dead.add(found.id)
        elif found.mine:
            return await _fulfil(wall, spec, registered, found, on_progress)
        else:
            await io.sleep(0.01)
    raise Busy(f"Another process has been making the sandbox with {dict(labels)} for {_MAKING:.0f} s.")


async def _fulfil(
    driver: Driver, spec: Spec, registered: Store, reservation: Reservation, on_progress: Callback | None
) -> Record:
    def write(*columns: Any) -> None:
        registered.fulfil(reservation, *columns)

    try:
        return await _build(driver, spec, registered, write, on_progress)
    except BaseException:
        registered.release(reservation)
        raise


async def _build(driver: Driver, spec: Spec, registered: Store, write: Write, on_progress: Callback | None) -> Record:
    """Make it, and leave nothing of it when that fails or is interrupted at any point."""
    created = time.time()
    expires = created + spec.lifetime
    written: list[Handle] = []

    def register(handle: Handle) -> None:
        write(handle.id, driver.name, "running", spec.labels, spec, handle, created, expires)
        written.append(handle)

    try:
        handle = await _create(driver, spec, register, on_progress)
        info = Info(handle.id, driver.name, "running", spec.labels, created, expires, spec, {}, ())
        return Record(driver, registered, handle, await driver.describe(handle, info))
    except BaseException:
        for handle in written:
            with driver.io.shield(_CLEAN_UP):
                await _sweep(driver, registered, handle)
        raise


async def _noted(record: Record, passed_over: Mapping[str, str], on_progress: Callback | None) -> Record:
    """With what was passed over for it, which is told, too."""
    if passed_over:
        record.info = record.info._replace(passed_over=passed_over)
        if on_progress is not None:
            for name, reason in passed_over.items():
                await tell(on_progress, f"{name} was passed over: {reason}.")
    return record


async def _create(driver: Driver, spec: Spec, register: Register, on_progress: Callback | None) -> Handle:
    """Have it made, and before that, the first time that somebody wants them, its packages."""
    if on_progress is not None and (sentence := await driver.first_use(spec)):
        await tell(on_progress, sentence)
    if not spec.packages:
        return await driver.create(spec, register)
    from ..packages.cache import NotBuilt

    while True:
        try:
            return await driver.create(spec, register)
        except NotBuilt as missing:
            environment = missing.environment
        from .workshop import build

        # Again and again: somebody may remove it in between.
        await build(driver, environment, on_progress)


async def _record(io: IO, registered: Store, row: Row) -> Record | None:
    """A living sandbox, or None after sweeping up one that has ended."""
    driver = registry.load(row.driver, io)
    if row.handle is None:
        raise Busy(f"The sandbox {row.id} is still being made.")
    status = await driver.status(row.handle)
    if status == "gone":
        await _sweep(driver, registered, row.handle)
        return None
    info = await driver.describe(row.handle, _info(row, status))
    return Record(driver, registered, row.handle, info)


async def _look(io: IO, registered: Store, row: Row) -> Info | None:
    """What is true of a row. None for one that somebody else has just removed."""
    try:
        driver = registry.load(row.driver, io)
    except DriverError as error:
        return _info(row, row.status)._replace(reason=f"its driver cannot be loaded: {error}")
    if row.handle is None:
        return _info(row, "creating")
    try:
        status = await driver.status(row.handle)
        if status != "gone":
            return await driver.describe(row.handle, _info(row, status))
        reason = await driver.ending(row.handle) or reason_of_end(_info(row, "gone"), row)
        first = await _sweep(driver, registered, row.handle)
    except AtollError as error:
        return _info(row, row.status)._replace(reason=f"it cannot be asked: {error}")
    return _info(row, "gone")._replace(reason=reason) if first else None


async def _sweep(driver: Driver, registered: Store, handle: Handle) -> bool:
    """Remove what is left of a sandbox; whether nobody else was faster."""
    await driver.destroy(handle)
    return registered.remove(handle.id)


async def _spec(driver: Driver, wishes: dict[str, Any]) -> Spec:
    check_keywords(wishes)
    spec = make_spec(**wishes)
    offers = await driver.offers()
    if not offers.names_images:
        spec = with_image_as_path(spec)
    check_spec(driver.name, offers, spec, [name for name, value in wishes.items() if value is not None])
    if Capability.LIMITS in offers.capabilities:
        _refuse_beyond_the_machine(spec.resources)
    if spec.codebase is not None:
        # A name may belong to another codebase by the time that somebody asks what this one stands on.
        spec = spec._replace(codebase=await _codebase_id(driver.io, spec.codebase))
    return spec if spec.snapshot is None else _as_in(spec, await driver.find_snapshot(spec.snapshot))


async def _codebase_id(io: IO, codebase: str | Codebase) -> str:
    """Raises CodebaseNotFound, InvalidInput."""
    from ..codebases.shelf import Shelf

    return await io.in_thread(lambda: Shelf().get(codebase).id)


def _refuse_beyond_the_machine(resources: Resources) -> None:
    """A limit that nothing can reach is a mistake in its unit, or was meant for another machine."""
    if resources.cpu is not None and (cores := os.cpu_count()) is not None and resources.cpu > cores:
        raise InvalidInput(f"cpu is {resources.cpu:g}, and this machine has {cores}; give at most that, or None.")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Swap may hold more than the memory, not many times as much.
    if resources.memory > 4 * memory:
        raise InvalidInput(
            f"memory is {format_size(resources.memory)}, and this machine has {memory >> 20}M; give at most that."
        )


def _as_in(spec: Spec, manifest: Mapping[str, Any]) -> Spec:
    """The spec of a sandbox that begins with a snapshot: what its files stand on is decided already."""
    was = spec_from_json(manifest["spec"])
    for name in _DECIDED:
        given = getattr(spec, name)
        if given not in (Spec._field_defaults[name], getattr(was, name)):
            raise InvalidInput(
                f"{name}= does not go with snapshot={spec.snapshot!r}, made with {shown(getattr(was, name))}; "
                "leave it out."
            )
    decided = {name: getattr(was, name) for name in _DECIDED}
    permissions = spec.permissions or was.permissions
    if permissions is not None:
        from ..policy.permissions import grants_everything

        permissions = None if grants_everything(permissions) else permissions
    return spec._replace(permissions=permissions, **decided)


def check_keywords(wishes: Mapping[str, Any], more: Iterable[str] = ()) -> None:
    """Raises TypeError for a keyword that neither `create` has nor `more` names, with what to write instead."""
    for name, value in wishes.items():
        if name in _WISHES or name in _HANDED_ON or name in more:
            continue
        if name in Resources._fields:
            raise TypeError(f'There is no keyword {name!r}; give resources={{"{name}": {shown(value)}}}.')
        from ..hints import no_keyword

        raise TypeError(no_keyword(name, (*more, *CREATE)))


def _some(labels: Mapping[str, str]) -> dict[str, str]:
    checked = check_labels(labels)
    if not checked:
        raise InvalidInput("labels is empty; give at least one, such as {'project': 'docs'}.")
    return checked


def _info(row: Row, status: Status) -> Info:
    return Info(row.id, row.driver, status, row.labels, row.created, row.expires, row.spec, {}, ())


def taken_apart(wishes: Mapping[str, Any], *, awaited: bool) -> tuple[dict[str, Any], Tools | None]:
    """What of the keywords of `create` is the sandbox's, and what its object's: the tools. Raises InvalidInput."""
    rest = dict(wishes)
    return rest, offered_tools(rest.pop("tools", None), awaited=awaited)


def offered_tools(tools: Tools | Mapping[str, Function] | None, *, awaited: bool) -> Tools | None:
    """What the keyword `tools` was given; `awaited` is whether they may be coroutine functions. Raises InvalidInput."""
    if tools is None:
        return None
    from .tools import Tools

    return Tools.of(tools, awaited=awaited)


def over_source(
    path: str | os.PathLike[str], preset: object, ignore_file: str | None, wishes: Mapping[str, Any]
) -> dict[str, Any]:
    """The keywords of `create` for those of `from_local`. Raises InvalidInput."""
    if ignore_file is not None:
        try:
            with open(os.path.join(path, ignore_file), encoding="utf-8", errors="surrogateescape") as file:
                lines = file.read().splitlines()
        except OSError as error:
            raise InvalidInput(f"ignore_file={ignore_file!r} cannot be read: {error.strerror}.") from error
        # The caller's come last: they may take back what the file says.
        wishes = {**wishes, "ignore": (*check_ignore(lines), *check_ignore(wishes.get("ignore", ())))}
    return over(wishes, preset, source=path)


def over(wishes: Mapping[str, Any], preset: object, **ground: object) -> dict[str, Any]:
    """The keywords of `create`, with the ground that a call has named. Raises TypeError where both name it."""
    for name in ground:
        if name in wishes:
            raise TypeError(f"{name}= is given already, as the first argument.")
    return {**wishes, **ground, "preset": preset}
