"""Words that users of other products write, and what they are called here: for errors that name the right call."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

_COROUTINE = 0x80  # inspect.CO_COROUTINE, without inspect

_KEYWORDS = {
    "provider": "driver", "providers": "driver", "wall": "driver", "runtime": "driver", "backend": "driver",
    "variant": "driver", "environment": "driver", "isolation": "driver", "engine": "driver",
    "tags": "labels", "metadata": "labels", "name": "labels",
    "env_vars": "env", "envs": "env", "environ": "env", "environment_variables": "env", "variables": "env",
    "timeout_seconds": "timeout", "timeout_ms": "timeout", "time_limit": "timeout", "deadline": "timeout",
    "expires_in": "lifetime", "ttl": "lifetime", "max_lifetime": "lifetime", "expires": "lifetime",
    "working_dir": "workdir", "working_directory": "workdir", "cwd": "workdir", "work_dir": "workdir",
    "snapshot_name": "snapshot", "snapshot_id": "snapshot", "from_snapshot": "snapshot", "checkpoint": "snapshot",
    "template": "image", "docker_image": "image", "base_image": "image", "rootfs": "image",
    "network_policy": "network", "allow_internet_access": "network", "internet": "network", "networking": "network",
    "codebase_id": "codebase", "repo": "codebase", "path": "source", "directory": "source", "mount": "source",
    "volumes": "source", "mounts": "source", "files": "source", "local_path": "source",
    "requirements": "packages", "dependencies": "packages", "deps": "packages", "pip_packages": "packages",
    "rules": "permissions", "policy": "permissions", "permission": "permissions",
    "functions": "tools", "limits": "resources", "ram": "resources", "memory_mb": "resources",
    "memory_limit": "resources", "cpu_limit": "resources", "cpus": "resources",
    "input": "stdin", "raise_on_error": "check", "raise_on_failure": "check", "capture_output": "max_output",
    "lang": "language", "on_output": "on_stdout", "shell": "command", "context_id": "context",
    "on_log": "on_progress", "progress": "on_progress", "exclude": "ignore", "recreate": "force",
}  # fmt: skip


def meant_by(name: str, known: Iterable[str]) -> str | None:
    """Which of the known keywords somebody means who writes another, if that can be guessed."""
    known = [*known]
    meant = _KEYWORDS.get(name.lower())
    if meant in known:
        return meant
    from difflib import get_close_matches

    return next(iter(get_close_matches(name.lower(), known, n=1)), None)


def no_keyword(name: str, known: Iterable[str]) -> str:
    """The sentence for a keyword that a call does not have: what was meant, or all that it has."""
    known = [*known]
    meant = meant_by(name, known)
    if meant is not None:
        return f"There is no keyword {name!r}: did you mean {meant}=?"
    return f"There is no keyword {name!r}; the keywords are {', '.join(known)}."


def hinting(call: Callable[P, R]) -> Callable[P, R]:
    """Have a call that is written wrongly say how it is written."""
    if call.__code__.co_flags & _COROUTINE:
        return cast("Callable[P, R]", _hinting_awaited(call))

    @wraps(call)
    def checked(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return call(*args, **keywords)
        except TypeError as error:
            message = _told(error, call, args, keywords)
            if message is None:
                raise
            raise TypeError(message) from None

    return checked


def _hinting_awaited(call: Callable[..., Any]) -> Any:
    """The same, and still a coroutine function, as some who are given it ask."""

    @wraps(call)
    async def checked(*args: Any, **keywords: Any) -> Any:
        try:
            begun = call(*args, **keywords)
        except TypeError as error:
            message = _told(error, call, args, keywords)
            if message is None:
                raise
            raise TypeError(message) from None
        return await begun

    return checked


def _told(
    error: TypeError, call: Callable[..., Any], args: tuple[object, ...], keywords: Mapping[str, object]
) -> str | None:
    # What is raised before the first line of the call is about its arguments.
    if error.__traceback__ is None or error.__traceback__.tb_next is not None:
        return None
    return _wrong_call(call, args, keywords)


def _wrong_call(call: Callable[..., Any], args: tuple[object, ...], keywords: Mapping[str, object]) -> str | None:
    """What is wrong with these arguments, where more can be told than Python tells."""
    if call.__name__ == "__init__":
        return not_made(type(args[0]))
    code = call.__code__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    unknown = [name for name in keywords if name not in names]
    if unknown:
        return no_keyword(unknown[0], names)
    if len(args) > code.co_argcount and names[:1] == ("command",):
        words = ", ".join(repr(each) for each in args[1:4]) + (", …" if len(args) > 4 else "")
        return f"A command with arguments is one list: {call.__name__}([{words}])."
    return None


def elsewhere(names: Mapping[str, str]) -> Callable[[C], C]:
    """Have a class tell, of attributes that it does not have, what they are called here."""

    def taught(cls: C) -> C:
        def missing(self: object, name: str) -> Any:
            raise AttributeError(_no_attribute(type(self), name, names), name=name, obj=self)

        # Unseen by type checkers, to which any attribute would be there.
        missing.__name__ = "__getattr__"
        setattr(cls, "__getattr__", missing)  # noqa: B010  # same
        setattr(cls, "_elsewhere", names)  # noqa: B010  # same
        return cls

    return taught


def not_made(cls: type) -> str:
    """For an object that nobody makes by its class."""
    name = cls.__name__
    article = "An" if name.startswith("A") else "A"
    return f"{article} {name} is made with {name}.create(), and found again with {name}.connect(id)."


class Hinting(ABCMeta):
    """The metaclass of a class that is taught so, for names that are looked for on the class itself."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            names = {} if name == "_elsewhere" else cls._elsewhere
            raise AttributeError(_no_attribute(cls, name, names), name=name, obj=cls)


def _no_attribute(cls: type, name: str, names: Mapping[str, str]) -> str:
    plain = f"{cls.__name__!r} has no attribute {name!r}"
    return f"{plain}; use {names[name]}." if name in names else plain


SANDBOX = {
    "execute": "run(command)", "exec": "run(command)", "run_command": "run(command)", "bash": "run(command)",
    "commands": "run(command), stream(command) or start(command)",
    "execute_many": "run_many(commands)", "exec_stream": "stream(command)", "stream_execute": "stream(command)",
    "shell": "run(command), or session() for a shell that stays", "spawn": "start(command)",
    "process": "start(command)", "pty": "start(command, pty=True)", "list_processes": "processes()",
    "upload": "files.upload(local, remote)", "upload_file": "files.upload(local, remote)",
    "download": "files.download(remote, local)", "download_file": "files.download(remote, local)",
    "read_file": "files.read(path)", "write_file": "files.write(path, data)", "list_files": "files.list(path)",
    "read": "files.read(path)", "write": "files.write(path, data)", "ls": "files.list(path)",
    "filesystem": "files", "fs": "files", "delete_file": "files.remove(path)",
    "kill": "destroy()", "terminate": "destroy()", "close": "destroy(), or stop() to keep its files",
    "delete": "destroy()", "shutdown": "destroy(), or stop() to keep its files", "remove": "destroy()",
    "create_snapshot": "snapshot(name)", "restore_snapshot": "rollback(name)", "restore": "rollback(name)",
    "list_snapshots": "atoll.Snapshots().list()", "delete_snapshot": "atoll.Snapshots().delete(name)",
    "clone": "fork()", "branch": "fork()",
    "install_packages": "install(packages)", "pip_install": "install(packages)",
    "create_session": "session()", "create_context": "contexts.create(name)",
    "execute_code": "run_code(code)", "exec_code": "run_code(code)", "code_run": "run_code(code)",
    "eval": "run_code(code)", "notebook": "run_code(code)", "run_python": "run_code(code)",
    "set_variable": "variables.set(name, value)", "get_variable": "variables.get(name)",
    "from_id": "connect(id)", "get": "connect(id)", "reconnect": "connect(id)", "from_existing": "connect(id)",
    "status": "info.status, or refresh().status to ask", "get_info": "info, or refresh() to ask",
    "getinfo": "info, or refresh() to ask",
    "is_running": "refresh().status", "tags": "labels", "metadata": "labels", "sandbox_id": "id", "name": "id",
    "provider": "driver", "config": "info.spec", "extend": "set_lifetime(seconds)", "logs": "run(command).stdout",
}  # fmt: skip
SESSION = {
    "exec": "run(command)", "execute": "run(command)", "send": "run(command)", "exec_stream": "stream(command)",
    "kill": "close()", "destroy": "close()",
}  # fmt: skip
FILES = {
    "get": "read(path)", "read_text": "read(path)", "read_file": "read(path)", "open": "read(path)",
    "put": "write(path, data)", "write_text": "write(path, data)", "write_bytes": "write(path, data)",
    "write_file": "write(path, data)", "ls": "list(path)", "listdir": "list(path)", "list_dir": "list(path)",
    "delete": "remove(path)", "unlink": "remove(path)", "rm": "remove(path)", "rmtree": "remove(path, recursive=True)",
    "rename": "move(source, target)", "makedirs": "mkdir(path)", "make_dir": "mkdir(path)", "stat": "info(path)",
    "get_info": "info(path)", "grep": "search(content=pattern)", "find": "search(pattern)", "glob": "search(pattern)",
    "watch_dir": "watch(path)",
}  # fmt: skip
PROCESS = {
    "returncode": "exit_code", "poll": "exit_code", "terminate": "kill(), or signal('TERM')", "stdin": "write(data)",
    "stdout": "read() or iteration", "communicate": "wait()", "send_signal": "signal(number)",
    "send_stdin": "write(data)",
    "disconnect": "attach(pid) later: a process outlives this object",
}  # fmt: skip
COMPLETED = {
    "ok": "success", "succeeded": "success", "returncode": "exit_code", "return_code": "exit_code", "code": "exit_code",
    "status": "exit_code", "output": "stdout", "out": "stdout", "text": "stdout", "result": "stdout", "err": "stderr",
    "error": "stderr", "logs": "stdout and stderr", "check_returncode": "check=True in the call",
    "execution_time": "duration",
}  # fmt: skip
EXECUTION = {
    "ok": "success", "output": "stdout, or text for the last value", "result": "text, or results", "value": "text",
    "logs": "stdout and stderr", "execution_count": "count", "returncode": "exit_code", "execution_error": "error",
    "png": "results[-1].png", "html": "results[-1].html", "traceback": "error.traceback",
}  # fmt: skip
CHUNK = {"decode": "text", "line": "text, or by_line(f) for whole lines", "content": "text"}
