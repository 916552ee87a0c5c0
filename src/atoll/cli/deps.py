"""`--deps`: the packages of a program, installed inside the sandbox before it runs."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from typing import NamedTuple

from ..errors import AtollError, InvalidInput
from ..policy.text import shown
from ..sync.sandbox import Sandbox
from . import streaming
from .output import complain


class Kind(NamedTuple):
    """One kind of manifest: the file that locks its versions, and the shell script that installs it.

    `env` is for the installer and for the program.
    """

    lock: str | None
    tool: str
    script: str
    env: Mapping[str, str]


KINDS = {
    "requirements.txt": Kind(
        lock=None,
        tool="python3 -m pip",
        # The user's own site: the system's is read-only, and Debian forbids even that without the variable.
        script="PIP_BREAK_SYSTEM_PACKAGES=1 exec python3 -m pip install --user --quiet --no-input "
        "--no-warn-script-location --disable-pip-version-check -r requirements.txt",
        env={},
    ),
    "package.json": Kind(
        lock="package-lock.json",
        tool="npm",
        script="command -v npm >/dev/null || exit 127; test -f package-lock.json && set -- ci || set -- install\n"
        'exec npm "$@" --no-audit --no-fund --no-update-notifier --loglevel=error',
        env={},
    ),
    "go.mod": Kind(
        lock="go.sum",
        tool="go",
        script="exec go mod download",
        # Without a go.sum the build itself notes the sums.
        env={"GOFLAGS": "-mod=mod"},
    ),
}


_OF_LANGUAGE = {
    "python": "requirements.txt",
    "javascript": "package.json",
    "typescript": "package.json",
    "go": "go.mod",
}


class Manifest(NamedTuple):
    """A manifest of the host, with the lock file beside it if there is one."""

    kind: Kind
    files: Mapping[str, bytes]

    @property
    def name(self) -> str:
        return next(iter(self.files))

    @property
    def seconds(self) -> float:
        """What an installation may take."""
        return 600.0

    def check_network(self, network: str) -> None:
        """Raises InvalidInput where nothing can be fetched."""
        if network == "none":
            raise InvalidInput(
                f"--deps fetches what {self.name} asks for, and the sandbox has no network.",
                hint="Add --network all, or --network host for the weaker wall that shares this machine's.",
            )


class DepsFailed(AtollError):
    code = "deps_failed"


def read(path: str) -> Manifest:
    """Raises InvalidInput for another kind of file, OSError for one that cannot be read."""
    name = os.path.basename(path)
    kind = KINDS.get(name) or (KINDS["requirements.txt"] if name.endswith(".txt") else None)
    if kind is None:
        raise InvalidInput(f"--deps is {shown(path)}; give a requirements.txt, a package.json or a go.mod.")
    inside = next(known for known, value in KINDS.items() if value is kind)
    files = {inside: _content(path)}
    lock = os.path.join(os.path.dirname(path), kind.lock) if kind.lock else None
    if lock is not None and kind.lock is not None and os.path.exists(lock):
        files[kind.lock] = _content(lock)
    return Manifest(kind, files)


def beside(file: str, language: str) -> str:
    """The manifest that lies in the directory of a program. Raises InvalidInput where none does."""
    name = _OF_LANGUAGE.get(language)
    if name is None:
        raise InvalidInput(f"--deps knows no packages of {language}; it is for {', '.join(_OF_LANGUAGE)}.")
    path = os.path.join(os.path.dirname(file), name)
    if not os.path.exists(path):
        raise InvalidInput(f"--deps finds no {name} beside {shown(file)}; put one there, or name it: --deps PATH.")
    return path


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def install(sandbox: Sandbox, manifest: Manifest, env: Mapping[str, str]) -> None:
    """Install it in the workspace. What the installer says goes to stderr.

    Raises:
        InvalidInput: the sandbox has no network.
        DepsFailed: the installer is not there, or it failed.
    """
    from .programs import put

    manifest.check_network(sandbox.info.spec.network)
    workdir = sandbox.info.spec.workdir
    for name, content in manifest.files.items():
        put(sandbox, posixpath.join(workdir, name), content)
    env = {**manifest.kind.env, **env}
    complain(f"Installing {manifest.name} …")
    completed = streaming.run(sandbox, manifest.kind.script, env=env, timeout=manifest.seconds, all_to_stderr=True)
    code = completed.exit_code
    if code == 127:
        raise DepsFailed(f"{manifest.name} needs `{manifest.kind.tool}`, which this sandbox does not have.")
    if code != 0:
        raise DepsFailed(f"{manifest.name} could not be installed: the installer ended with {code}.")
