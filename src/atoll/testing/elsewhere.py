"""Code in a fresh process, which knows nothing of this one but the state directory and the driver's name."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from ..driver import Driver
from .waiting import PATIENCE

_PROGRAM = """
import json, sys
job = json.load(sys.stdin)
sys.path[:] = job["path"]
from atoll import Sandbox, registry
if job["target"]:
    registry.BUILT_IN[job["driver"]] = registry.BuiltIn(job["target"])
scope = {"Sandbox": Sandbox, "driver": job["driver"], "answer": None, **job["values"]}
exec(job["body"], scope)
json.dump(scope["answer"], sys.stdout)
"""


class Elsewhere:
    """A process under way. Its code has `Sandbox`, `driver` and the values, and leaves its answer in `answer`."""

    def __init__(self, driver: type[Driver], body: str, values: dict[str, Any]) -> None:
        job = {"path": sys.path, "driver": driver.name, "target": target(driver), "body": body, "values": values}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode())
        self._process.stdin.close()
        self._process.stdin = None

    def answer(self) -> Any:
        """Wait for its end."""
        try:
            stdout, stderr = self._process.communicate(timeout=2 * PATIENCE)
        finally:
            self._process.kill()
        assert self._process.returncode == 0, f"another process failed:\n{stderr.decode(errors='replace')}"
        return json.loads(stdout)


def target(driver: type[Driver]) -> str:
    """Where a driver is imported from, as the registry writes it."""
    return f"{driver.__module__}:{driver.__qualname__}"
