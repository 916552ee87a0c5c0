"""Python packages made on the spot, so that a test needs no index and no network."""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import zipfile
from collections.abc import Mapping

import pytest


def make(
    directory: pathlib.Path, name: str, files: Mapping[str, str], *, version: str = "1.0", needs: str = ""
) -> None:
    """Write a wheel of a project; `files` are its modules and what else it puts into site-packages."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    contents = {
        **files,
        f"{info}/METADATA": metadata + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: atoll\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},{_digest(text)},{len(text.encode())}\n" for path, text in contents.items())
    with zipfile.ZipFile(directory / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**contents, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            wheel.writestr(path, text)


def use_only(directory: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
    """Have packages come from this directory and from nowhere else."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        patch.delenv(name)
    patch.setenv("PIP_CONFIG_FILE", os.devnull)
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(directory))


def _digest(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
