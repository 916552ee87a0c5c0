"""A root file system of a few programs of this machine."""

from __future__ import annotations

import shutil
import subprocess


def small_image(directory, programs=("/bin/sh", "/bin/cat")):
    """A directory with programs, the libraries that they are linked with, and the file /marker."""
    root = directory / "image"
    for program in programs:
        told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for needed in [program, *(word for word in told.split() if word.startswith("/"))]:
            target = root / needed.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(needed, target)
    (root / "marker").write_text("of the image\n")
    root.chmod(0o755)
    return root
