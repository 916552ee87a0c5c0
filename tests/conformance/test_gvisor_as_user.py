"""gVisor without root: what differs there is tried; the rest is the same code, and `test_gvisor.py` tries that."""

from __future__ import annotations

import os

import pytest

from ..runsc import needs_runsc
from .as_user import OtherUser

WHAT_DIFFERS = (
    "test_a_network_leads_out_and_not_into_the_host_s_loopback",
    "test_a_paused_sandbox_stands_still_and_then_goes_on",
    "test_a_sandbox_begins_where_a_snapshot_was_taken",
    "test_a_stopped_sandbox_keeps_its_files_and_nothing_else",
    "test_code_runs_as_an_ordinary_user",
    "test_cpu_is_bounded",
    "test_disk_is_bounded",
    "test_files_of_the_host_cannot_be_read",
    "test_memory_is_bounded",
    "test_metrics_tell_what_it_uses",
    "test_packages_cannot_be_changed",
    "test_source_is_the_workspace_and_never_changes",
    "test_strict_is_enforced_by_the_kernel_or_refused",
    "test_the_number_of_processes_is_bounded",
)


@needs_runsc
@pytest.mark.root
@pytest.mark.timeout(300)
@pytest.mark.skipif(os.getuid() != 0, reason="test_gvisor.py itself runs as an ordinary user here")
def test_gvisor_keeps_the_contract_for_an_ordinary_user():
    names = [f"tests/conformance/test_gvisor.py::TestGVisor::{name}" for name in WHAT_DIFFERS]
    with OtherUser() as user:
        done = user.pytest(*names, "-q", "--tb=short")
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert f"{len(names)} passed" in done.stdout
