"""Harbor's own validator of ATIF, from its wheel.

Harbor is for Python 3.12 and has hundreds of dependencies; the models of trajectories need pydantic and no more, and
run on 3.11. So only they are unpacked.
"""

from __future__ import annotations

import ensurepip
import importlib
import os
import pathlib
import subprocess
import sys
import zipfile

WHEEL = "harbor==0.25.0"
PARTS = ("harbor/models/trajectories/", "harbor/utils/trajectory_validator.py")


def validator(directory):
    """A new TrajectoryValidator. Raises RuntimeError where the wheel cannot be had."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--ignore-requires-python", "--dest", str(directory), WHEEL]
    # Not every environment has pip in it; the wheel that Python comes with runs as it is.
    bundled = [str(path) for path in (pathlib.Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(bundled)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)
    wheels = list(pathlib.Path(directory).glob("harbor-*.whl"))
    if not wheels:
        raise RuntimeError(done.stderr)
    root = pathlib.Path(directory) / "unpacked"
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(root, [name for name in wheel.namelist() if name.startswith(PARTS)])
    sys.path.insert(0, str(root))
    try:
        return importlib.import_module("harbor.utils.trajectory_validator").TrajectoryValidator()
    finally:
        sys.path.remove(str(root))
