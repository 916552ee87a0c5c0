"""What runs inside the wall to make an environment. Its source goes to the sandbox's own Python; atoll imports
only the constants.

It gets one JSON object: `place` (an empty directory), `packages`, `options` (pip's), `wheels` (a directory of all that
is needed, and nothing else is looked for), `uv` (its path, if it is to be used), `user_site`.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from typing import Any

PRELOAD = "preload.json"
FLAGS = ("no-index", "pre", "prefer-binary")


def main(order: dict[str, Any]) -> int:
    if order.get("user"):
        return install_for_user(order)
    place = order["place"]
    python = make_environment(place)
    code = install(order, python)
    if code == 0:
        finish(order, place, python)
    return code


def make_environment(place: str) -> str:
    """A virtual environment without anything in it: what `venv` makes, and nothing else."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = f"{place}/lib/{version}/site-packages"
    os.makedirs(library)
    os.makedirs(f"{place}/bin")
    with open(f"{place}/pyvenv.cfg", "w", encoding="utf-8") as file:
        file.write(
            f"home = {os.path.dirname(sys.executable)}\ninclude-system-site-packages = false\n"
            f"version = {sys.version.split()[0]}\n"
        )
    for name in ("python", "python3", version):
        os.symlink(sys.executable, f"{place}/bin/{name}")
    return f"{place}/bin/{version}"


def pip_command() -> list[str]:
    """The Python's own pip, or the one that came with it to be installed."""
    wheel = bundled_pip()
    return [sys.executable, f"{wheel}/pip"] if wheel else [sys.executable, "-P", "-m", "pip"]


def bundled_pip() -> str | None:
    """The wheel of pip to use where the Python has none installed."""
    import importlib.util

    if importlib.util.find_spec("pip") is not None:
        return None
    library = os.path.dirname(os.__file__)
    for pattern in (f"{library}/ensurepip/_bundled/pip-*.whl", "/usr/share/python-wheels/pip-*.whl"):
        for wheel in sorted(glob.glob(pattern), reverse=True):
            return wheel
    sys.stderr.write(f"ERROR: {sys.executable} has no pip; install the package python3-pip on the host.\n")
    raise SystemExit(3)


def options_of(order: dict[str, Any]) -> list[str]:
    words = []
    for name, *values in order["options"]:
        words += [f"--{name}"] if name in FLAGS else [f"--{name}={value}" for value in values]
    return words


def requirements_of(wheels: str) -> list[str]:
    """Every wheel of a directory, as the requirement that only it meets. The names are an index's."""
    found = []
    for name in sorted(os.listdir(wheels)):
        project, _, rest = name.partition("-")
        version, dash, _ = rest.partition("-")
        if not name.endswith(".whl") or not dash:
            sys.stderr.write(f"ERROR: {name!r} is no wheel\n")
            raise SystemExit(3)
        found.append(f"{project.lower().replace(chr(95), chr(45))}=={version}")
    return found


def install(order: dict[str, Any], python: str) -> int:
    if wheels := order.get("wheels"):
        # What goes together was found out when they were fetched.
        order = {**order, "packages": requirements_of(wheels), "options": [["no-index", "1"], ["find-links", wheels]]}
    certificates = [values[0] for name, *values in order["options"] if name == "cert"]
    # uv has certificates of its own unless it is told otherwise, in words that changed.
    environment = {**os.environ, "UV_NATIVE_TLS": "1", "UV_SYSTEM_CERTS": "1"}
    if certificates:
        environment["SSL_CERT_FILE"] = certificates[0]
    if order.get("uv"):
        options = [
            word for word in options_of(order) if not word.startswith(("--timeout", "--cert", "--prefer-binary"))
        ]
        options = ["--prerelease=allow" if word == "--pre" else word.replace("--trusted-host", "--allow-insecure-host")
                   for word in options]  # fmt: skip
        words = [order["uv"], "pip", "install", "--python", python, "--no-progress", "--no-cache", "--no-config",
                 "--index-strategy=unsafe-best-match", "--link-mode=copy", *options]  # fmt: skip
    else:
        words = [*pip_command(), "--python", python, "install", "--no-input", "--no-compile", "--progress-bar=off",
                 "--no-cache-dir", "--disable-pip-version-check", "--retries=2", *options_of(order)]  # fmt: skip
    words += ["--no-deps"] if wheels else []
    return subprocess.run([*words, "--", *order["packages"]], env=environment, check=False).returncode


def install_for_user(order: dict[str, Any]) -> int:
    """Into the sandbox user's own site, on top of what the sandbox has."""
    if wheels := order.get("wheels"):
        order = {**order, "options": [["no-index", "1"], ["find-links", wheels]]}
    words = [*pip_command(), "install", "--user", "--no-input", "--progress-bar=off", "--no-cache-dir",
             "--disable-pip-version-check", "--no-warn-script-location", "--retries=2"]  # fmt: skip
    environment = {**os.environ, "PIP_BREAK_SYSTEM_PACKAGES": "1", "PYTHONPATH": ":".join(order["visible"])}
    return subprocess.run(
        [*words, *options_of(order), "--", *order["packages"]], env=environment, check=False
    ).returncode


def finish(order: dict[str, Any], place: str, python: str) -> None:
    """Compile everything, note what to import ahead, and let everybody read it."""
    library = glob.glob(f"{place}/lib/python*/site-packages")[0]
    # Hashes that nobody looks up: the tree never changes. Files that do not compile are the packages' own affair.
    compile_all = [python, "-I", "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash", library]
    subprocess.run(compile_all, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(f"{library}/atoll_user_site.pth", "w", encoding="utf-8") as file:
        # What `install` adds to a sandbox goes before what it was made with.
        own = order["user_site"]
        file.write(f"import sys; {own!r} in sys.path or sys.path.insert(sys.path.index({library!r}), {own!r})\n")
    with open(f"{place}/{PRELOAD}", "w", encoding="utf-8") as file:
        json.dump({"modules": modules_of(library, order["names"])}, file)
    subprocess.run(["chmod", "-R", "a+rX,go-w", place], check=False)


def modules_of(library: str, names: list[str]) -> list[str]:
    """The top-level modules of the projects that were asked for."""
    from importlib.metadata import distributions

    found = []
    for distribution in distributions(path=[library]):
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-").replace(".", "-")
        if name in names:
            tops = {str(path).split("/")[0] for path in distribution.files or () if str(path).endswith(".py")}
            found += [top.removesuffix(".py") for top in tops if "." not in top.removesuffix(".py")]
    return sorted({top for top in found if top.isidentifier()})


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
