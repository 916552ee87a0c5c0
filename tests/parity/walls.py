"""The walls that parity tests run on, and what a test needs of one."""

from __future__ import annotations

from functools import cache
from zlib import crc32

from atoll import AtollError, registry
from atoll.client.choosing import why_not_ready
from atoll.io import BlockingIO, drive
from atoll.testing.needs import needed

from ..thorough import THOROUGH

OTHERS = 2
LOCAL = ("jail", "fake", "bwrap", "docker", "gvisor", "inprocess", "wasm", "jupyter")


@cache
def ready():
    """From the name of each local wall that works here to what it can do."""
    found = {}
    for name in LOCAL:
        if name in registry.BUILT_IN and (capabilities := _capabilities(name)) is not None:
            found[name] = capabilities
    return found


def _capabilities(name):
    try:
        driver = registry.load(name, BlockingIO())
        lacking = drive(why_not_ready(driver))
    except AtollError as error:
        lacking = str(error)
    # The default wall is never left out: where it does not work, that is what the tests have to say.
    return None if lacking and name != registry.DEFAULT else driver.capabilities


def once(test):
    """For a test of what is the same on every wall, such as compilers: it runs on the default one alone."""
    test.parity_once = True
    return test


def fit_for(test):
    """The walls that a test runs on, of those that can do what it needs: the default one, and of the others some.

    Which ones is decided by the name of the test. ATOLL_THOROUGH=1 takes all of them.
    """
    names = [name for name, capabilities in ready().items() if needed(test) <= capabilities]
    first, others = names[:1], names[1:]
    if getattr(test, "parity_once", False):
        return first
    if not THOROUGH and others:
        start = crc32(test.__name__.encode()) % len(others)
        others = [*others[start:], *others[:start]][:OTHERS]
    return [*first, *others]
