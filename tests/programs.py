"""What this machine has that sandboxes of it use."""

from __future__ import annotations

import functools
import subprocess
import sys


@functools.cache
def has_pip():
    """Whether `pip` is a command in a sandbox that sees this machine's Python: a Debian may have none."""
    command = [f"{sys.base_prefix}/bin/python3", "-m", "pip", "--version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
