"""The blocking form of everything: no event loop, no threads, nothing to start or to shut down."""

from .files import Files
from .oneshot import run, run_code, run_many
from .process import Output, Process, Watch
from .sandbox import Sandbox

__all__ = ["Files", "Output", "Process", "Sandbox", "Watch", "run", "run_code", "run_many"]
