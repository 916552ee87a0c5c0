"""Deterministic jobs behind a wall, with sealed results: checks that a program, or a CI, can rely on.

    from atoll.validation import Job, gate, run, verify
    result = run(Job(command="make test", source="."))
    result.verdict  # "passed", "failed", "error", "cancelled" or "timed_out"

A job runs in a fresh sandbox of the strongest wall that is ready, without a network and in a fixed environment. Its
result is kept in the state directory with a seal, so that `verify` and `gate` notice whatever was altered since.
"""

from .checking import Gate, Verified, gate, verify
from .jobs import ENVIRONMENT, Job
from .results import Digests, Result, State
from .running import begin, cancel, forget, jobs, load, recover, run, status, wait
from .walls import Diagnosis, Wall, diagnose

__all__ = [
    "ENVIRONMENT",
    "Diagnosis",
    "Digests",
    "Gate",
    "Job",
    "Result",
    "State",
    "Verified",
    "Wall",
    "begin",
    "cancel",
    "diagnose",
    "forget",
    "gate",
    "jobs",
    "load",
    "recover",
    "run",
    "status",
    "verify",
    "wait",
]
