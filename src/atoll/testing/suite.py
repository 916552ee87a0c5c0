"""DriverConformance: all checks in one class, of which each driver gets those that concern it."""

from __future__ import annotations

from collections.abc import Callable

from .base import Checks, find_driver
from .checks.asynchronous import AsyncChecks
from .checks.code import CodeChecks
from .checks.commands import CommandChecks
from .checks.contexts import ContextChecks
from .checks.errors import ErrorChecks
from .checks.families import FamilyChecks
from .checks.files import FileChecks
from .checks.history import HistoryChecks
from .checks.lasting import LastingChecks
from .checks.lifecycle import LifecycleChecks
from .checks.limits import LimitChecks
from .checks.names import NameChecks
from .checks.output import OutputChecks
from .checks.packages import PackageChecks
from .checks.permissions import PermissionChecks
from .checks.policy import PolicyChecks
from .checks.processes import ProcessChecks
from .checks.refusals import RefusalChecks
from .checks.rest import RestChecks
from .checks.sessions import SessionChecks
from .checks.sharing import SharingChecks
from .checks.transfer import TransferChecks
from .needs import concerns

Test = Callable[..., None]

_YOURS = frozenset({"driver", "wishes"})


class DriverConformance(
    LifecycleChecks,
    SharingChecks,
    RestChecks,
    CommandChecks,
    OutputChecks,
    FamilyChecks,
    ProcessChecks,
    FileChecks,
    NameChecks,
    TransferChecks,
    CodeChecks,
    ContextChecks,
    LastingChecks,
    SessionChecks,
    PackageChecks,
    PolicyChecks,
    PermissionChecks,
    HistoryChecks,
    LimitChecks,
    ErrorChecks,
    RefusalChecks,
    AsyncChecks,
):
    """Subclass it in a test module and set `driver`.

    Attributes:
        driver: the name of an installed driver, or the class of one that is not installed yet.
        wishes: keywords of `Sandbox.create` that every sandbox of the tests is made with.

    A test about capabilities that the driver does not declare is left out, and one that demands the refusal
    takes its place. Nothing else can be left out: a subclass may add tests and not replace any.

    Raises:
        TypeError: the class names no driver, or replaces a part of the suite.
        DriverError: the driver cannot be loaded.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _refuse_replacements(cls)
        if not hasattr(cls, "driver"):
            raise TypeError(f"{cls.__name__} tests no driver; set `driver` to its name or its class.")
        cls.driver_class = find_driver(cls.driver)
        for name, test in all_tests().items():
            setattr(cls, name, test if concerns(test, cls.driver_class.capabilities) else None)


def groups() -> tuple[type[Checks], ...]:
    """The groups of tests, in their order."""
    return DriverConformance.__bases__


def all_tests() -> dict[str, Test]:
    """Every test of the suite, in the order of the groups."""
    return {name: test for group in groups() for name, test in checks_of(group).items()}


def checks_of(group: type[Checks]) -> dict[str, Test]:
    return {name: value for name, value in vars(group).items() if name.startswith("test_")}


def _refuse_replacements(cls: type[DriverConformance]) -> None:
    for base in cls.__mro__:
        if base is DriverConformance:
            return
        if base is not cls and issubclass(base, DriverConformance):
            continue  # it has been through this itself
        for name in vars(base):
            if name not in _YOURS and not name.startswith("__") and hasattr(DriverConformance, name):
                raise TypeError(
                    f"{base.__name__}.{name} would replace a part of the conformance suite; give it another name."
                )
