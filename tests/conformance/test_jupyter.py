"""The jupyter driver keeps the contract, as far as it declares to."""

from __future__ import annotations

from atoll.testing import DriverConformance


class TestJupyter(DriverConformance):
    driver = "jupyter"
    # Nearly every test has a context of its own in one sandbox, and each is a kernel.
    wishes = {"resources": {"memory": "4G", "pids": 4096}}  # noqa: RUF012  # never changed
