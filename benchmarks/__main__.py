"""`python -m benchmarks [name …]`: measure and print the table. Exit code 1 when a promise is missed."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile

NAMES = (
    "create", "packages", "burst", "live", "cells", "flow", "contexts", "views", "history", "forks", "start", "memory",
    "residue", "docker", "walls", "agent", "mcp",
)  # fmt: skip


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        sys.stderr.write(f"No benchmark is called {unknown[0]}; there are {', '.join(NAMES)}.\n")
        return 2
    home = tempfile.mkdtemp(prefix="atoll-bench-")
    os.environ["ATOLL_HOME"] = home
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    from .measure import table

    figures = []
    try:
        for name in names or NAMES:
            figures += importlib.import_module(f".{name}", __package__).measure()
    finally:
        from atoll.engine import launch

        launch.shut_down(home)
        shutil.rmtree(home, ignore_errors=True)
    sys.stdout.write(table(figures) + "\n")
    return int(any(figure.verdict == "MISSED" for figure in figures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
