"""Which wall a job would run behind, and why not a stronger one."""

from __future__ import annotations

from typing import NamedTuple

from .. import registry
from ..client.choosing import STRONGEST, names_in
from ..errors import AtollError
from ..io import BlockingIO, drive
from ..types import Capability
from .jobs import Job, check_job


class Wall(NamedTuple):
    """A wall that would be tried. `reason` says why it would not do, and is empty for one that would."""

    name: str
    isolation: str
    reason: str = ""


class Diagnosis(NamedTuple):
    """`chosen` is the first of the `walls` that would do, or None; `why` says it in a sentence."""

    chosen: str | None
    isolation: str | None
    why: str
    walls: tuple[Wall, ...]


def diagnose(job: Job | None = None) -> Diagnosis:
    """Where a job would run, or any job that asks for nothing special. Starts nothing.

    Raises:
        InvalidInput, UnknownDriver: the job cannot be.
    """
    checked = None if job is None else check_job(job)
    walls = tuple(_look(name, checked) for name in names_in(checked.driver if checked else STRONGEST))
    fit = next((wall for wall in walls if not wall.reason), None)
    if fit is None:
        return Diagnosis(None, None, "None of the walls would do; `atoll providers` says what each needs.", walls)
    passed_over = [f"{wall.name} ({wall.reason.rstrip('.')})" for wall in walls[: walls.index(fit)]]
    rest = f", after {', '.join(passed_over)}" if passed_over else ", the first that is tried"
    return Diagnosis(fit.name, fit.isolation, f"{fit.name} would be used{rest}.", walls)


def able(job: Job) -> str:
    """The walls that a checked job names, as `driver=`, without those of several that lack what it needs.

    Raises:
        InvalidInput, UnknownDriver: it names none.
    """
    names = names_in(job.driver)
    if len(names) == 1:
        return names[0]
    return ",".join([name for name in names if not _lacks(name, job)] or names)


def _lacks(name: str, job: Job) -> bool:
    try:
        return not set(_needs(job)) <= drive(registry.load(name, BlockingIO()).offers()).capabilities
    except AtollError:
        return False  # whoever tries it says better what is wrong with it


def _look(name: str, job: Job | None) -> Wall:
    try:
        driver = registry.load(name, BlockingIO())
        offers = drive(driver.offers())
        lacking = [layer for layer in drive(driver.health()) if layer.required and not layer.ready]
    except AtollError as error:
        return Wall(name, "", error.message)
    if lacking:
        return Wall(name, driver.isolation, f"{lacking[0].name}: {lacking[0].detail}")
    missing = [capability for capability in _needs(job) if capability not in offers.capabilities]
    return Wall(name, driver.isolation, _cannot(missing[0]) if missing else "")


def _needs(job: Job | None) -> list[Capability]:
    needs = [Capability.NETWORK_NONE]
    if job is None:
        return needs
    if job.command is not None:
        needs.append(Capability.COMMANDS)
    if job.source is not None:
        needs.append(Capability.SOURCE)
    if job.packages:
        needs.append(Capability.PACKAGES)
    return needs


def _cannot(capability: Capability) -> str:
    return f"it has no {capability.value.replace('_', ' ')}"
