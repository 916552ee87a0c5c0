"""The blocking form of everything: no event loop, no threads, nothing to start or to shut down."""

from .oneshot import run, run_code, run_many
from .sandbox import Sandbox

__all__ = ["Sandbox", "run", "run_code", "run_many"]
