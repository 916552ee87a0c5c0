"""A second id for an ordinary user's namespace, where root has given that user subordinate ids.

Only the set-id programs newuidmap and newgidmap can map them, from outside the namespace.
"""

from __future__ import annotations

import os

_TOOLS = {"uid_map": ("/usr/bin/newuidmap", "/etc/subuid"), "gid_map": ("/usr/bin/newgidmap", "/etc/subgid")}


def first_of(path: str, names: tuple[str, ...]) -> int | None:
    """The first subordinate id that a file gives to a user, who is there by name or number; None if it gives none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.strip().split(":") for line in file]
    except OSError:
        return None
    for fields in lines:
        if len(fields) == 3 and fields[0] in names and fields[1].isdigit() and fields[2].isdigit() and int(fields[2]):
            return int(fields[1])
    return None


def _names(uid: int) -> tuple[str, ...]:
    import pwd

    try:
        return (pwd.getpwuid(uid).pw_name, str(uid))
    except KeyError:
        return (str(uid),)


class Mapper:
    """A helper that stays outside while this process moves into a user namespace, to map two ids for it there."""

    def __init__(self, uid: int, gid: int) -> None:
        """To be made before the move. `useful` says whether there is anything to map."""
        self._commands = _commands(uid, gid, os.getpid())
        self.useful = self._commands is not None
        if not self.useful:
            return
        self._reader, theirs = os.pipe2(os.O_CLOEXEC)
        go, self._go = os.pipe2(os.O_CLOEXEC)
        self._helper = os.fork()
        if self._helper == 0:
            os.close(self._go)
            self._help(go, theirs)
        os.close(theirs)
        os.close(go)

    def map(self, *, moved: bool) -> bool:
        """After the move: whether ids 0 and 1 are mapped now. If not, nothing is, or only the users are."""
        if not self.useful:
            return False
        if moved:
            os.write(self._go, b"g")
        os.close(self._go)
        said = os.read(self._reader, 1)
        os.close(self._reader)
        os.waitpid(self._helper, 0)
        return said == b"y"

    def _help(self, go: int, answer: int) -> None:
        try:
            if os.read(go, 1) and all(_run(command) for command in self._commands or ()):
                os.write(answer, b"y")
        finally:
            os._exit(0)


def _commands(uid: int, gid: int, pid: int) -> list[list[str]] | None:
    names = _names(uid)
    found = []
    for own, (tool, table) in zip((uid, gid), _TOOLS.values(), strict=True):
        second = first_of(table, names)
        if second is None or not os.access(tool, os.X_OK):
            return None
        found.append([tool, str(pid), "0", str(own), "1", "1", str(second), "1"])
    return found


def _run(command: list[str]) -> bool:
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (1, 2)]
    pid = os.posix_spawn(command[0], command, {"PATH": "/usr/bin:/bin"}, file_actions=null)
    return os.waitpid(pid, 0)[1] == 0
