"""The operations on commands: `exec`, `attach`, `signal` and `processes`."""

from __future__ import annotations

import json
import os
import signal
from collections import OrderedDict
from typing import Any, Dict, List, Optional

from ..wire.frames import MAX_PAYLOAD, STDERR
from . import proc, spawn
from .arguments import Arguments, encoded
from .channel import Channel, Operation
from .killing import send
from .machine import Machine
from .outlet import RING, Outlet
from .processes import Process, signal_number
from .refusal import BUSY, Refused, invalid
from .spawn import CannotStart, Child, Command

_BASH = "/bin/bash"
_KEPT = 64
_KEPT_OUTPUT = 8 * RING


class Commands:
    """Every command that runs, and the held ones that have ended and can still be asked for."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._has_bash: Optional[bool] = None
        self._env: Dict[bytes, bytes] = {}
        self.use_environment()
        self._running: Dict[int, Process] = {}
        self._ended: OrderedDict[int, Process] = OrderedDict()

    def running(self) -> List[int]:
        """The pids of those that run."""
        return list(self._running)

    def use_environment(self) -> None:
        """Take over the environment of the configuration, for commands from now on."""
        self._env = _encoded_env(self._machine.config.environment())

    def start(self, channel: Channel, request: Dict[str, Any]) -> Operation:
        arguments = Arguments(request)
        timeout, limit, held = arguments.seconds("timeout"), arguments.count("limit"), arguments.flag("hold")
        mark = self._machine.marks.issue()
        try:
            child = self._spawn_or_explain(arguments)
        except CannotStart as failure:
            return _report(channel, failure)
        process = Process(self._machine, channel, child, mark, Outlet(channel, limit), held, self._over)
        process.limit_time(timeout)
        self._running[process.pid] = process
        self._ended.pop(process.pid, None)
        return process

    def _spawn_or_explain(self, arguments: Arguments) -> Child:
        """Where the command cannot be started, a shell that says why: so there is always a process."""
        try:
            return self._spawn(arguments)
        except CannotStart as failure:
            script = "printf '%%s\\n' \"$0\" >&2; exit %d" % failure.exit_code
            words = [self._machine.config.shell, "-c", script, failure.reason]
            size = arguments.window_size("pty")
            return self._spawn(Arguments({"argv": words, "pty": None if size is None else list(size)}))

    def _spawn(self, arguments: Arguments) -> Child:
        argv = arguments.texts("argv")
        if argv is not None and not (argv and argv[0]):
            raise invalid("'argv' must begin with the name of a program.")
        words = [encoded(word, "An argument") for word in argv or [self._machine.config.shell]]
        if arguments.flag("bash") and self._bash():
            words[0] = encoded(_BASH, "An argument")
        env = {**self._env, **_encoded_env(arguments.mapping("env"))}
        size = arguments.window_size("pty")
        self._machine.enter(arguments.text("cwd", "."))
        command = Command(words, env)
        with self._machine.victims:
            if size is not None:
                return spawn.spawn_terminal(command, size)
            return spawn.spawn_pipes(command, arguments.flag("stdin"), self._machine.devnull)

    def _bash(self) -> bool:
        """Whether there is bash. Looked for once: all commands of a sandbox have the same shell."""
        if self._has_bash is None:
            self._has_bash = os.access(_BASH, os.X_OK)
        return self._has_bash

    def _over(self, process: Process) -> None:
        if self._running.get(process.pid) is process:
            del self._running[process.pid]
        if process.held:
            self._ended[process.pid] = process
            self._forget_some()

    def _forget_some(self) -> None:
        """Keep the ends of the newest held processes, with a bounded amount of unread output."""
        while len(self._ended) > _KEPT:
            self._ended.popitem(last=False)
        unread = sum(process.outlet.size for process in self._ended.values())
        for process in self._ended.values():
            if unread <= _KEPT_OUTPUT:
                return
            unread -= process.outlet.size
            process.outlet.drop()

    def attach(self, channel: Channel, request: Dict[str, Any]) -> Operation:
        pid = Arguments(request).required_count("pid")
        process = self._running.get(pid) or self._ended.get(pid)
        if process is None or not process.held:
            raise invalid("No held process has the pid %d." % pid)
        process.attach(channel)
        return process

    def signal(self, channel: Channel, request: Dict[str, Any]) -> Operation:
        arguments = Arguments(request)
        pid, number, tree = arguments.required_count("pid"), signal_number(arguments), arguments.flag("tree")
        process = self._running.get(pid)
        killer = self._machine.killer
        own = process if process is not None and not process.exited else None
        if own is None and not killer.owns(pid):
            raise invalid("No process of this sandbox has the pid %d." % pid)
        meant = {pid}
        if tree:
            meant = killer.descendants(pid) if own is None else killer.members(own.mark)

        def end() -> None:
            channel.end({})

        if number != signal.SIGKILL:
            send(meant, number)
            end()
        elif tree and own is None:
            killer.kill_below(pid, lambda: killer.wait_for(meant, end))
        else:
            if own is None:
                send(meant, number)
            else:
                own.signal(number, tree)
            killer.wait_for(meant, end)
        return Operation(channel)

    def list(self, channel: Channel, request: Dict[str, Any]) -> Operation:
        table = proc.tasks()
        listed: List[Dict[str, Any]] = []
        room = MAX_PAYLOAD - 1024
        for pid in sorted(self._machine.killer.ours(table)):
            row = self._describe(table[pid])
            room -= len(json.dumps(row)) + 1
            if room < 0:
                raise Refused(BUSY, "The sandbox runs more processes than one answer can hold.")
            listed.append(row)
        channel.end({"processes": listed})
        return Operation(channel)

    def _describe(self, task: proc.Task) -> Dict[str, Any]:
        return {
            "pid": task.pid,
            "parent": task.parent,
            "command": proc.command_line(task.pid),
            "state": task.state,
            "memory": task.memory,
            "cpu_seconds": task.cpu_ticks / proc.TICKS,
            "started_by_api": self._machine.reaper.awaits(task.pid),
        }


def _report(channel: Channel, failure: CannotStart) -> Operation:
    """Tell it as a shell would, where there is no shell: a command that fails is data."""
    channel.send_data(STDERR, ("%s\n" % failure.reason).encode("utf-8", "replace"))
    channel.end({"exit_code": failure.exit_code, "timed_out": False, "truncated": False, "duration": 0.0})
    return Operation(channel)


def _encoded_env(env: Dict[str, str]) -> Dict[bytes, bytes]:
    return {_variable(name): encoded(value, "An environment variable") for name, value in env.items()}


def _variable(name: str) -> bytes:
    if not name or "=" in name:
        raise invalid("%r is not a name for an environment variable." % name[:100])
    return encoded(name, "An environment variable")
