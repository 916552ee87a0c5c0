"""What cells call that `magics.py` has translated. It is run late, as that is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional

_NAME = re.compile(r"\{([A-Za-z_]\w*)([^{}]*)\}|\$([A-Za-z_]\w*)")
_COUNTS = re.compile(r"\s*-([nr])\s*(\d{1,9})(?=\s|$)")
_INSTALLS = re.compile(r"(?:python3?\s+-m\s+)?pip3?\s+install\b")
_BASH = "/bin/bash"
_UNREACHABLE = ("192.0.2.1", 9)
_OF_PIP = "This sandbox has no network for pip: packages come by sb.install([...]), or by create(packages=[...])."


class Magics:
    """What translated cells call. `namespace` is that of the cells, whose variables commands may name."""

    def __init__(self, namespace: Dict[str, Any]) -> None:
        self._namespace = namespace
        self._since: Optional[List[float]] = None

    def system(self, command: str) -> None:
        """Run it in the directory of the context, with its output as the cell's; `_exit_code` says how it ended."""
        if _INSTALLS.match(command):
            self._check_network(command)
        self._namespace["_exit_code"] = self._run([_shell(), "-c", self._filled(command)])

    def lines(self, command: str) -> List[str]:
        """The output of it, by the line."""
        done = subprocess.run(  # the command is the cell's
            [_shell(), "-c", self._filled(command)], stdout=subprocess.PIPE, check=False
        )
        self._namespace["_exit_code"] = done.returncode
        return done.stdout.decode("utf-8", "replace").splitlines()

    def script(self, name: str, body: str) -> None:
        """Raises CalledProcessError where it fails."""
        code = self._run([_shell() if name == "bash" else "/bin/sh", "-c", body])
        if code:
            raise subprocess.CalledProcessError(code, name)

    def pip(self, arguments: str) -> None:
        """Raises RuntimeError where it cannot work, with what does."""
        self._check_network(arguments)
        if self._run([_shell(), "-c", '"$0" -m pip ' + self._filled(arguments), sys.executable]):
            raise RuntimeError("pip has failed. Packages come by sb.install([...]), or by create(packages=[...]), too.")
        import importlib

        importlib.invalidate_caches()

    def cd(self, path: str) -> None:
        os.chdir(os.path.expanduser(self._filled(path).strip("\"'") or "~"))
        _say(os.getcwd())

    def pwd(self, rest: str) -> str:
        return os.getcwd()

    def writefile(self, path: str, body: str) -> None:
        """The rest of a cell as a file; `-a` before its name appends. Raises OSError."""
        appends = path.startswith("-a ")
        name = os.path.expanduser(self._filled(path[3:] if appends else path).strip().strip("\"'"))
        _say("%s %s" % ("Appending to" if appends else "Writing", name))
        with open(name, "a" if appends else "w", encoding="utf-8") as file:
            file.write(body if body.endswith("\n") or not body else body + "\n")

    def env(self, text: str) -> Any:
        """All variables, the value of one, or one that is set."""
        name, equals, value = text.partition("=" if "=" in text else " ")
        if not equals:
            return os.environ[text] if text else dict(os.environ)
        os.environ[name.strip()] = self._filled(value.strip())
        _say("env: %s=%s" % (name.strip(), os.environ[name.strip()]))
        return None

    def timeit(self, statement: str, body: str = "") -> None:
        """`-n` is how many runs make a round, `-r` how many rounds there are; with a body the line is its setup."""
        import timeit

        counts = {"n": 0, "r": 7}
        while found := _COUNTS.match(statement):
            counts[found[1]] = int(found[2])
            statement = statement[found.end() :]
        statement = statement.strip()
        timer = timeit.Timer(body or statement, statement if body else "pass", globals=self._namespace)
        number = counts["n"] or timer.autorange()[0]
        rounds = [spent / number for spent in timer.repeat(max(counts["r"], 1), number)]
        mean = sum(rounds) / len(rounds)
        _say("%s per run, at best %s (%d rounds of %d)" % (_told(mean), _told(min(rounds)), len(rounds), number))

    def timed(self, expression: Any) -> Any:
        self.start()
        try:
            return expression()
        finally:
            self.stop()

    def start(self) -> None:
        self._since = [time.process_time(), time.perf_counter()]

    def stop(self) -> None:
        """Tell the time since the start, if it runs."""
        if self._since is not None:
            (processor, wall), self._since = self._since, None
            used = time.process_time() - processor
            _say("CPU time: %s, wall time: %s" % (_told(used), _told(time.perf_counter() - wall)))

    def _run(self, argv: List[str]) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        return subprocess.call(argv)  # the command is the cell's

    def _filled(self, command: str) -> str:
        """With {expressions} and $names that begin with a variable of the cells; others are the shell's."""

        def value(match: Any) -> str:
            name = match[1] or match[3]
            if name not in self._namespace or (name == "_exit_code" and match[3]):
                return str(match[0])
            try:
                return str(eval(name + (match[2] or ""), self._namespace))  # noqa: S307  # the cell's own words
            except Exception:  # noqa: BLE001  # it was the shell's
                return str(match[0])

        return _NAME.sub(value, command)

    def _check_network(self, arguments: str) -> None:
        """Raises RuntimeError for what would only wait for a network that is not there."""
        import socket

        if "install" not in arguments or "--no-index" in arguments:
            return
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(_UNREACHABLE)  # which sends nothing
        except OSError:
            raise RuntimeError(_OF_PIP) from None


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _shell() -> str:
    return _BASH if os.access(_BASH, os.X_OK) else "/bin/sh"


def _told(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return "%.3g %s" % (seconds / size, unit)
    return "%.3g ns" % (seconds * 1e9)
