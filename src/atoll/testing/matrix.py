"""The page docs/reference/conformance.md: which driver declares what, and which tests hold it to that."""

from __future__ import annotations

from collections.abc import Iterator

from .. import registry
from ..driver import Driver
from ..io import BlockingIO
from ..types import Capability
from .needs import concerns, lacked, needed
from .record import Results
from .suite import Test, all_tests, checks_of, groups

MEANINGS = {
    Capability.COMMANDS: "`run`, `start`, `stream`, `session`: programs and shells",
    Capability.CODE: "`run_code`: Python that keeps its state",
    Capability.PTY: "`start(pty=…)`: terminals",
    Capability.WATCH: "`files.watch`",
    Capability.ISOLATION: "nothing of the host can be seen or changed",
    Capability.NETWORK_NONE: '`network="none"`: nothing can be reached',
    Capability.NETWORK_ALL: '`network="all"`: a network that is not the host\'s',
    Capability.NETWORK_HOST: '`network="host"`: the host\'s own network',
    Capability.LIMITS: "`resources=`: memory, processes, disk, cpu",
    Capability.LIFETIME: "`lifetime=` and `set_lifetime`",
    Capability.SOURCE: "`source=`: a directory of the host as the workspace",
    Capability.IMAGE: "`image=`: a root file system",
    Capability.PAUSE: "`pause` and `resume`",
    Capability.STOP: "`stop` and `resume`, with the files kept",
    Capability.METRICS: "`metrics`",
    Capability.PACKAGES: "`packages=` and `install`: Python packages",
    Capability.PERMISSIONS: "`permissions=` and `ignore=`: rules about paths",
    Capability.LIVE_RULES: "`set_permissions`: other rules for what runs",
    Capability.REVIEW: "`diff`, `apply` and `discard`, and `codebase=`: the gate to the source",
    Capability.SNAPSHOT: "`snapshot`, `rollback` and `snapshot=`",
    Capability.FORK: "`fork`: twins with files and variables",
    Capability.AUDIT: "`audit=True`: `audit()` tells what the kernel has refused, too",
}

_HEAD = """# What the conformance suite checks

<!-- Written by `make matrix`, which runs the suite on every driver; a test compares. -->

A driver declares capabilities. The tests of what it declares it must pass; what it does not declare it must
refuse with `Unsupported`, which is a test too. [Write a driver](../how-to/write-a-driver.md) shows how to run
them on yours.

## Drivers and capabilities

A number says how many tests of a capability the driver has passed in the last run that was written down
(`conformance.json`, with the names); *refused* that it does not declare it, and that the refusal is tested. A driver
that has no wall at all lets `network="none"` pass, which is what everybody gets who says
nothing, and admits in `info.walls` that nothing stands."""

_TESTS = """## Tests

Each belongs to a group, and runs on the drivers that declare all of the capabilities behind it; one that
begins with *without* on those that lack it."""


def page(results: Results) -> str:
    """The whole page, from what each driver has passed."""
    return "\n".join([_HEAD, "", *_table(drivers(), results), "", _TESTS, *_groups()]) + "\n"


def expected(driver: Driver) -> frozenset[str]:
    """The tests that a driver has to pass."""
    return frozenset(name for name, test in all_tests().items() if concerns(test, driver.capabilities))


def drivers() -> list[Driver]:
    """Those of atoll itself."""
    own = sorted(name for name, where in registry.BUILT_IN.items() if where.target.startswith("atoll."))
    return [registry.load(name, BlockingIO()) for name in own]


def _table(drivers: list[Driver], results: Results) -> Iterator[str]:
    yield f"| capability | {' | '.join(driver.name for driver in drivers)} | meaning |"
    yield "|---" * (len(drivers) + 2) + "|"
    for capability in Capability:
        cells = " | ".join(_cell(driver, capability, results) for driver in drivers)
        yield f"| `{capability.name}` | {cells} | {MEANINGS[capability]} |"
    general = frozenset(name for name, test in all_tests().items() if not needed(test) and not lacked(test))
    everyone = " | ".join(_count(expected(driver) & general, driver, results) for driver in drivers)
    yield f"| *of everyone* | {everyone} | the rest: files, labels, finding it again, errors |"
    together = " | ".join(_count(expected(driver), driver, results) for driver in drivers)
    yield f"| *together* | {together} | |"


def _cell(driver: Driver, capability: Capability, results: Results) -> str:
    if capability not in driver.capabilities:
        return "*refused*"
    mine = frozenset(name for name in expected(driver) if capability in needed(all_tests()[name]))
    return _count(mine, driver, results)


def _count(tests: frozenset[str], driver: Driver, results: Results) -> str:
    """How many of some tests a driver has passed; of how many, if not of all."""
    passed = len(tests & results.get(driver.name, frozenset()))
    return str(passed) if passed == len(tests) else f"{passed} of {len(tests)}"


def _groups() -> Iterator[str]:
    for group in groups():
        yield from ("", f"### {(group.__doc__ or '').strip().rstrip('.')}", "")
        for name, test in checks_of(group).items():
            yield f"- {name.removeprefix('test_').replace('_', ' ').replace(' s ', '’s ')}{_conditions(test)}"


def _conditions(test: Test) -> str:
    words = [f"`{capability.name}`" for capability in Capability if capability in needed(test)]
    words += [f"without `{capability.name}`" for capability in Capability if capability in lacked(test)]
    return f" ({', '.join(words)})" if words else ""
