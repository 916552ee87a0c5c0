"""The guest: takes clients from its keeper and runs their operations until the keeper is gone.

Everything that the guest ever needs is imported with this module: once the wall is closed, its source
is out of reach.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from typing import Any, Callable, Dict, Optional, Set

from . import bystanders, files, openfiles, removal, search, transfer, trees, watch
from .arguments import Arguments
from .channel import Channel, Connection, Operation
from .commands import Commands
from .config import Config
from .contexts import Contexts
from .jobs import Job, Steps
from .keeperline import ENVIRONMENT, NEW_CLIENT, KeeperLine, Order
from .lasting import Lasting
from .loop import IN, Callback, Loop, Signals
from .machine import Machine, undo_inherited_signals
from .paths import Root
from .refusal import invalid
from .sessions import Sessions

# How long after its first client a guest keeps a context that was made ahead and not used.
PREPARED_SECONDS = 2.0

Answering = Callable[[Arguments], Dict[str, Any]]
Stepping = Callable[[Job, Arguments], Steps]


class Server:
    """One guest.

    Args:
        control: a Unix socket on which the keeper sends one byte `c` with the descriptor of each new client,
            and at most once, before the first, `e` with the whole environment as JSON (SOCK_SEQPACKET only).
            Its end is the end of the sandbox.
        score: this process's oom_score_adj, opened to read and write, if what it starts is to be killed first.
        kills: a file of the control group that counts whom the kernel killed for memory, if it can be read.
    """

    def __init__(
        self,
        control: socket.socket,
        config: Config,
        score: Optional[int] = None,
        kills: Optional[int] = None,
    ) -> None:
        os.umask(0o022)
        undo_inherited_signals()
        self._line = KeeperLine(control)
        self._machine = machine = Machine(config, score, kills)
        self._commands = Commands(machine)
        self._contexts = Contexts(machine)
        self._sessions = Sessions(machine)
        self._lasting = Lasting(
            config.state_directory(),
            self._contexts.standings,
            lambda contexts: bystanders.lost(machine, self._commands, self._sessions, contexts),
        )
        self._contexts.revive(self._lasting.kept())
        self._connections: Set[Connection] = set()
        self._had_client = False
        self._operations = self._table(machine.root)
        Signals(machine.loop, self._signal_handlers())
        machine.loop.watch(self._line.fileno(), IN, self._hear_keeper)

    @property
    def loop(self) -> Loop:
        """For what else is to be served in this process."""
        return self._machine.loop

    def prefork_context(self) -> None:
        """Make the process of the context "main" ahead of its first cell."""
        self._contexts.prepare()

    def turn(self) -> None:
        """Serve whatever comes next."""
        self._machine.loop.turn()

    def run(self) -> None:
        """Serve until the keeper hangs up, then kill everything that was started."""
        self._machine.loop.run()
        self._machine.killer.kill_everything()

    def _signal_handlers(self) -> Dict[int, Callback]:
        """As pid 1 the guest handles no others, which makes the kernel ignore them."""
        reap = self._machine.reaper.reap
        # SIGINT is for commands and cells. It too looks for children: a flood of it may have pushed their signal out.
        handlers: Dict[int, Callback] = {signal.SIGCHLD: reap, signal.SIGINT: reap}
        if os.getpid() != 1:
            handlers[signal.SIGTERM] = self._machine.loop.stop
        return handlers

    def _table(self, root: Root) -> Dict[str, Callable[[Channel, Dict[str, Any]], Operation]]:
        return {
            "exec": self._commands.start,
            "attach": self._commands.attach,
            "signal": self._commands.signal,
            "writers": self._answer(lambda arguments: openfiles.writers(self._machine, arguments.texts("places"))),
            "processes": self._commands.list,
            "code": self._contexts.run,
            "ask": self._contexts.ask,
            "interrupt": self._answer(self._contexts.interrupt),
            "contexts": self._answer(self._contexts.list),
            "checkpoint": self._answer(self._lasting.operate),
            "revive": self._answer(self._revive),
            "create_context": self._answer(self._contexts.create),
            "restart_context": self._contexts.restart,
            "delete_context": self._contexts.delete,
            "open_session": self._answer(self._sessions.open),
            "find_session": self._answer(self._sessions.find),
            "session": self._sessions.run,
            "interrupt_session": self._answer(self._sessions.interrupt),
            "close_session": self._sessions.close,
            "stat": self._answer(lambda arguments: files.stat_path(root, arguments)),
            "list": self._steps(lambda job, arguments: files.list_directory(root, job, arguments)),
            "read": self._steps(lambda job, arguments: files.read_file(root, job, arguments)),
            "write": self._steps(lambda job, arguments: files.write_file(root, job, arguments)),
            "mkdir": self._answer(lambda arguments: files.make_directory(root, arguments)),
            "remove": self._steps(lambda job, arguments: removal.remove(root, job, arguments)),
            "move": self._steps(lambda job, arguments: transfer.move(root, job, arguments)),
            "copy": self._steps(lambda job, arguments: transfer.copy(root, job, arguments)),
            "watch": lambda channel, request: watch.start(self._machine, channel, Arguments(request)),
            "search": self._steps(lambda job, arguments: search.search(self._machine, job, arguments)),
            "pack": self._steps(lambda job, arguments: trees.pack(root, job, arguments)),
            "unpack": self._steps(lambda job, arguments: trees.unpack(root, job, arguments)),
        }

    def _revive(self, _arguments: Arguments) -> Dict[str, Any]:
        """The files are those of another time: have the contexts that were kept in them."""
        self._contexts.replace(self._lasting.kept())
        return {}

    def _answer(self, function: Answering) -> Callable[[Channel, Dict[str, Any]], Operation]:
        """An operation that is done at once."""

        def start(channel: Channel, request: Dict[str, Any]) -> Operation:
            channel.end(function(Arguments(request)))
            return Operation(channel)

        return start

    def _steps(self, function: Stepping) -> Callable[[Channel, Dict[str, Any]], Operation]:
        """An operation that takes its time."""

        def start(channel: Channel, request: Dict[str, Any]) -> Operation:
            arguments = Arguments(request)
            subject = arguments.optional_text("target" if "target" in request else "path")
            path = None if subject is None else self._machine.root.absolute(subject)
            return Job(self._machine.loop, channel, lambda job: function(job, arguments), path)

        return start

    def _open(self, channel: Channel, request: Dict[str, Any]) -> Operation:
        name = request.get("op")
        start = self._operations.get(name) if isinstance(name, str) else None
        if start is None:
            raise invalid("This guest knows no operation %.50r." % (name,))
        return start(channel, request)

    def _hear_keeper(self, _mask: int = 0) -> None:
        for order in self._line.orders():
            self._obey(order)

    def _obey(self, order: Order) -> None:
        if not order.kind:
            self._machine.loop.stop()
        elif order.kind == ENVIRONMENT:
            self._machine.config = self._machine.config._replace(env=json.loads(order.rest))
            self._commands.use_environment()
            self._contexts.dress()
        for fd in order.descriptors:
            if order.kind == NEW_CLIENT:
                self._welcome(socket.socket(fileno=fd))
            else:
                os.close(fd)

    def _welcome(self, client: socket.socket) -> None:
        if not self._had_client:
            self._had_client = True
            self._machine.loop.after(PREPARED_SECONDS, self._contexts.discard_unused)
        self._connections.add(Connection(self._machine.loop, client, self._open, self._connections.discard))
