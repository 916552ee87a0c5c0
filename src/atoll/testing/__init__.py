"""The conformance suite: what every wall must do, as tests that an outside driver can run too.

    from atoll.testing import DriverConformance

    class TestMyWall(DriverConformance):
        driver = "mywall"

Needs pytest. docs/how-to/write-a-driver.md shows how it is used, docs/reference/conformance.md what it checks.
"""

from __future__ import annotations

import pytest

# Before the checks are imported: a failed assertion then shows its values.
pytest.register_assert_rewrite(f"{__name__}.checks")

from .suite import DriverConformance  # noqa: E402  # same

__all__ = ["DriverConformance"]
