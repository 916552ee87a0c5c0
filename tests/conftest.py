"""What every test shares: a state directory of its own, with a path short enough for Unix sockets."""

from __future__ import annotations

import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings
from tests import thorough

_home = tempfile.mkdtemp(prefix="at-", dir="/tmp")
os.environ["ATOLL_HOME"] = _home
# The processes of pytest-xdist agree on the day, however late it is.
os.environ.update(thorough.ENVIRONMENT)

# A noisy machine must not fail a test, and a failure must come back on the next run.
settings.register_profile("atoll", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("atoll")


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.stats.get("failed") and not thorough.THOROUGH:
        terminalreporter.write_line(
            f"Of what is repeated a sample was tried: ATOLL_SEED={thorough.SEED} tries it again, "
            "ATOLL_THOROUGH=1 tries everything."
        )


def pytest_unconfigure() -> None:
    shutil.rmtree(_home, ignore_errors=True)
