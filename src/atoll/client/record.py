"""One sandbox as this process knows it: its driver, its handle, and its row in the registry."""

from __future__ import annotations

import time

from ..driver import Driver
from ..errors import Busy, SandboxGone, SandboxNotFound
from ..policy.limits import check_lifetime, check_timeout
from ..policy.offers import demand
from ..store import Row, Store
from ..types import Capability, Handle, Info, Metrics, Permissions, Status

DESTROYED = "it was destroyed"
# How long one waits for somebody else who resumes the same sandbox, in seconds.
_RESUMING = 60.0


class Record:
    """`info` is what was last known; only the driver knows what is. Safe to share like a driver is."""

    def __init__(self, driver: Driver, store: Store, handle: Handle, info: Info) -> None:
        self.driver = driver
        self.handle = handle
        self.info = info
        self.store = store
        self._swept = False

    @property
    def id(self) -> str:
        return self.handle.id

    async def check_usable(self, *, afresh: bool = False) -> None:
        """Raises SandboxGone or Busy when it is known not to answer; `afresh` asks the driver."""
        if self.info.status == "running" and not afresh:
            return
        status = "gone" if self.info.status == "gone" else await self.judge()
        if status == "gone":
            raise self.gone()
        if status != "running":
            raise self.not_running(status)

    async def judge(self) -> Status:
        """How it stands now, judged by the driver."""
        status = await self.driver.status(self.handle)
        self.info = self.info._replace(status=status)
        if status == "gone" and self.info.reason is None:
            self.info = self.info._replace(reason=await self.driver.ending(self.handle))
        return status

    def gone(self) -> SandboxGone:
        """The error that says that it has ended, and why."""
        if self.info.reason is None:
            self.info = self.info._replace(status="gone", reason=reason_of_end(self.info, self._row()))
        return SandboxGone(f"The sandbox {self.id} is gone: {self.info.reason}.")

    def not_running(self, status: Status) -> Busy:
        return Busy(f"The sandbox {self.id} is {status}.", hint=f"Call resume() first, or `atoll resume {self.id}`.")

    async def refresh(self) -> Info:
        """What the driver and the registry know now."""
        if self.info.status == "gone":
            return self.info
        row = self._row()
        if row is not None:
            self.info = self.info._replace(expires=row.expires)
        if await self.judge() == "gone":
            self.gone()
        else:
            self.info = await self.driver.describe(self.handle, self.info)
        return self.info

    async def demand(self, capability: Capability) -> None:
        """Raises Unsupported where the wall does not offer this."""
        demand(self.driver.name, await self.driver.offers(), capability)

    async def metrics(self) -> Metrics:
        await self.demand(Capability.METRICS)
        await self._check_there()
        return await self.driver.metrics(self.handle)

    async def set_lifetime(self, lifetime: object) -> None:
        seconds = check_lifetime(lifetime)
        await self.demand(Capability.LIFETIME)
        await self._check_there()
        await self.driver.set_lifetime(self.handle, seconds)
        self._expires(time.time() + seconds)

    async def set_timeout(self, seconds: object) -> None:
        timeout = check_timeout(seconds)
        await self._check_there()
        # What others have changed of the spec meanwhile stays as they have it.
        row = self.store.get(self.id)
        self.store.set_spec(self.id, row.spec._replace(timeout=timeout), row.handle or self.handle)
        self.info = self.info._replace(spec=self.info.spec._replace(timeout=timeout))

    async def pause(self) -> None:
        await self.demand(Capability.PAUSE)
        await self._check_there()
        if self.info.status == "stopped":
            raise self.not_running("stopped")
        await self.driver.pause(self.handle)
        self._note("paused")

    async def keep(self) -> None:
        """A checkpoint was made: what else ends it, it counts as stopped."""
        await self.driver.keep(self.handle)

    async def stop(self) -> None:
        await self.demand(Capability.STOP)
        await self._check_there()
        if self.info.status == "stopped":
            return
        try:
            await self.driver.stop(self.handle)
        except SandboxGone:
            if await self.judge() != "stopped":  # somebody else may have been faster, which is as good
                raise
        self._note("stopped")

    async def resume(self) -> None:
        await self._check_there()
        if self.info.status == "paused":
            await self.driver.resume(self.handle)
            self._note("running")
        elif self.info.status == "stopped":
            await self._restart()

    async def _restart(self) -> None:
        """Start it; of many callers at once one does, and the others find it running."""
        deadline = time.monotonic() + _RESUMING
        while self.info.status == "stopped":
            try:
                await self._start_again()
            except Busy:
                if time.monotonic() > deadline:
                    raise
                await self.driver.io.sleep(0.01)
                await self._check_there()
                row = self._row()
                if row is not None and row.handle is not None:
                    self.handle = row.handle

    async def _start_again(self) -> None:
        def register(handle: Handle) -> None:
            self.store.set_handle(self.id, handle)
            self.handle = handle

        self.handle = await self.driver.create(self.info.spec, register, resume=self.handle)
        self._note("running")
        self._expires(time.time() + self.info.spec.lifetime)

    def note_permissions(self, permissions: Permissions | None, view: str | None) -> None:
        """It has other rules now."""
        spec = self.info.spec._replace(permissions=permissions)
        self.handle = self.handle._replace(data={**self.handle.data, "view": view})
        self.info = self.info._replace(spec=spec, view=view)
        self.store.set_spec(self.id, spec, self.handle)

    async def destroy(self) -> None:
        """End it. What has ended by itself is swept up; doing so twice, or as others do, is harmless."""
        if self._swept:
            return
        try:
            await self.driver.destroy(self.handle)
        except SandboxGone:
            pass  # whoever ended it removes what is left of it
        self.store.remove(self.id)
        self._swept = True
        self.info = self.info._replace(status="gone", reason=self.info.reason or DESTROYED)

    async def _check_there(self) -> None:
        if self.info.status == "gone" or await self.judge() == "gone":
            raise self.gone()

    def _row(self) -> Row | None:
        try:
            return self.store.get(self.id)
        except SandboxNotFound:
            return None

    def _note(self, status: Status) -> None:
        self.info = self.info._replace(status=status)
        self.store.set_status(self.id, status)

    def _expires(self, moment: float) -> None:
        self.info = self.info._replace(expires=moment)
        self.store.set_expires(self.id, moment)


def reason_of_end(info: Info, row: Row | None) -> str:
    """Why a sandbox is gone, as far as it can be told. Without a row, somebody destroyed it."""
    expires = info.expires if row is None else row.expires
    if expires is not None and expires <= time.time():
        return "its lifetime is over"
    return DESTROYED if row is None else "its keeper is gone"
